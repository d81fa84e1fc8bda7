"""A copy of a program's folder, to be changed."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def folder(small_program, tmp_path) -> Path:
    return Path(shutil.copytree(small_program, tmp_path / "program"))
