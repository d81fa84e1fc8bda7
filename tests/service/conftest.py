"""A Redis for a test, and what is closed after it."""

from contextlib import ExitStack

import pytest

from tests.service.redises import Redis


@pytest.fixture
def stack():
    with ExitStack() as found:
        yield found


@pytest.fixture
def redis(tmp_path):
    found = Redis(tmp_path / "redis")
    try:
        yield found
    finally:
        found.kill()
