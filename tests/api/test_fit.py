"""Training of a network of a user's own, on tensors and loaders."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import privcirnet as pc
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


def test_labels_may_be_integers_of_any_size():
    losses = [pc.fit(convolutional(), (IMAGES, y), epochs=1, progress=False)[0]["loss"] for y in (LABELS, LABELS.int())]
    assert losses[0] == losses[1]
    pc.fit(convolutional(), DataLoader(TensorDataset(IMAGES, LABELS.to(torch.int16)), 16), epochs=1, progress=False)


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
        "privcirnet.training.loop.fit", lambda model, data, recipe, seed, teacher, **_: asked.append(teacher)
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
        ((IMAGES, LABELS + 1), {}, r"labels must be in \[0, 1\], as the network has logits: got 1 to 2; number the cl"),
        ((IMAGES, LABELS - 1), {}, r"labels must be in \[0, 1\], as the network has logits: got -1 to 0"),
        ((IMAGES, LABELS[:3]), {}, r"each image must have one label: got labels \(3,\) for 96 images"),
        ((IMAGES[:0], LABELS[:0]), {}, "there must be images: got none; give at least one batch"),
        ((IMAGES[0], LABELS), {}, r"images must be \(N, C, H, W\): got shape \(3, 8, 8\); reshape them"),
        (IMAGES, {}, r"images must be tensors \(images, labels\) or a loader: got Tensor; give two tensors, or a D"),
        (iter([PAIR]), {}, "or a loader: got list_iterator"),
        (DataLoader(IMAGES, 8), {}, "a loader must give batches of images and labels: got Tensor; let its data set"),
        (
            (IMAGES[:, :2], LABELS),
            {},
            r"a network must take the images: got \(2, 8, 8\): Given groups=1, .*; give imag",
        ),
        (PAIR, {"epoch": 3}, "a setting of fit must be a known one: got epoch; use some of epochs, batch_size"),
        (PAIR, {"stage": "qat"}, "a setting of fit must be a known one: got stage"),
        (PAIR, {"rand_augment": 2}, "a setting of fit must be a known one: got rand_augment"),
        (PAIR, {"distillation": 0.5}, "distillation needs a teacher: got none"),
        (PAIR, {"epochs": "3"}, "a setting of fit must have its type: got epochs='3'; give an integer"),
        (PAIR, {"epochs": 1.5}, "must have its type: got epochs=1.5; give an integer"),
        (PAIR, {"learning_rate": True}, "must have its type: got learning_rate=True; give a number"),
        (PAIR, {"flip": 1}, "must have its type: got flip=1; give True or False"),
        (PAIR, {"learning_rate": 0}, "recipe.learning_rate must be positive: got 0"),
    ],
)
def test_what_cannot_be_trained_on_leaves_the_network_as_it_was(images, settings, message):
    model = convolutional()
    before = snapshot(model)
    with pytest.raises(pc.RuleError, match=message):
        pc.fit(model, images, progress=False, **settings)
    assert_unchanged(model, before)


def test_numbers_of_numpy_and_a_boolean_amp_are_settings():
    settings = {"epochs": np.int64(1), "learning_rate": np.float32(1e-3), "amp": True}
    assert len(pc.fit(convolutional(), PAIR, progress=False, **settings)) == 1


def test_labels_of_a_loader_are_checked_as_they_come():
    with pytest.raises(pc.RuleError, match=r"labels must be in \[0, 1\]"):
        pc.fit(convolutional(), DataLoader(TensorDataset(IMAGES, LABELS + 1), 8), progress=False)


def test_images_of_another_size_than_was_traced():
    model = convolutional()
    pc.polynomial_(model, IMAGES)
    with pytest.raises(
        pc.RuleError, match=r"size it was traced at: got \(3, 8, 4\) for \(3, 8, 8\); resize the images"
    ):
        pc.fit(model, (IMAGES[..., :4], LABELS), progress=False)
