"""python -m papers.pareto as a user runs it: one cell, then a multirun of two more, then the drawing alone."""

import dataclasses
import sys

import pytest

from papers.pareto import command
from papers.pareto.config import ParetoConfig
from privcirnet.cli.settings import CONFIGS, composed
from privcirnet.config import TrainConfig
from privcirnet.errors import RuleError
from tests.papers.pareto.case import dense


def call(monkeypatch, *arguments: str) -> None:
    """Run the script in this process."""
    monkeypatch.setattr(sys, "argv", ["papers.pareto", *arguments])
    command.main()


def test_cells_are_jobs_of_a_multirun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    dense(tmp_path / "outputs" / "train")
    small = ["he.profile=counted", "recipe.epochs=1", "samples=64", "train_images=128", "budget_on=server"]
    call(monkeypatch, "method=uniform", "b=4", *small)
    assert "1 of 1 plans are trained" in capsys.readouterr().out
    call(monkeypatch, "-m", "method=dense,pruning", "b=4", *small)
    out = tmp_path / "outputs" / "pareto"
    assert sorted(path.name for path in (out / "cells").iterdir()) == ["dense-b1", "pruning-b4-server", "uniform-b4"]
    capsys.readouterr()
    (out / "pareto.md").unlink()
    call(monkeypatch, "draw=true", *small)
    assert "3 of 3 plans are trained" in capsys.readouterr().out
    assert "3 of 3 plans are trained" in (out / "pareto.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outputs"], "nothing is written elsewhere"


EXPERIMENTS = sorted(path.stem for path in (CONFIGS / "experiment").glob("*.yaml"))


@pytest.mark.slow
@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_gives_the_dense_network_the_data_and_the_recipe(experiment):
    given = command.expanded([experiment, "data.root=/images", "recipe.epochs=3"])
    found = composed("pareto", ParetoConfig, given)
    stage = composed("train", TrainConfig, given[:-2])
    assert (found.init, found.out) == (f"outputs/{experiment}/train", f"outputs/{experiment}/pareto")
    assert (found.recipe.stage, found.recipe.epochs, found.data.root) == ("finetune", 3, "/images")
    assert stage.recipe == dataclasses.replace(found.recipe, epochs=stage.recipe.epochs)
    assert stage.data.name == found.data.name


def test_arguments_without_an_experiment_stay_and_an_unknown_one_is_refused():
    for arguments in ([], ["method=uniform", "b=4"], ["-m", "b=2,4"]):
        assert command.expanded(arguments) == arguments
    place = ["root=outputs/digits", "recipe=finetune", "data=digits", "recipe.init=outputs/digits/train"]
    assert command.expanded(["digits", "-m", "b=2,4"]) == [
        "-m",
        *place,
        "recipe.epochs=40",
        "recipe.clip_gradient=0",
        "b=2,4",
    ]
    with pytest.raises(RuleError, match=r"settings must exist and have the right type: got .*nonsense"):
        command.expanded(["nonsense", "b=4"])
