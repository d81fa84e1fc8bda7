"""A chain of runs on disk, and report.py."""

import importlib.util
from pathlib import Path

import pytest

from tests.report.samples import summaries, write


@pytest.fixture
def root(tmp_path):
    return write(tmp_path / "demo", summaries())


@pytest.fixture
def script():
    """The script at the root, by its path: its name is also that of this test package."""
    spec = importlib.util.spec_from_file_location("report_script", Path(__file__).parents[2] / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
