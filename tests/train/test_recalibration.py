"""Statistics of norms, measured again with the weights that are kept."""

import dataclasses

import pytest
import torch
from torch import nn

from privcirnet.data import ImageData
from privcirnet.nn.activations import Aespa2d
from privcirnet.train import loop
from privcirnet.train.loop import fit
from privcirnet.train.recalibration import recalibrate_
from tests.train.runs import RECIPE, bars

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
