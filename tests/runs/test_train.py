"""One stage as a function: nothing is shown, everything is written, an interrupted run is resumed."""

import copy
import dataclasses
import json
import re

import pytest
import torch

from privcirnet.artifact.records import read_checkpoint
from privcirnet.cli import train
from privcirnet.cli.settings import composed
from privcirnet.config import ModelConfig, RecipeConfig, TrainConfig
from privcirnet.data import load
from privcirnet.errors import RuleError
from privcirnet.passes.lower import check_operations
from privcirnet.train import checkpoint, loop, record

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


def test_a_network_of_timm_is_quantized_as_it_is_and_no_epoch_needs_no_teacher(tmp_path):
    first = dataclasses.replace(config(tmp_path / "train", epochs=0), model=ModelConfig("test_efficientnet"))
    init = train.write(train.train(first, DATA), 0.0)
    recipe = {"stage": "qat", "init": str(init), "epochs": 0, "teacher": "nowhere", "distillation": 0.5}
    trained = train.train(config(tmp_path / "qat", **recipe), DATA)
    check_operations(trained.network.model, "exact")
    path = train.write(trained, 0.0)
    assert train.evaluate(TrainConfig(device="cpu", evaluate=str(path)), DATA)["top1"] == trained.top1
    with pytest.raises(RuleError, match=r"must be quantized once: got recipe.init=.* of stage qat; give the run"):
        train.train(config(tmp_path / "again", **recipe | {"init": str(path)}), DATA)
    wrong = dataclasses.replace(
        config(tmp_path / "wrong", **recipe | {"stage": "replace"}), model=ModelConfig(arguments={"activation": "ownn"})
    )
    with pytest.raises(RuleError, match=r"must be a polynomial, or the network's own: got 'ownn'; use one of aespa"):
        train.train(wrong, DATA)


def test_another_run_in_the_folder_is_refused_before_anything_is_prepared(tmp_path, monkeypatch):
    trained = train.train(config(tmp_path, epochs=1), DATA)
    monkeypatch.setattr(train.stages, "begin", lambda *_: pytest.fail("it prepares"))
    with pytest.raises(RuleError, match=r"got recipe.epochs=2 after 1 for .*; give the earlier ones, another out="):
        train.train(config(tmp_path, epochs=2), DATA)
    monkeypatch.undo()
    assert train.train(config(tmp_path, epochs=1), DATA).top1 == trained.top1


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


def test_a_measurement_has_a_folder_of_its_own():
    assert composed("train", TrainConfig, ["root=here"]).out == "here/train"
    assert composed("train", TrainConfig, ["root=here", "evaluate=here/train"]).out == "here/evaluate"
    assert composed("train", TrainConfig, ["evaluate=x", "out=mine"]).out == "mine"


def test_images_of_another_data_set_are_answered_with_that_of_the_checkpoint(tmp_path):
    """A checkpoint is measured by its file or its directory."""
    train.write(train.train(config(tmp_path, epochs=0), DATA), 0.0)
    given = TrainConfig(out=str(tmp_path / "other"), device="cpu", evaluate=str(tmp_path))
    assert train.evaluate(given, DATA)["checkpoint"] == str(tmp_path / "checkpoint.safetensors")
    larger = dataclasses.replace(DATA, train_images=DATA.train_images.repeat(1, 1, 4, 4))
    message = r"those that it was trained on: got \(1, 32, 32\) in 10 classes for \(1, 8, 8\) in 10; give data=digits"
    with pytest.raises(RuleError, match=message):
        train.evaluate(given, larger)


@pytest.mark.parametrize(
    ("setting", "message"), [("init", "got recipe.init=n.safetensors"), ("teacher", "got recipe.teacher=")]
)
def test_a_network_to_learn_from_that_is_not_there_is_named_before_long_work(setting, message, tmp_path, monkeypatch):
    path = train.write(train.train(config(tmp_path / "dense", epochs=0), DATA), 0.0)
    monkeypatch.setattr(train.stages, "begin", lambda *_: pytest.fail("it prepares"))
    recipe = {"stage": "finetune", "init": str(path), "epochs": 1, "teacher": str(path), "distillation": 0.5}
    recipe |= {"uniform": 2, setting: "n.safetensors"}
    with pytest.raises(RuleError, match=f"must exist: {message}"):
        train.train(TrainConfig(out=str(tmp_path), device="cpu", recipe=RecipeConfig(**recipe)), DATA)


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ("+recipe.epoch=1", r"got \+recipe.epoch; did you mean recipe.epochs="),
        ("+model.argument.activation=aespa", r"got \+model.argument; did you mean model.arguments="),
        ("+foo=1", r"got \+foo; --help lists"),
    ],
)
def test_settings_that_a_plus_adds_must_be_known(added, message):
    with pytest.raises(RuleError, match=message):
        composed("train", TrainConfig, [added])
    assert composed("train", TrainConfig, ["+model.arguments.any=1"]).model.arguments["any"] == 1


def test_a_smaller_copy_does_not_replace_the_network(tmp_path):
    path = train.write(train.train(config(tmp_path, epochs=0), DATA), 0.0)
    before = path.read_bytes()
    smaller = TrainConfig(out=str(tmp_path), device="cpu", evaluate=str(path), compact="float16")
    with pytest.raises(RuleError, match="a smaller copy must not replace the network: got"):
        train.evaluate(smaller, DATA)
    assert path.read_bytes() == before


def test_a_run_that_starts_over_forgets_the_interrupted_one_at_once(tmp_path, monkeypatch):
    train.train(config(tmp_path, epochs=1), DATA)
    assert (tmp_path / checkpoint.NAME).exists()

    def killed(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "fit", killed)
    with pytest.raises(KeyboardInterrupt):
        train.train(dataclasses.replace(config(tmp_path, epochs=1), resume=False), DATA)
    assert not (tmp_path / checkpoint.NAME).exists()


def test_a_run_resumed_at_its_end_says_what_it_took(tmp_path):
    settings = config(tmp_path, epochs=1, amp="true")
    first, again = train.train(settings, DATA), train.train(settings, DATA)
    assert first.mixed
    assert again.mixed
    assert (first.seconds_before, again.seconds_before) == (0.0, first.history[0]["seconds"])
    assert train.summary(again, 1.0, tmp_path)["seconds"] == 1.0 + first.history[0]["seconds"]


def test_images_that_a_network_cannot_take_are_refused_at_once(tmp_path):
    settings = TrainConfig(out=str(tmp_path), device="cpu", model=ModelConfig(name="vit_tiny_patch16_224"))
    with pytest.raises(
        RuleError,
        match=r"a network must take the images: got vit_tiny.* for digits, \(1, 8, 8\) of float32: .*224.*; give another model=",
    ):
        train.train(settings, DATA)


@pytest.mark.slow
@pytest.mark.parametrize("original", ["", "dense"])
def test_the_network_before_is_imitated_or_the_one_that_is_named(original, tmp_path, monkeypatch):
    trained = {name: train.train(config(tmp_path / name, epochs=n), DATA) for n, name in ((1, "before"), (2, "dense"))}
    paths = {name: str(train.write(found, 1.0)) for name, found in trained.items()}
    begun, imitated = {"stage": "replace", "init": paths["before"], "imitate": "conv1"}, []
    monkeypatch.setattr(train, "fit", lambda *given: imitated.append(given[-1]) or [])
    train.train(config(tmp_path / "replace", **begun, original=paths.get(original, ""), epochs=1), DATA)
    weights = {name: found.network.model.stem.weight for name, found in trained.items()}
    assert not torch.equal(weights["before"], weights["dense"])
    assert torch.equal(imitated[0].stem.weight, weights[original or "before"])


def with_relu(out, **recipe) -> TrainConfig:
    return dataclasses.replace(
        config(out, **recipe), model=ModelConfig(name="resnet20_cifar", arguments={"image_size": 8, "width": 4})
    )


def test_what_the_chain_will_stop_at_is_said_before_training(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(train, "fit", lambda *_: said.append("training") or [])
    train.train(config(tmp_path / "square", epochs=1), DATA, tell=said.append)
    train.train(with_relu(tmp_path / "relu", epochs=1), DATA, tell=said.append)
    first, line, last = said
    assert first == last == "training"
    assert re.fullmatch(
        r"two-party computation will run .*\(ReLU\).* as they are; polynomials are faster: train\.py recipe=replace .*",
        line,
    )
