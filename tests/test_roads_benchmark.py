"""The command that fills the table of docs/roads.md, on its smallest network and an engine that hides nothing."""

import importlib
import json
import re
import sys

import pytest

from tests.conftest import ROOT

WORDS = ("--networks", "tutorial_mnist", "--images", "1", "--engine", "cleartext", "--profile", "counted")


@pytest.fixture
def roads(monkeypatch):
    """The script, imported as when it is run."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    yield importlib.import_module("roads")
    for name in ("roads", "untrained"):
        sys.modules.pop(name, None)


def run(module, monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["roads.py", *map(str, words)])
    module.main()


@pytest.mark.slow
def test_rows_are_measured_once_and_put_on_a_page(roads, tmp_path, monkeypatch, capsys):
    """Three programs are made, and each has a server of its own: over five seconds."""
    out, page = tmp_path / "out", tmp_path / "page.md"
    run(roads, monkeypatch, *WORDS, "--out", out)
    exact, polynomials, leveled = (
        json.loads((out / f"tutorial_mnist-{road}.json").read_text()) for road in roads.ROADS
    )
    assert exact["rounds"] > polynomials["rounds"] > leveled["rounds"] == 1
    assert exact["ahead_bytes"] > exact["bytes"]
    assert leveled["ahead_s"] is None
    page.write_text(f"Before.\n{roads.BEGIN}old\n{roads.END}After.\n")
    monkeypatch.setattr(roads, "measured", None)  # nothing is measured again
    run(roads, monkeypatch, *WORDS, "--out", out, "--page", page)
    assert "| no rounds | 1 | - | - |" in capsys.readouterr().out
    assert re.fullmatch(r"Before\.\n.*\| exact \| 1 \|.*After\.\n", page.read_text(), re.DOTALL)
    assert "old" not in page.read_text()


def test_rows_of_other_pages_name_them(roads, tmp_path):
    rows = roads.read_rows(tmp_path)
    assert rows.keys() == roads.STATED.keys()
    assert all((ROOT / "docs" / row.source).is_file() for row in rows.values())
    lines = roads.table(rows).splitlines()
    assert len(lines) == 2 + 2 * len(roads.NETWORKS) + 2  # two networks run without rounds
    page = "[measured](../benchmarks/measured.md)"
    assert f"| ResNet-18, CIFAR | exact | 4 | 2.7 | 61.1 | 0.23 | 8.3 | 35 | - | - | {page} |" in lines
