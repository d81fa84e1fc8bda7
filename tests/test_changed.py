"""Which slow tests CI runs: every folder of the package is in the table, and every test that it names exists."""

import importlib.util
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.docs


@pytest.fixture(scope="module")
def changed():
    spec = importlib.util.spec_from_file_location("changed", ROOT / ".ci" / "changed.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def rows(changed):
    return changed.table((ROOT / "CONTRIBUTING.md").read_text())


def test_every_part_of_the_package_is_in_the_table(changed, rows):
    for path in (ROOT / "privcirnet").iterdir():
        if path.is_dir() and list(path.glob("*.py")):
            assert changed.affected([f"privcirnet/{path.name}/x.py"], rows) != {"tests"}, path.name


def test_what_the_table_names_is_there(rows):
    for starts, tests in rows:
        assert all(list(ROOT.glob(f"{start}*")) for start in starts)
        assert all(list(ROOT.glob(test)) for test in tests)


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("privcirnet/he/ring/modular.py", "tests/he"),
        ("tests/he/bfv/test_batching.py", "tests/he/bfv/test_batching.py"),
        ("tests/he/layer_examples.py", "tests/he"),
        ("pyproject.toml", "tests"),
    ],
)
def test_what_changed_brings_its_tests(changed, rows, path, test):
    found = changed.affected([path], rows)
    assert test in found
    assert test == "tests" or "tests/data" not in found


def test_a_commit_that_nobody_knows_means_everything(changed, monkeypatch, tmp_path):
    (tmp_path / ".ci").mkdir()
    (tmp_path / ".ci" / "passed").write_text("0" * 40)
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    assert changed.changed() is None


def test_the_commit_that_passed_is_one(changed):
    assert len((Path(ROOT) / ".ci" / "passed").read_text().strip()) == 40
