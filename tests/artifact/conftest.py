"""A program folder as it was written."""

import shutil
from pathlib import Path

import pytest

from privcirnet.artifact import (
    write_program,
)
from tests.he.networks import network


@pytest.fixture(scope="module")
def written(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("written") / "program"
    write_program(path, network(), {"classes": ["a", "b"], "counts": {2: 1, 10: 0.1}}, full=True)
    return path


@pytest.fixture
def folder(written, tmp_path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "program"))
