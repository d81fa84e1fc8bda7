"""One stage as a function: nothing is shown, everything is written, an interrupted run is resumed."""

import json

import pytest

from privcirnet.artifact import read_checkpoint
from privcirnet.config import ModelConfig, RecipeConfig, TrainConfig
from privcirnet.data import load
from privcirnet.pipeline import train
from privcirnet.training import checkpoint, record

DATA = load("digits").part(256)


def config(out, **recipe) -> TrainConfig:
    return TrainConfig(
        out=str(out), device="cpu", model=ModelConfig(arguments={"width": 4}), recipe=RecipeConfig(**recipe)
    )


def test_a_stage_is_trained_written_and_measured_again_without_a_terminal(tmp_path, capfd):
    trained = train.train(config(tmp_path, epochs=2), DATA)
    assert [entry["epoch"] for entry in trained.history] == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == [record.TABLE, checkpoint.NAME]
    path = train.write(trained, 1.5)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [path.name, record.CURVES, record.TABLE, "summary.json"]
    )
    assert read_checkpoint(path).model == "digits_resnet"
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary == json.loads(json.dumps(train.summary(trained, 1.5, path)))
    assert (summary["seconds"], summary["parameters"]) == (1.5, trained.parameters)
    measured = train.evaluate(TrainConfig(out=str(tmp_path), device="cpu", evaluate=str(path)), DATA)
    assert (measured["stage"], measured["top1"]) == ("evaluate", trained.top1)
    assert capfd.readouterr() == ("", "")


def test_an_interrupted_run_is_resumed_and_its_bar_starts_there(tmp_path, monkeypatch):
    def interrupted(self, history):
        raise KeyboardInterrupt

    expected = train.train(config(tmp_path / "whole", epochs=2), DATA)
    epoch = record.Record.epoch
    with monkeypatch.context() as patch:
        second = lambda self, history: (interrupted if len(history) == 2 else epoch)(self, history)  # noqa: E731
        patch.setattr(record.Record, "epoch", second)
        with pytest.raises(KeyboardInterrupt):
            train.train(config(tmp_path / "killed", epochs=2), DATA)
    notes = Notes()
    resumed = train.train(config(tmp_path / "killed", epochs=2), DATA, notes.bar)
    assert ("resumed", 1) in notes.seen
    assert resumed.top1 == expected.top1
    assert [entry["loss"] for entry in resumed.history] == [entry["loss"] for entry in expected.history]


class Notes:
    """Bars that keep what they are told."""

    def __init__(self) -> None:
        self.seen = []

    def bar(self, description: str, total: int) -> "Notes":
        return self

    def __enter__(self):
        return lambda note="", by=1, to=None: self.seen.append((note, to))

    def __exit__(self, *_) -> None:
        pass
