"""Training of a network of a user's own, on tensors and loaders."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close
from torch.utils.data import DataLoader, TensorDataset
from torchvision.ops.misc import FrozenBatchNorm2d

import privcirnet as pc
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.fuse import fuse_at
from tests.api.samples import convolutional, images_and_labels
from tests.nn.networks import assert_unchanged, snapshot

IMAGES, LABELS = images_and_labels()
PAIR = IMAGES, LABELS
HELD_OUT = images_and_labels(40, seed=1)


def loader(batch: int = 16) -> DataLoader:
    return DataLoader(TensorDataset(*PAIR), batch, shuffle=True, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("given", [lambda: PAIR, loader], ids=["tensors", "loader"])
def test_a_network_learns(given):
    model = convolutional()
    history = pc.fit(model, given(), epochs=8, batch_size=16, learning_rate=0.01, validation=HELD_OUT, progress=False)
    assert [entry["epoch"] for entry in history] == list(range(1, 9))
    assert history[-1]["loss"] < 0.8 * history[0]["loss"]
    assert history[-1]["top1"] >= 85
    assert not model.training
    with torch.no_grad():
        right = (model(HELD_OUT[0]).argmax(1) == HELD_OUT[1]).float().mean().item()
    assert history[-1]["top1"] == pytest.approx(100 * right)


def test_labels_may_be_whole_numbers_of_any_type():
    given = LABELS, LABELS.int(), 1.0 * LABELS
    losses = [pc.fit(convolutional(), (IMAGES, y), epochs=1, progress=False)[0]["loss"] for y in given]
    assert len({*losses}) == 1
    for labels in (LABELS.to(torch.int16), LABELS.half()):
        pc.fit(convolutional(), DataLoader(TensorDataset(IMAGES, labels), 16), epochs=1, progress=False)


class Headed(nn.Module):
    """With a norm of vectors, which cannot train on one."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        self.sizes: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.sizes.append(len(x))
        return self.layers(x)


@pytest.mark.parametrize("given", [PAIR, DataLoader(TensorDataset(*PAIR), 19)], ids=["tensors", "loader"])
def test_a_single_image_at_the_end_joins_the_batch_before(given):
    model = Headed()
    pc.fit(model, given, epochs=1, batch_size=19, progress=False)
    assert model.sizes == [19, 19, 19, 19, 20]


def test_batches_of_a_loader_are_taken_as_they_come():
    model, sizes = convolutional(), []

    def see(module: nn.Module, inputs: tuple[torch.Tensor]) -> None:
        if module.training:
            sizes.append(len(inputs[0]))

    model.register_forward_pre_hook(see)
    pc.fit(model, loader(40), epochs=2, progress=False)
    assert sizes == [40, 40, 16] * 2


def test_it_is_the_seeds_and_needs_no_validation():
    def trained(seed: int) -> nn.Module:
        model = convolutional()
        assert "top1" not in pc.fit(model, PAIR, epochs=1, seed=seed, progress=False)[0]
        return model

    first, again, other = (trained(seed)[0].weight for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_teacher_in_any_mode_teaches_and_stays_as_it_was():
    teacher = convolutional(5).train()
    before = snapshot(teacher)
    alone, taught = convolutional(), convolutional()
    pc.fit(alone, PAIR, epochs=3, progress=False)
    pc.fit(taught, PAIR, epochs=3, teacher=teacher, distillation=1.0, progress=False)
    assert_unchanged(teacher, before)
    with torch.no_grad():
        target = copy.deepcopy(teacher).eval()(IMAGES).softmax(1)
        distances = [(model(IMAGES).softmax(1) - target).abs().mean() for model in (alone, taught)]
    assert distances[1] < distances[0]


def test_a_teachers_batch_norms_are_folded(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "privcirnet.train.loop.fit", lambda model, data, recipe, seed, teacher, **_: asked.append(teacher)
    )
    pc.fit(convolutional(), PAIR, teacher=convolutional(5), progress=False)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in asked[0].modules())


def test_a_quantized_network_learns_too():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), pc.Square(), nn.Flatten(), nn.Linear(144, 2))
    quantized = pc.quantize(pc.fuse(model), IMAGES)
    before = quantized.get_submodule("0").parametrizations["weight"].original.clone()
    history = pc.fit(quantized, PAIR, epochs=3, learning_rate=3e-3, progress=False)
    assert history[-1]["loss"] < history[0]["loss"]
    assert not torch.equal(before, quantized.get_submodule("0").parametrizations["weight"].original)


@pytest.mark.parametrize(
    ("images", "settings", "message"),
    [
        ((IMAGES, LABELS + 1), {}, r"labels must be in \[0, 1\], as the network has logits: got 1 to 2"),
        ((IMAGES, LABELS - 1), {}, r"labels must be in \[0, 1\], as the network has logits: got -1 to 0"),
        ((IMAGES, LABELS[:3]), {}, r"each image must have one label: got labels \(3,\) for 96 images"),
        ((IMAGES, LABELS + 0.5), {}, r"labels must be numbers of classes: got \d\.5"),
        ((IMAGES[:0], LABELS[:0]), {}, "there must be images: got none"),
        (
            (IMAGES[0], LABELS),
            {},
            r"a network must take the images: got \(8, 8\) of float32: .*; give images\[None\] for one image",
        ),
        (IMAGES, {}, r"images must be tensors \(images, labels\) or a loader: got Tensor"),
        (iter([PAIR]), {}, "or a loader: got list_iterator"),
        (DataLoader(IMAGES, 8), {}, "a loader must give batches of images and labels: got Tensor"),
        ((IMAGES[:, :2], LABELS), {}, r"a network must take the images: got \(2, 8, 8\) of float32: Given groups=1,"),
        (PAIR, {"epoch": 3}, r"a setting of fit must be a known one: got epoch; did you mean epochs=\?"),
        (PAIR, {"config": pc.FitConfig(epochs=-1)}, "^epochs must be at least 0: got -1"),
        (PAIR, {"config": {"epochs": 1}}, "a config of fit must be a FitConfig: got dict"),
        (PAIR, {"stage": "qat"}, "a setting of fit must be a known one: got stage"),
        (PAIR, {"rand_augment": 2}, "a setting of fit must be a known one: got rand_augment"),
        (PAIR, {"distillation": 0.5}, "distillation needs a teacher: got none"),
        (PAIR, {"teacher": nn.Sequential(nn.Flatten(), nn.Linear(192, 3))}, "have the network's classes: got 3 for 2"),
        (PAIR, {"teacher": nn.Linear(4, 2)}, "a network must take the images: got"),
        (PAIR, {"epochs": "3"}, "a setting of fit must have its type: got epochs='3'"),
        (PAIR, {"epochs": 1.5}, "must have its type: got epochs=1.5"),
        (PAIR, {"learning_rate": True}, "must have its type: got learning_rate=True"),
        (PAIR, {"flip": 1}, "must have its type: got flip=1"),
        (PAIR, {"learning_rate": 0}, "^learning_rate must be above 0: got 0; use 0.002"),
        (PAIR, {"learning_rate": 1e30}, "^the training loss must stay finite: got"),
        (DataLoader(TensorDataset(IMAGES, LABELS + 1), 8), {}, r"labels must be in \[0, 1\]"),
    ],
)
def test_what_cannot_be_trained_on_leaves_the_network_as_it_was(images, settings, message):
    model = convolutional()
    before = snapshot(model)
    with pytest.raises(pc.RuleError, match=message):
        pc.fit(model, images, progress=False, **settings)
    assert_unchanged(model, before)


def spoiled(values: torch.Tensor, place: int, value: float = torch.nan) -> torch.Tensor:
    values = values.float().clone()
    values[place].view(-1)[-1:] = value
    return values


SOFT = nn.functional.one_hot(LABELS, 2).float()
BROKEN = {
    "an image": (lambda: (spoiled(IMAGES, 5), LABELS), None, "images .*: got NaN or infinity in number 5 of 96"),
    "the first image": (lambda: (spoiled(IMAGES, 0, torch.inf), LABELS), None, "images must be finite"),
    "a soft label": (
        lambda: (IMAGES, spoiled(SOFT, 7)),
        None,
        "labels must be finite: got NaN or infinity in number 7",
    ),
    "the last batch": (
        lambda: DataLoader(TensorDataset(spoiled(IMAGES, 95), LABELS), 32),
        None,
        "images must be finite: got NaN or infinity in number 31 of 32",
    ),
    "validation": (lambda: PAIR, lambda: (spoiled(HELD_OUT[0], 3), HELD_OUT[1]), "validation images must be finite"),
    "a batch of the validation": (
        lambda: PAIR,
        lambda: DataLoader(TensorDataset(spoiled(HELD_OUT[0], 39, torch.inf), HELD_OUT[1]), 16),
        "validation images must be finite: got NaN or infinity in number 7 of 8",
    ),
    "an image far too large": (lambda: (spoiled(IMAGES, 5, 1e38), LABELS), None, "the training loss must stay finite"),
}


@pytest.mark.parametrize("which", BROKEN)
def test_a_number_that_is_not_finite_leaves_the_network_as_it_was(which):
    """With its statistics, gradients and modes: a later training is that of a network that saw nothing."""
    images, validation, message = BROKEN[which]
    model, other = squares(), squares()
    for network in (model, other):
        network[1].eval()
        network(IMAGES[:2]).sum().backward()
    before, gradient = snapshot(model), model[0].weight.grad.clone()
    with pytest.raises(pc.RuleError, match=f"^{message}"):
        pc.fit(model, images(), validation=validation and validation(), epochs=2, batch_size=32, progress=False)
    assert_unchanged(model, before)
    assert torch.equal(model[0].weight.grad, gradient)
    for network in (model, other):
        pc.fit(network, PAIR, epochs=1, progress=False)
    assert torch.equal(model(IMAGES), other(IMAGES))
    assert model(IMAGES).isfinite().all()


def squares() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), Aespa2d(8), nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), Aespa2d(8)),
        *(nn.Flatten(), nn.Linear(8 * 16, 2)),
    )


def test_a_failed_training_leaves_no_hooks():
    model = squares()
    with pytest.raises(pc.RuleError, match="training loss must stay finite"):
        pc.fit(model, PAIR, outlier_penalty=0.1, learning_rate=1e30, progress=False)
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_a_network_whose_statistics_are_not_finite_is_not_trained():
    model = squares()
    model[1].running_mean[3] = torch.nan
    with pytest.raises(pc.RuleError, match=r"weights must be finite: got NaN or infinity in 1.running_mean"):
        pc.fit(model, PAIR, progress=False)


def test_a_training_that_is_interrupted_keeps_what_it_has_learned():
    model = squares()
    before = model[0].weight.clone()

    class Interrupted(TensorDataset):
        def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
            if index == 95:
                raise KeyboardInterrupt
            return super().__getitem__(index)

    with pytest.raises(KeyboardInterrupt):
        pc.fit(model, DataLoader(Interrupted(*PAIR), 16), epochs=1, progress=False)
    assert not torch.equal(model[0].weight, before)


def test_numbers_of_numpy_and_a_boolean_amp_are_settings():
    settings = {"epochs": np.int64(1), "learning_rate": np.float32(1e-3), "amp": True}
    assert len(pc.fit(convolutional(), PAIR, progress=False, **settings)) == 1


def test_one_logit_is_no_class_to_choose():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(144, 1))
    with pytest.raises(pc.RuleError, match="a network must have two logits or more: got 1"):
        pc.fit(model, (IMAGES, torch.zeros_like(LABELS)), progress=False)


def test_images_of_another_size_than_was_traced():
    model = convolutional()
    pc.polynomial_(model, IMAGES)
    with pytest.raises(pc.RuleError, match=r"size it was traced at: got \(3, 8, 4\) for \(3, 8, 8\)"):
        pc.fit(model, (IMAGES[..., :4], LABELS), progress=False)


def frozen_stem() -> nn.Module:
    """A convolution and its norm, both frozen as for fine-tuning a head, then another norm and a head."""
    torch.manual_seed(0)
    stem = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)).requires_grad_(False)
    model = nn.Sequential(*stem, nn.ReLU(), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(2))
    model(IMAGES[:2])
    nn.init.uniform_(model[1].running_mean)
    model[1].eval()
    return model


@pytest.mark.parametrize("settings", [{}, {"ema": 0.9}, {"epochs": 40}], ids=["stale", "averaged", "settled"])
def test_frozen_norms_keep_their_statistics(settings):
    model = frozen_stem()
    before = copy.deepcopy(model.state_dict())
    pc.fit(model, (10 * IMAGES, LABELS), **{"epochs": 1, "batch_size": 48, "progress": False, **settings})
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert {name.split(".")[0] for name in changed} == {"3", "4", "6"}
    assert "4.running_mean" in changed


def test_frozen_norms_of_torchvision_fold_and_stay_frozen():
    norm = FrozenBatchNorm2d(8)
    for value in norm.buffers():
        nn.init.uniform_(value, 0.5, 1.5)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), norm, nn.Flatten(), nn.LazyLinear(2)).train()
    model(IMAGES[:2])
    expected = copy.deepcopy(model).eval()(IMAGES)
    for fused in (pc.fuse(model), fuse_at(model, IMAGES)):
        assert not [name for name, _ in fused.named_modules() if name == "1"], "the norm is gone"
        assert_close(fused(IMAGES), expected)
    pc.polynomial_(model, IMAGES)
    before = copy.deepcopy(model.get_submodule("1").state_dict())
    assert model.training
    pc.fit(model, PAIR, epochs=1, progress=False)
    assert_close(model.get_submodule("1").state_dict(), before, rtol=0, atol=0)
    assert_close(before["running_var"], norm.running_var)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_bias_that_fuse_makes_is_frozen_where_its_layer_is(frozen):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.LazyLinear(2)).eval()
    model(IMAGES[:2])
    model[0].requires_grad_(not frozen)
    assert pc.fuse(model).get_submodule("0").bias.requires_grad is not frozen
    quantized = pc.quantize(model, IMAGES)
    before = {name: value.clone() for name, value in quantized.named_parameters() if not value.requires_grad}
    assert ("0.bias" in {name.replace("parametrizations.bias.original", "bias") for name in before}) is frozen
    pc.fit(quantized, PAIR, epochs=1, progress=False)
    for name, value in before.items():
        assert torch.equal(quantized.get_parameter(name), value), name


def test_a_network_without_parameters_to_train_is_refused():
    with pytest.raises(pc.RuleError, match="must have parameters to train: got none that takes a gradient"):
        pc.fit(convolutional().requires_grad_(False), PAIR, epochs=1, progress=False)
