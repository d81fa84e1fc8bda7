import copy
import dataclasses
import math

import pytest
import torch
from torch import Tensor, nn

from privcirnet.config import RecipeConfig
from privcirnet.data import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.convert import circulant_, fuse
from privcirnet.nn.quantize import quantize
from privcirnet.training import checkpoint
from privcirnet.training.loop import Progress, accuracy, fit, predict
from tests.nn.test_convert import assert_unchanged, snapshot

RECIPE = RecipeConfig(epochs=4, batch_size=16, learning_rate=0.02, label_smoothing=0.0, weight_decay=0.01)
SETTINGS = {"seed": 0, "recipe": dataclasses.asdict(RECIPE), "block_sizes": {"0": 2}}


def bars(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A bright row or a bright column in noise."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(2, (count,), generator=generator)
    images = torch.randint(6, (count, 1, 6, 6), generator=generator, dtype=torch.uint8)
    for image, label in zip(images, labels, strict=True):
        place = int(torch.randint(6, (), generator=generator))
        (image[0] if label else image[0].T)[place] = 15
    return images, labels


DATA = ImageData(*bars(100, 1), *bars(40, 2), log_step=-4, levels=15, classes=("column", "row"))


def small(seed: int = 0) -> nn.Module:
    """With everything that has state or chance in training: batch norm, dropout."""
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, (1, 6)), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(48, 2)]
    return nn.Sequential(*layers)


def quantized(seed: int = 0) -> nn.Module:
    """Rounds at random in training."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(128, 2))
    circulant_(model, {"3": 2})
    return quantize(fuse(model), [DATA.real(DATA.train_images)], DATA.log_step)


def test_learns_what_can_be_learned():
    model = small()
    before = accuracy(model, DATA, DATA.test_images, DATA.test_labels)
    history = fit(model, DATA, dataclasses.replace(RECIPE, epochs=8), seed=0)
    after = accuracy(model, DATA, DATA.test_images, DATA.test_labels)
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


class Interrupted(Exception):
    pass


EVERYTHING = dataclasses.replace(
    RECIPE,
    optimizer="sgd",
    warmup_epochs=1,
    clip_gradient=1.0,
    ema=0.9,
    crop_padding=1,
    flip=True,
    erase=0.25,
    rand_augment=2,
    mixup=0.8,
    cutmix=1.0,
    mix_epochs=3,
    amp=True,
    channels_last=True,
)


COMPILED = dataclasses.replace(RECIPE, compile=True, compile_backend="aot_eager")


@pytest.mark.parametrize(
    ("build", "recipe"), [(small, RECIPE), (quantized, RECIPE), (small, EVERYTHING), (small, COMPILED)]
)
@pytest.mark.parametrize("done", [1, 3])
def test_a_resumed_run_equals_the_uninterrupted_one_bit_for_bit(build, recipe, done, tmp_path):
    whole = build()
    expected = fit(whole, DATA, recipe, seed=3)

    def after_epoch(progress: Progress) -> None:
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
    assert history == expected
    assert whole.state_dict().keys() == resumed.state_dict().keys()
    for name, value in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], value), name


def saved(folder) -> Progress:
    found = []
    fit(small(), DATA, dataclasses.replace(RECIPE, epochs=1), 0, after_epoch=lambda p: found.append(copy.deepcopy(p)))
    checkpoint.save(folder, found[0], SETTINGS)
    return found[0]


def test_other_settings_are_not_resumed(tmp_path):
    progress = saved(tmp_path / "run")
    assert checkpoint.load(tmp_path / "run", SETTINGS).history == progress.history
    for change in ({"seed": 1}, {"block_sizes": {"0": 4}}, {"recipe": {**SETTINGS["recipe"], "epochs": 5}}):
        assert checkpoint.load(tmp_path / "run", {**SETTINGS, **change}) is None
    assert checkpoint.load(tmp_path / "nowhere", SETTINGS) is None


def test_a_complete_run_leaves_no_state(tmp_path):
    saved(tmp_path)
    checkpoint.remove(tmp_path)
    checkpoint.remove(tmp_path)
    assert checkpoint.load(tmp_path, SETTINGS) is None
    assert not list(tmp_path.iterdir())


def test_a_state_that_fails_to_be_written_leaves_the_old_one(tmp_path, monkeypatch):
    progress = saved(tmp_path)

    def failing(_: object, path: object) -> None:
        with open(path, "wb") as file:
            file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(torch, "save", failing)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.save(tmp_path, Progress(epoch=9), SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.NAME]
    assert checkpoint.load(tmp_path, SETTINGS).epoch == progress.epoch


def test_a_loss_that_is_not_finite():
    called = []
    recipe = dataclasses.replace(RECIPE, learning_rate=1e30)
    with pytest.raises(
        RuleError, match=r"the training loss must stay finite: got (nan|inf); lower recipe.learning_rate"
    ):
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
        {"crop_padding": 1},
        {"erase": 0.5},
        {"rand_augment": 1, "rand_magnitude": 5},
        {"mixup": 0.2, "mix_epochs": 6},
        {"amp": True},
        {"channels_last": True},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_option_learns(change):
    model = small()
    history = fit(model, DATA, dataclasses.replace(RECIPE, epochs=10, **change), seed=0)
    assert history[-1]["top1"] >= 90
    assert accuracy(model, DATA, DATA.test_images, DATA.test_labels) == history[-1]["top1"]


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
        assert torch.equal(logits, model.eval()(DATA.real(DATA.test_images)))


def test_accuracy_is_in_percent():
    always_zero = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    nn.init.zeros_(always_zero[1].weight)
    always_zero[1].bias.data = torch.tensor([1.0, 0.0])
    expected = 100 * (DATA.test_labels == 0).float().mean().item()
    assert accuracy(always_zero, DATA, DATA.test_images, DATA.test_labels) == pytest.approx(expected)
