import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.quantization_steps import learned_steps
from privcirnet.train import checkpoint, loop
from privcirnet.train.accuracy import accuracy, predict
from privcirnet.train.loop import fit
from privcirnet.train.optimization import rate
from privcirnet.train.record import EpochProgress, Step
from tests.nn.networks import assert_unchanged, snapshot
from tests.train.runs import (
    DATA,
    RECIPE,
    SETTINGS,
    Interrupted,
    learning,
    log_steps,
    quantized,
    small,
    without_times,
)


def test_learns_what_can_be_learned():
    model = small()
    before = accuracy(model, DATA)
    history = fit(model, DATA, dataclasses.replace(RECIPE, epochs=8), seed=0)
    after = accuracy(model, DATA)
    assert before < 75
    assert after >= 95
    assert after == history[-1]["top1"]
    assert [entry["epoch"] for entry in history] == list(range(1, 9))
    assert history[-1]["loss"] < 0.2 < history[0]["loss"]
    assert not any(module.training for module in model.modules())


def test_is_the_seeds():
    def run(seed: int) -> dict[str, Tensor]:
        model = small()
        fit(model, DATA, RECIPE, seed)
        return model.state_dict()

    first, again, other = run(0), run(0), run(1)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["0.weight"], other["0.weight"])


def test_a_teacher_teaches_and_stays_as_it_was():
    teacher = small(seed=5).eval()
    before = snapshot(teacher)
    recipe = dataclasses.replace(RECIPE, distillation=0.9)
    alone, taught = small(), small()
    fit(alone, DATA, RECIPE, 0)
    fit(taught, DATA, recipe, 0, teacher)
    assert_unchanged(teacher, before)
    assert not torch.equal(alone[0].weight, taught[0].weight)
    target = predict(teacher, DATA, DATA.train_images).softmax(1)
    distances = [(predict(m, DATA, DATA.train_images).softmax(1) - target).abs().mean() for m in (alone, taught)]
    assert distances[1] < distances[0] / 2


def test_every_step_is_reported():
    steps, told = [], small()
    history = fit(told, DATA, RECIPE, 0, after_step=steps.append)
    an_epoch = math.ceil(100 / 16)
    assert [step.number for step in steps] == list(range(1, 4 * an_epoch + 1))
    assert [step.epochs for step in steps[: an_epoch + 1]] == [0.16, 0.32, 0.48, 0.64, 0.8, 0.96, 1.0, 1.16]
    rates = [RECIPE.learning_rate * rate(n, len(steps), 0, 1e-5 / RECIPE.learning_rate) for n in range(len(steps) + 1)]
    assert [step.learning_rate for step in steps] == rates[:-1]
    for number, entry in enumerate(history, start=1):
        epoch = steps[(number - 1) * an_epoch : number * an_epoch]
        sizes = [16] * 6 + [4]
        assert entry["loss"] == epoch[-1].mean_loss
        assert entry["loss"] == pytest.approx(sum(s.loss * n for s, n in zip(epoch, sizes, strict=True)) / 100)
        assert entry["learning_rate"] == rates[number * an_epoch]
        assert min(entry["seconds"], entry["images_per_second"], *(s.images_per_second for s in epoch)) > 0
    silent = small()
    fit(silent, DATA, RECIPE, 0)
    assert torch.equal(silent[0].weight, told[0].weight)


AVERAGED = dataclasses.replace(RECIPE, ema=0.9, clip_gradient=1.0)

EVERYTHING = dataclasses.replace(
    RECIPE,
    optimizer="sgd",
    warmup_epochs=1,
    clip_gradient=1.0,
    ema=0.9,
    crop=1,
    flip=True,
    erase=0.25,
    rand_augment=2,
    mixup=0.8,
    cutmix=1.0,
    mix_epochs=3,
    amp=True,
    channels_last=True,
)

RESIZED = dataclasses.replace(RECIPE, crop=0.3, flip=True, rand_augment=2, rand_deviation=1.5)

COMPILED = dataclasses.replace(RECIPE, compile=True)


@pytest.fixture
def quick_steps(monkeypatch):
    """Learned steps that change within a few epochs."""
    monkeypatch.setattr("privcirnet.train.optimization.STEPS_LEARNING_RATE", 0.3)


@pytest.mark.parametrize(
    ("build", "recipe"),
    [
        (small, RECIPE),
        (quantized, RECIPE),
        (learning, RECIPE),
        (learning, AVERAGED),
        (small, EVERYTHING),
        (small, RESIZED),
        pytest.param(small, COMPILED, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("done", [1, 3])
@pytest.mark.usefixtures("quick_steps")
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(build, recipe, done, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "COMPILE_BACKEND", "aot_eager")  # no compiler
    whole = build()
    expected = fit(whole, DATA, recipe, seed=3)

    def after_epoch(progress: EpochProgress) -> None:
        checkpoint.save(tmp_path, progress, SETTINGS)
        if progress.epoch == done:
            raise Interrupted

    with pytest.raises(Interrupted):
        fit(build(), DATA, recipe, seed=3, after_epoch=after_epoch)
    torch.manual_seed(99)
    resumed = build(seed=77)
    start = checkpoint.load(tmp_path, SETTINGS)
    assert start.epoch == done
    history = fit(resumed, DATA, recipe, seed=3, start=start)
    assert without_times(history) == without_times(expected)
    assert whole.state_dict().keys() == resumed.state_dict().keys()
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


@pytest.mark.parametrize("recipe", [RECIPE, AVERAGED])
@pytest.mark.usefixtures("quick_steps")
def test_steps_are_learned_and_then_fixed(recipe):
    """What is left has the names of a calibrated network, so that its checkpoint is an ordinary one."""
    calibrated, model = quantized(), learning()
    assert learned_steps(model)
    history = fit(model, DATA, recipe, 0)
    assert learned_steps(model) == []
    assert list(model.state_dict()) == list(calibrated.state_dict())
    after, before = log_steps(model), log_steps(calibrated)
    assert after["input_1_quantizer"] == before["input_1_quantizer"] == DATA.log_step
    assert sum(after[name] != before[name] for name in after) >= 2
    assert accuracy(model, DATA) == history[-1]["top1"]


def test_a_run_whose_loss_breaks_goes_on_with_a_lower_learning_rate(tmp_path, monkeypatch):
    """In the second of four epochs; the state after the first is kept."""
    calls, loss = [], loop.training_loss

    def breaking(*arguments: object) -> Tensor:
        calls.append(1)
        return loss(*arguments) * (math.nan if len(calls) == 10 else 1)

    monkeypatch.setattr(loop, "training_loss", breaking)
    with pytest.raises(RuleError, match="stay finite: got nan"):
        fit(small(), DATA, RECIPE, 0, after_epoch=lambda p: checkpoint.save(tmp_path, p, SETTINGS))
    lower = dataclasses.replace(RECIPE, learning_rate=RECIPE.learning_rate / 8)
    start = checkpoint.load(tmp_path, {**SETTINGS, "recipe": dataclasses.asdict(lower)})
    assert (start.epoch, len(calls)) == (1, 10)
    steps: list[Step] = []
    history = fit(small(seed=5), DATA, lower, 0, start=start, after_step=steps.append)
    assert [entry["epoch"] for entry in history] == [1, 2, 3, 4]
    lowest = RECIPE.min_learning_rate / lower.learning_rate
    assert [s.learning_rate for s in steps] == [lower.learning_rate * rate(n, 28, 0, lowest) for n in range(7, 28)]
    assert all(math.isfinite(step.loss) for step in steps)


def test_a_loss_that_is_not_finite():
    called, recipe = [], dataclasses.replace(RECIPE, learning_rate=1e30)
    with pytest.raises(RuleError, match=r"the training loss must stay finite: got (nan|inf)"):
        fit(small(), DATA, recipe, 0, after_epoch=called.append)
    assert len(called) < RECIPE.epochs
    assert all(math.isfinite(entry["loss"]) for progress in called for entry in progress.history)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": "sgd", "learning_rate": 0.2},
        {"warmup_epochs": 2},
        {"clip_gradient": 0.1},
        {"ema": 0.9},
        {"crop": 2},
        {"crop": 0.6},
        {"erase": 0.5},
        {"rand_augment": 1, "rand_magnitude": 5, "rand_deviation": 2.0},
        {"mixup": 0.2, "mix_epochs": 6},
        {"amp": True},
        {"amp": "auto"},
        {"channels_last": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_option_learns(change):
    model = small()
    history = fit(model, DATA, dataclasses.replace(RECIPE, epochs=10, **change), seed=0)
    assert history[-1]["top1"] >= 90
    assert accuracy(model, DATA) == history[-1]["top1"]


@pytest.mark.parametrize("faster", [False, True])
def test_the_precision_is_measured_once_and_a_resumed_run_keeps_it(faster, monkeypatch):
    asked, steps = [], []
    monkeypatch.setattr(loop, "is_faster", lambda model, loss: asked.append(loss(model, faster).item()) or faster)
    recipe, states = dataclasses.replace(RECIPE, epochs=2, amp="auto"), []

    def after_epoch(progress: EpochProgress) -> None:
        states.append(copy.deepcopy(progress))

    fit(small(), DATA, recipe, 0, after_epoch=after_epoch, after_step=steps.append)
    fit(small(), DATA, recipe, 0, start=states[0], after_step=steps.append)
    assert len(asked) == 1
    assert {step.mixed for step in steps} == {faster}


def test_epochs_are_evaluated_as_they_are_trained_but_for_the_last(monkeypatch):
    seen = []
    monkeypatch.setattr(loop, "accuracy", lambda *_: seen.append(torch.is_autocast_enabled("cpu")) or 0.0)
    fit(small(), DATA, dataclasses.replace(RECIPE, epochs=3, amp="true"), 0)
    fit(small(), DATA, dataclasses.replace(RECIPE, epochs=2, amp="false"), 0)
    assert seen == [True, True, False, False, False]


def test_quantized_networks_stay_in_float32_by_default(monkeypatch):
    monkeypatch.setattr(loop, "is_faster", lambda model, loss: True)
    recipe, steps = dataclasses.replace(RECIPE, epochs=1, stage="qat", init="x", amp="auto"), []
    fit(quantized(), DATA, recipe, 0, after_step=steps.append)
    assert not any(step.mixed for step in steps)


def test_mixing_ends_after_its_epochs():
    mixed, unmixed, short = small(), small(), small()
    for model, epochs in ((mixed, 4), (unmixed, 0), (short, 1)):
        fit(model, DATA, dataclasses.replace(RECIPE, mixup=1.0, mix_epochs=epochs), 0)
    plain = small()
    fit(plain, DATA, RECIPE, 0)
    assert torch.equal(unmixed[0].weight, plain[0].weight)
    assert not torch.equal(mixed[0].weight, plain[0].weight)
    assert not torch.equal(mixed[0].weight, short[0].weight)


def test_no_epochs_change_nothing():
    model = small().eval()
    before = snapshot(model)
    assert fit(model, DATA, dataclasses.replace(RECIPE, epochs=0), 0) == []
    assert_unchanged(model, before)


def test_predicting_evaluates_and_restores_each_modules_mode():
    model = small().train()
    model[1].eval()
    before = snapshot(model)
    logits = predict(model, DATA, DATA.test_images)
    assert_unchanged(model, before)
    assert logits.shape == (40, 2)
    assert not logits.requires_grad
    with torch.no_grad():
        torch.testing.assert_close(logits, model.eval()(DATA.real(DATA.test_images)))  # another layout of memory


def test_accuracy_is_in_percent():
    always_zero = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    nn.init.zeros_(always_zero[1].weight)
    always_zero[1].bias.data = torch.tensor([1.0, 0.0])
    expected = 100 * (DATA.test_labels == 0).float().mean().item()
    assert accuracy(always_zero, DATA) == pytest.approx(expected)


def test_accuracy_that_falls_to_chance_while_the_loss_falls_is_said_once(monkeypatch):
    found = iter([60.0, 90.0, 50.0, 50.0])
    monkeypatch.setattr(loop, "accuracy", lambda *_: next(found))
    with pytest.warns(UserWarning, match=r"accuracy fell to chance .*; lower recipe.learning_rate or set") as said:
        fit(small(), DATA, RECIPE, 0)
    assert len(said) == 1
