"""Statistics of norms, measured again with the weights that are kept."""

import dataclasses
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from privcirnet.data import ImageData
from privcirnet.data.own import OwnImages
from privcirnet.nn.activations import Aespa2d
from privcirnet.training import loop, recalibration
from privcirnet.training.loop import fit
from privcirnet.training.recalibration import recalibrate_, recalibrate_by_layer_, settle_
from tests.training.runs import RECIPE, bars

DATA = ImageData(*bars(96, 1), *bars(32, 2), log_step=-4, levels=15, classes=("column", "row"))


def network() -> nn.Module:
    channels = DATA.shape[0]
    norm, square = nn.BatchNorm2d(channels), Aespa2d(channels)
    return nn.Sequential(norm, square, nn.Dropout(0.5), nn.Flatten(), nn.LazyLinear(2))


def test_statistics_are_means_over_batches_of_the_network_as_it_is():
    model = network()
    model(DATA.real(DATA.test_images))
    norm, square, dropout = model[0], model[1], model[2]
    norm.running_mean.fill_(7.0)
    square.running_var.fill_(7.0)
    parts = [images for images, _ in DATA.sampled(96, 32)]
    recalibrate_(model, DATA, 32)
    mean = torch.stack([images.mean((0, 2, 3)) for images in parts]).mean(0)
    torch.testing.assert_close(norm.running_mean, mean)
    normalized = [nn.functional.batch_norm(images, None, None, training=True) for images in parts]
    variance = torch.stack([part.var((0, 2, 3), correction=0) for part in normalized]).mean(0)
    torch.testing.assert_close(square.running_var, variance, rtol=1e-3, atol=0)
    assert (norm.momentum, square.momentum) == (0.1, 0.1)
    assert not any(module.training for module in (model, norm, square, dropout))


def test_a_network_without_norms_stays():
    model = nn.Sequential(nn.Flatten(), nn.Linear(DATA.real(DATA.test_images)[0].numel(), 2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    recalibrate_(model, DATA, 32)
    assert all((value == before[name]).all() for name, value in model.state_dict().items())


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_an_average_is_recalibrated_before_it_is_measured(ema, monkeypatch):
    seen = []
    monkeypatch.setattr(loop, "recalibrate_", lambda model, *_, **__: seen.append(model))
    model = nn.Sequential(nn.BatchNorm2d(DATA.shape[0]), nn.Flatten(), nn.LazyLinear(2))
    model(DATA.real(DATA.test_images))
    fit(model, DATA, dataclasses.replace(RECIPE, epochs=2, ema=ema), seed=0)
    assert len(seen) == (2 if ema else 0)
    assert model not in seen


@pytest.mark.parametrize("size", [5, 19, 36])
def test_every_image_counts_alike_and_none_is_alone(size):
    model = network()[:1]
    recalibrate_(model, DATA, size)
    torch.testing.assert_close(model[0].running_mean, DATA.real(DATA.train_images).mean((0, 2, 3)))


def deep() -> nn.Module:
    """Vectors through many squares: each amplifies the difference between a batch's variance and torch's by 32 / 31."""
    torch.manual_seed(0)
    layers = [(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), Aespa2d(8)) for _ in range(24)]
    return nn.Sequential(*(layer for group in layers for layer in group), nn.Flatten(), nn.Linear(8, 2))


VECTORS, CLASSES = torch.randn(32, 8, 1, 1, generator=torch.Generator().manual_seed(1)), torch.arange(32) % 2
OWN = OwnImages((VECTORS, CLASSES), None, lambda image: torch.zeros(1, 2))


@torch.no_grad()
def largest(model: nn.Module, images: torch.Tensor = VECTORS) -> float:
    return model.eval()(images).abs().max().item()


def test_images_are_evaluated_as_they_were_measured():
    """In every layer, however deep: of what it normalizes, the mean is 0 and the variance 31 / 32."""
    model, seen = deep(), []
    recalibrate_(model, OWN)
    assert not largest(model) < 100
    model[1].running_mean[0] = torch.nan
    recalibrate_by_layer_(model, VECTORS)
    assert not any(module.training or module._forward_hooks for module in model.modules())
    norms = [module for module in model if isinstance(module, (nn.BatchNorm2d, Aespa2d))]
    assert {norm.momentum for norm in norms} == {0.1}
    for norm in norms[::2]:
        norm.register_forward_hook(lambda norm, _, y: seen.append((y - norm.bias[:, None, None], norm)))
    assert largest(model) < 100
    for y, norm in seen:
        torch.testing.assert_close(y.mean((0, 2, 3)), torch.zeros(8), atol=1e-5, rtol=0)
        expected = 31 / 32 * norm.running_var / (norm.running_var + norm.eps)
        torch.testing.assert_close(y.var((0, 2, 3), correction=0), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize(("steps", "momentum", "stale"), [(2, 0.1, True), (43, 0.1, True), (44, 0.1, False)])
def test_statistics_of_few_steps_are_measured_anew(steps, momentum, stale):
    model = network()
    model(DATA.real(DATA.test_images))
    model[0].momentum = model[1].momentum = momentum
    model.eval()
    before = model[0].running_mean.clone()
    settle_(model, DATA, 16, steps)
    mean = DATA.real(DATA.sample(64)[0]).mean((0, 2, 3))
    torch.testing.assert_close(model[0].running_mean, mean if stale else before)


def test_statistics_of_which_a_mean_is_made_are_never_stale():
    model = network()
    model(DATA.real(DATA.test_images))
    model[0].momentum, model[1].momentum = None, 0.9
    before = model.eval()[0].running_mean.clone()
    settle_(model, DATA, 16, 2)
    assert torch.equal(model[0].running_mean, before)


@pytest.mark.parametrize(("mean", "kept"), [(0.0, True), (-5.0, False)])
def test_statistics_with_which_images_explode_stay_only_if_fewer_are_right_with_others(mean, kept, monkeypatch):
    """One image of four explodes and three are right; then four, or two."""
    monkeypatch.setattr(
        recalibration, "recalibrate_by_layer_", lambda m, _: m[0].load_state_dict(statistics(mean, 1.0))
    )
    model = nn.Sequential(nn.BatchNorm2d(1, eps=0, affine=False), nn.Flatten(), nn.Linear(1, 2)).eval()
    with torch.no_grad():
        model[0].load_state_dict(before := statistics(0.0, 1e-38))
        model[2].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[2].bias.zero_()
    images, labels = torch.tensor([-1.0, 1.0, -1.0, 1e20]).reshape(4, 1, 1, 1), torch.tensor([0, 1, 0, 1])
    data = OwnImages((images, labels), None, lambda image: torch.zeros(1, 2))
    with nullcontext() if kept else pytest.warns(UserWarning, match="infinity for 1 of 4 training images, from 0 on"):
        settle_(model, data, 4, 1000)
    expected = statistics(mean, 1.0) if kept else before
    assert all(torch.equal(value, expected[name]) for name, value in model[0].state_dict().items())


def statistics(mean: float, var: float) -> dict[str, torch.Tensor]:
    return {
        "running_mean": torch.tensor([mean]),
        "running_var": torch.tensor([var]),
        "num_batches_tracked": torch.tensor(1),
    }


def test_what_still_explodes_is_said():
    model = nn.Sequential(nn.Flatten(), nn.Linear(8, 2), nn.Linear(2, 2)).eval()
    with torch.no_grad():
        model[1].weight.fill_(1e30)
        model[2].weight.fill_(1e30)
    with pytest.warns(
        UserWarning, match=r"finite logits: got NaN or infinity for 32 of 32 training images, from 2 on; t"
    ):
        settle_(model, OWN, 32, 1000)


@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_a_network_can_be_evaluated_after_two_steps(ema):
    model = deep()
    with torch.no_grad():
        for module in model:
            if isinstance(module, nn.Conv2d):
                module.weight.mul_(4)
    history = fit(model, OWN, dataclasses.replace(RECIPE, epochs=2, batch_size=32, learning_rate=1e-3, ema=ema), 0)
    assert history[-1]["loss"] < 100
    assert largest(model) < 100
