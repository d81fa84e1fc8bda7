"""Padded circulant layers as modules: their shape, what is stored of them, and networks that have some."""

import copy

import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models import lola_mnist
from privcirnet.nn.activations import Aespa2d, Square
from privcirnet.nn.circulant import block_size_of, reset_circulant_
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.passes.convert import circulant_, dense_state_dict, paddable, uniform_sizes
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize


def lola() -> nn.Module:
    torch.manual_seed(0)
    return lola_mnist()


def test_falcon_s_layer_keeps_its_shape_and_stores_an_eighth():
    model = circulant_(lola(), {"fc1": 8}, pad=True)
    layer = model.get_submodule("fc1")
    assert (layer.weight.shape, layer.parametrizations.weight.original.shape) == ((100, 845), (13, 848))
    assert is_circulant(layer.weight, 8, pad=True)
    assert block_size_of(layer) == 8
    images = torch.rand(2, 1, 28, 28)
    plain = lola()
    plain.load_state_dict(dense_state_dict(model))
    assert torch.equal(plain(images), model(images))


def test_state_dicts_load_and_training_keeps_the_structure():
    model = circulant_(lola(), {"fc1": 8, "fc2": 4}, pad=True)
    again = circulant_(lola(), {"fc1": 8, "fc2": 4}, pad=True)
    again.load_state_dict(model.state_dict())
    optimizer, images = torch.optim.AdamW(again.parameters(), 1e-2), torch.rand(4, 1, 28, 28)
    before = again(images)
    for _ in range(3):
        optimizer.zero_grad()
        again(images).square().mean().backward()
        optimizer.step()
    assert not torch.equal(again(images), before)
    assert is_circulant(again.get_submodule("fc1").weight, 8, pad=True)
    reset_circulant_(again.get_submodule("fc1"))
    assert is_circulant(again.get_submodule("fc1").weight, 8, pad=True)
    assert again.get_submodule("fc1").weight.std() > 0.5 * lola().get_submodule("fc1").weight.std()


def test_quantized_weights_stay_circulant():
    model = circulant_(lola(), {"fc1": 8, "fc2": 4}, pad=True)
    quantized = quantize(fuse(model), torch.rand(4, 1, 28, 28), -4)
    assert is_circulant(quantized.get_submodule("fc1").weight, 8, pad=True)


def test_a_pool_s_divisor_is_folded_into_a_padded_layer():
    model = nn.Sequential(nn.Conv2d(1, 3, 1), Square(), nn.AvgPool2d(3), nn.Flatten(), nn.Linear(3, 5)).double()
    circulant_(model, {"4": 2}, pad=True)
    images = torch.rand(2, 1, 3, 3, dtype=torch.float64)
    fused = fuse(model)
    assert not torch.equal(fused.get_submodule("4").weight, model.get_submodule("4").weight)
    torch.testing.assert_close(fused(images), model(images), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shared", [nn.BatchNorm2d(5), Aespa2d(5)])
def test_channels_that_a_norm_shares_are_not_padded_and_nothing_changes(shared):
    model = nn.Sequential(nn.Conv2d(4, 5, 1), shared, nn.Conv2d(5, 8, 1))
    before = copy.deepcopy(model.state_dict())
    with pytest.raises(RuleError, match="must be whole blocks: got 5 at '1' for block size 2"):
        circulant_(model, {"0": 2}, pad=True)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert paddable(model) == {"2"}
    assert uniform_sizes(model, 4, pad=True) == {"0": 1, "2": 4}
    assert uniform_sizes(model, 4) == {"0": 1, "2": 1}
