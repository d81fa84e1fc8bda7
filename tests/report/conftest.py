"""A chain of runs on disk."""

import pytest

from tests.report.samples import summaries, write


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "demo", summaries())
