"""One stage as a function: nothing is shown, everything is written, an interrupted run is resumed."""

import copy
import json

import pytest

from privcirnet.artifact import read_checkpoint
from privcirnet.config import ModelConfig, RecipeConfig, TrainConfig
from privcirnet.data import load
from privcirnet.pipeline import train
from privcirnet.training import checkpoint, loop, record

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


@pytest.mark.parametrize("epochs", [0, 1])
def test_accuracy_is_measured_once_before_and_once_after_each_epoch(epochs, tmp_path, monkeypatch):
    calls, measure = [], train.accuracy
    for module in (train, loop):
        monkeypatch.setattr(module, "accuracy", lambda *given: calls.append(measure(*given)) or calls[-1])
    trained = train.train(config(tmp_path, epochs=epochs), DATA)
    assert len(calls) == 1 + epochs
    assert (trained.top1_before, trained.top1) == (calls[0], calls[-1])


def test_a_resumed_run_remembers_the_accuracy_before(tmp_path, monkeypatch):
    kept = []
    monkeypatch.setattr(checkpoint, "save", lambda out, progress, settings: kept.append(copy.deepcopy(progress)))
    whole = train.train(config(tmp_path, epochs=2), DATA)
    monkeypatch.setattr(checkpoint, "load", lambda out, settings: kept[0])
    monkeypatch.setattr(train, "accuracy", lambda *given: pytest.fail("measured again"))
    assert train.train(config(tmp_path, epochs=2), DATA).top1_before == whole.top1_before


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
