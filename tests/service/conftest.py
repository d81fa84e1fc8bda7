"""A Redis for a test, and what is closed after it."""

from contextlib import ExitStack

import pytest

from privcirnet.he.ring import sampling
from tests.service.redises import Redis
from tests.service.running import digests_of_masks


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


@pytest.fixture
def drawn(monkeypatch):
    """Digests of all that is drawn: masks, shares."""
    found = []
    monkeypatch.setattr(sampling, "uniform", sampling.uniform)  # as it was, in the end
    digests_of_masks(lambda line: found.append(line.strip()))
    return found
