import dataclasses
from itertools import pairwise

import pytest
import timm
import torch
from torch import nn

from privcirnet.blocksize_search.latency import CostPrediction, figure_table, figures_of, layer_shapes, seconds_of
from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import stacked_shape
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import candidate_layers, plan_layer
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.models import DigitsResNet
from privcirnet.passes.convert import circulant_
from tests.nn.networks import Written, assert_unchanged, snapshot

BLOCK_SIZES = (1, 2, 4, 8, 16)


def test_shapes_of_a_timm_network():
    model = timm.create_model("resnet18", num_classes=10)
    shapes = layer_shapes(model, torch.zeros(1, 3, 32, 32))
    weighted = [name for name, m in model.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    assert list(shapes) == sorted(shapes, key=list(shapes).index)
    assert set(shapes) == set(weighted)
    assert len(shapes) == 21
    assert shapes["conv1"] == LinearShape(32, 32, 3, 64, 7, 2, 3)
    assert shapes["layer1.0.conv1"] == LinearShape(8, 8, 64, 64, 3, 1, 1)
    assert shapes["layer2.0.conv1"] == LinearShape(8, 8, 64, 128, 3, 2, 1)
    assert shapes["layer2.0.downsample.0"] == LinearShape(8, 8, 64, 128, 1, 2, 0)
    assert shapes["layer4.1.conv2"] == LinearShape(1, 1, 512, 512, 3, 1, 1)
    assert shapes["fc"] == LinearShape.gemm(1, 512, 10)


def test_measuring_changes_nothing():
    model = circulant_(DigitsResNet(width=8), {"conv1": 4}).train()
    model.norm1.eval()
    before = snapshot(model)
    layer_shapes(model, torch.zeros(1, 1, 8, 8))
    assert_unchanged(model, before)
    assert not any(module._forward_hooks for module in model.modules())


def twice() -> nn.Module:
    return Written(lambda net, x: net.fc(net.fc(x)), fc=nn.Linear(4, 4))


REFUSED = [
    (twice, (1, 4), "a layer must run once an image: got fc"),
    (
        lambda: nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
        (1, 4, 5, 5),
        "a convolution must pad with zeros: got 0: Conv2d",
    ),
]


@pytest.mark.parametrize(("build", "shape", "message"), REFUSED)
def test_networks_without_shapes_keep_no_hook(build, shape, message):
    model = build().train()
    with pytest.raises(RuleError, match=message):
        layer_shapes(model, torch.zeros(shape))
    assert not any(module._forward_hooks for module in model.modules())
    assert all(module.training for module in model.modules())


def table(profile: Profile = COUNTED, link: str = "local") -> dict[str, dict[int, float]]:
    shapes = layer_shapes(DigitsResNet(width=16), torch.zeros(1, 1, 8, 8))
    return seconds_of(figure_table(shapes, BLOCK_SIZES, Objective(profile, LINKS[link])))


def test_latency_falls_as_blocks_grow():
    rows = table()
    assert list(rows) == ["stem", "down", "conv1", "conv2", "classifier"]
    assert {name: tuple(row) for name, row in rows.items()} == {
        "stem": (1,),
        "down": BLOCK_SIZES,
        "conv1": BLOCK_SIZES,
        "conv2": BLOCK_SIZES,
        "classifier": (1, 2),
    }
    for row in rows.values():
        seconds = list(row.values())
        transforms = 1e-6
        assert all(later <= earlier + transforms for earlier, later in pairwise(seconds))
        assert seconds[-1] > 0
    assert rows["conv1"][16] < rows["conv1"][1] / 2


def test_channel_groups_stay_dense():
    model = nn.Sequential(nn.Conv2d(1, 8, 1), nn.Conv2d(8, 8, 3, groups=8), nn.Conv2d(8, 8, 3, groups=2))
    shapes = layer_shapes(model, torch.zeros(1, 1, 8, 8))
    assert shapes["1"] == LinearShape(8, 8, 8, 8, 3, groups=8)
    assert shapes["2"] == LinearShape(6, 6, 8, 8, 3, groups=2)
    rows = figure_table(shapes, BLOCK_SIZES, Objective(COUNTED, LINKS["local"]))
    assert {name: tuple(row) for name, row in rows.items()} == {"0": (1,), "1": (1,), "2": (1,)}


def test_every_entry_is_the_cheapest_plans():
    shapes = layer_shapes(DigitsResNet(width=16), torch.zeros(1, 1, 8, 8))
    for name, row in table(link="wan").items():
        for b, seconds in row.items():
            goal = Objective(COUNTED, LINKS["wan"])
            layers = [layer for _, layer in plan_layer(shapes[name], b, goal).candidates]
            least = min(linear_cost(layer, COUNTED, LINKS["wan"]).total for layer in layers)
            assert seconds == pytest.approx(least, rel=1e-12)
            untiled = [linear_cost(x, COUNTED, LINKS["wan"]).total for x in candidate_layers(shapes[name], b, 8192)]
            assert seconds <= min(untiled) * (1 + 1e-9)


def test_tokens_are_rows_of_a_gemm():
    shapes = layer_shapes(nn.Sequential(nn.Linear(8, 4), nn.Linear(4, 16)), torch.zeros(1, 5, 8))
    assert shapes == {"0": LinearShape.gemm(5, 8, 4), "1": LinearShape.gemm(5, 4, 16)}


def test_figures_are_those_of_the_cheapest_plan():
    shape, link = LinearShape(8, 8, 16, 16, 3, 1, 1), LINKS["wan"]
    (row,) = figure_table({"a": shape}, (1, 4), Objective(COUNTED, link)).values()
    for b, figures in row.items():
        layer = plan_layer(shape, b, Objective(COUNTED, link)).layer
        cost = linear_cost(layer, COUNTED, link)
        assert figures.seconds == pytest.approx(cost.total, rel=1e-12)
        assert (figures.server, figures.network) == (cost.server, cost.network)
        assert figures.sent == pytest.approx((cost.network - link.round_trip) * link.bandwidth, rel=1e-9)
        assert figures.memory == layer.circuit.weights * 8192 * 3 * 8
        assert figures.rounds == 1
    total = figures_of({"a": row, "b": row}, {"a": 1, "b": 4})
    assert total == row[1] + row[4]
    assert isinstance(total, CostPrediction)
    assert total.rounds == 2


def test_images_that_are_prepared_together_cost_less_each_and_more_memory():
    shapes = {"late": LinearShape(2, 2, 64, 64, 3, 1, 1), "early": LinearShape(32, 32, 32, 32, 3, 1, 1, groups=32)}
    alone, eight = (
        figure_table(shapes, (1, 8), Objective(COUNTED, LINKS["local"]), together=count) for count in (1, 8)
    )
    for b, one in alone["late"].items():
        each = eight["late"][b]
        assert each.seconds < 0.9 * one.seconds
        assert (each.memory > one.memory, each.sent < one.sent) == (True, True)
        assert (each.rounds, each.online) == (one.rounds, one.online)
        plans = [
            plan_layer(stacked_shape(shapes["late"], k), b, Objective(COUNTED, LINKS["local"])).layer for k in (2, 4, 8)
        ]
        costs = [linear_cost(plan, COUNTED, LINKS["local"]).total / k for plan, k in zip(plans, (2, 4, 8), strict=True)]
        assert each.seconds == pytest.approx(min(costs))
    assert eight["early"] == alone["early"], "ciphertexts are full"


def test_layers_that_may_be_padded_have_more_block_sizes_and_no_fewer_blocks_for_it():
    """A padded layer is priced as the larger one that it is a part of."""
    shapes = {"fc1": LinearShape.gemm(1, 845, 100), "fc2": LinearShape.gemm(1, 100, 10)}
    plain = figure_table(shapes, BLOCK_SIZES, Objective(COUNTED, LINKS["local"]))
    assert {name: list(row) for name, row in plain.items()} == {"fc1": [1], "fc2": [1, 2]}
    padded = figure_table(shapes, BLOCK_SIZES, Objective(COUNTED, LINKS["local"]), padded=("fc1",))
    assert padded["fc2"] == plain["fc2"]
    assert list(padded["fc1"]) == [1, 2, 4, 8, 16]
    whole = figure_table({"fc1": LinearShape.gemm(1, 848, 104)}, BLOCK_SIZES, Objective(COUNTED, LINKS["local"]))
    assert dataclasses.replace(padded["fc1"][8], online=0.0) == dataclasses.replace(whole["fc1"][8], online=0.0)
    assert padded["fc1"][8].seconds < padded["fc1"][1].seconds
