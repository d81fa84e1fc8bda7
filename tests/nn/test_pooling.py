"""Averages over windows of any area: the layers behind take what a power of two leaves."""

import pytest
import torch
from torch import nn

from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.neighbours import layers_behind
from privcirnet.nn.windows import divisor_of, power_beside
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize


def network(pool: nn.Module, *behind: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 4, 1), pool, *behind).double()


@pytest.mark.parametrize(
    ("pool", "divisor"),
    [
        *((nn.AvgPool2d(7), 64), (nn.AvgPool2d((3, 7)), 16), (nn.AvgPool2d(3), 8)),
        *((nn.AvgPool2d(2, divisor_override=3), 4), (nn.AvgPool2d(2), 4)),
    ],
)
def test_layers_behind_take_the_rest(pool, divisor):
    model = network(pool, nn.Flatten(), nn.Identity(), nn.LazyLinear(3))
    images = torch.rand(2, 1, 7, 7, dtype=torch.float64)
    expected = model(images)
    fused = fuse(model)
    torch.testing.assert_close(fused(images), expected, rtol=1e-12, atol=1e-12)
    assert divisor_of(fused.get_submodule("1")) == divisor
    assert pool.divisor_override in (None, 3), "the network itself is left as it was"
    quantize(fused, images)


def test_a_circulant_layer_behind_stays_so():
    model = network(nn.AvgPool2d(7), nn.Conv2d(4, 8, 1), nn.Flatten(), nn.Linear(8, 4))
    circulant_(model, {"2": 4, "4": 2})
    images = torch.rand(2, 1, 7, 7, dtype=torch.float64)
    fused = fuse(model)
    assert [block_size_of(fused.get_submodule(name)) for name in ("2", "4")] == [4, 2]
    torch.testing.assert_close(fused(images), model.eval()(images), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("pool", [nn.AvgPool2d(3, padding=1), nn.AvgPool2d((2, 5), 2), nn.AvgPool2d(3, stride=1)])
def test_other_windows_are_left_alone(pool):
    fused = fuse(network(pool, nn.Conv2d(4, 2, 1)))
    assert fused.get_submodule("1").divisor_override is None


def test_an_average_that_others_read_is_left_alone():
    fused = fuse(network(nn.AvgPool2d(3), nn.ReLU(), nn.Conv2d(4, 2, 1)))
    node = next(node for node in fused.graph.nodes if node.target == "1")
    assert layers_behind(fused, node) is None
    assert fused.get_submodule("1").divisor_override is None


def test_the_power_beside_is_within_the_root_of_two():
    for divisor in range(1, 200):
        assert 0.5**0.5 <= power_beside(divisor) / divisor <= 2**0.5, divisor
