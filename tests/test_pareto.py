"""benchmarks/pareto.py as a user runs it: one cell, then a multirun of two more, then the drawing alone."""

import importlib.util
import sys
from pathlib import Path

from tests.pipeline.pareto.case import dense

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "pareto.py"


def call(monkeypatch, *arguments: str) -> None:
    """Run the script in this process."""
    spec = importlib.util.spec_from_file_location("pareto", SCRIPT)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "pareto", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    module.main()


def test_cells_are_jobs_of_a_multirun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dense(tmp_path / "outputs" / "train")
    small = ["he.profile=counted", "recipe.epochs=1", "samples=64", "train_images=128", "budget_on=server"]
    call(monkeypatch, "method=uniform", "b=4", *small)
    assert "1 of 1 runs are complete" in capsys.readouterr().out
    call(monkeypatch, "-m", "method=dense,pruning", "b=4", *small)
    out = tmp_path / "outputs" / "pareto"
    assert sorted(path.name for path in (out / "cells").iterdir()) == ["dense-b1", "pruning-b4-server", "uniform-b4"]
    capsys.readouterr()
    (out / "pareto.md").unlink()
    call(monkeypatch, "draw=true", *small)
    assert "3 of 3 runs are complete" in capsys.readouterr().out
    assert "3 of 3 runs are complete" in (out / "pareto.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs"], "nothing is written elsewhere"
