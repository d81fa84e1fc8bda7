import ast
import copy
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import privcirnet.nn.circulant
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import (
    BlockCirculant,
    BlockCirculantConv2d,
    BlockCirculantLinear,
    block_size_of,
    find_layer,
    make_circulant_,
)
from privcirnet.nn.functional.circulant import expand, is_circulant, project
from tests.nn.networks import Round, rows_of

LAYERS = [
    pytest.param(lambda: nn.Linear(16, 8), torch.ones(3, 16), id="linear"),
    pytest.param(lambda: nn.Conv2d(8, 16, 3, padding=1), torch.ones(2, 8, 5, 5), id="conv"),
]


@pytest.mark.parametrize(("build", "x"), LAYERS)
@pytest.mark.parametrize("b", [2, 4])
def test_layer_computes_with_the_projected_weight(build, x, b):
    layer = build()
    dense = copy.deepcopy(layer)
    make_circulant_(layer, b)
    with torch.no_grad():
        dense.weight.copy_(expand(project(dense.weight, b), b))
    assert is_circulant(layer.weight, b)
    assert torch.equal(layer(x), dense(x))
    assert rows_of(layer).shape == (dense.weight.shape[0] // b, *dense.weight.shape[1:])
    assert block_size_of(layer) == b
    assert f"BlockCirculant(block_size={b})" in repr(layer)


def test_block_size_one_registers_nothing():
    layer = nn.Linear(6, 3)
    weight = layer.weight
    make_circulant_(layer, 1)
    assert layer.weight is weight
    assert not parametrize.is_parametrized(layer)
    assert not parametrize.is_parametrized(BlockCirculantLinear(6, 3, block_size=1))
    assert block_size_of(layer) == block_size_of(nn.ReLU()) == 1


def test_block_size_of_a_weight_parametrized_otherwise():
    assert block_size_of(parametrize.register_parametrization(nn.Linear(4, 4), "weight", Round())) == 1
    bias_only = parametrize.register_parametrization(nn.Linear(4, 4), "bias", Round())
    assert block_size_of(bias_only) == 1


def test_state_dict_holds_the_rows_only_and_round_trips():
    layer, other = BlockCirculantLinear(512, 512, block_size=16), BlockCirculantLinear(512, 512, block_size=16)
    state = layer.state_dict()
    assert sum(value.numel() for value in state.values()) == 512 * 512 // 16 + 512
    other.load_state_dict(state, strict=True)
    assert torch.equal(other.weight, layer.weight)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"dtype": torch.float64}])
def test_constructors_pass_their_options_on(options):
    linear = BlockCirculantLinear(8, 4, 4, **options)
    conv = BlockCirculantConv2d(8, 4, 3, 4, stride=2, padding=1, **options)
    for layer in (linear, conv):
        assert block_size_of(layer) == 4
        assert (layer.bias is None) == (options.get("bias") is False)
        assert rows_of(layer).dtype == options.get("dtype", torch.float32)
    assert isinstance(linear, nn.Linear)
    assert conv(torch.ones(1, 8, 6, 6, dtype=rows_of(conv).dtype)).shape == (1, 4, 3, 3)


def test_constructors_keep_the_spread_of_initial_values():
    """nn.Linear draws from U(-1/sqrt(in), 1/sqrt(in)), of variance 1 / (3 in); the mean of 16 would have 1/16 of it."""
    torch.manual_seed(0)
    variance = BlockCirculantLinear(256, 256, block_size=16).weight.var().item() * 3 * 256
    # relative standard error of the variance of 4096 uniform numbers: sqrt(0.8 / 4096) = 1.4 %; five of them
    assert abs(variance - 1) < 0.07


def test_compiles_and_exports_whole():
    layer, x = BlockCirculantConv2d(8, 8, 3, block_size=4), torch.randn(2, 8, 5, 5)
    torch.compiler.reset()
    assert torch.equal(torch.compile(layer, fullgraph=True, backend="eager")(x), layer(x))
    assert torch.equal(torch.export.export(layer, (x,)).module()(x), layer(x))


def test_runs_channels_last():
    layer, x = BlockCirculantConv2d(8, 8, 3, block_size=4), torch.randint(-3, 4, (2, 8, 5, 5)).float()
    layer.weight = layer.weight.mul(8).round()  # whole numbers: sums are exact in any order
    layer.bias.data.zero_()
    expected = layer(x)
    layer.to(memory_format=torch.channels_last)
    assert rows_of(layer).is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(layer(x.to(memory_format=torch.channels_last)), expected)


def test_trap_2_no_cached_parametrizations_in_the_package():
    """`parametrize.cached` keys its cache by the shared class's identity and mixes up a module with its deep copies."""
    package = Path(privcirnet.nn.circulant.__file__).parents[1]
    files = [file for file in package.rglob("*.py") if not file.is_relative_to(package / "he")]  # which has no torch
    assert len(files) > 5
    names = {
        (file.name, node.attr if isinstance(node, ast.Attribute) else node.name)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute | ast.alias)
    }
    assert "register_parametrization" in {name for _, name in names}  # the walk does see such names
    assert not [file for file, name in names if name == "cached"]


def test_trap_3_a_gradient_from_before_is_dropped_and_training_goes_on():
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    layer(x).square().sum().backward()
    make_circulant_(layer, 4)
    assert rows_of(layer).grad is None
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    before = rows_of(layer).detach().clone()
    layer(x).square().sum().backward()
    optimizer.step()
    assert not torch.equal(rows_of(layer), before)
    assert is_circulant(layer.weight, 4)


def test_trap_5_the_weight_itself_is_computed():
    layer = BlockCirculantLinear(8, 8, block_size=4)
    layer(torch.ones(1, 8)).sum().backward()
    nn.init.zeros_(layer.weight)
    assert not layer.weight.is_leaf
    assert layer.weight.count_nonzero() > 0
    assert rows_of(layer).grad is not None


def test_trap_6_a_quantizer_on_top_leaves_the_weight_circulant():
    layer = BlockCirculantLinear(16, 16, block_size=8)
    rows = rows_of(layer).detach().clone()
    parametrize.register_parametrization(layer, "weight", Round())
    assert torch.equal(rows_of(layer), rows)
    assert torch.equal(layer.weight, expand(Round()(rows), 8))
    assert is_circulant(layer.weight, 8)
    assert block_size_of(layer) == 8
    layer.weight = layer.weight.detach().clone()
    assert torch.equal(rows_of(layer), Round()(rows))


@pytest.mark.parametrize(
    "build",
    [
        lambda: BlockCirculantLinear(10, 8, block_size=4),
        lambda: BlockCirculantConv2d(10, 8, 3, block_size=4),
        lambda: make_circulant_(nn.Linear(10, 8), 4),
        lambda: parametrize.register_parametrization(nn.Linear(10, 8), "weight", BlockCirculant(4)),
    ],
)
def test_a_block_size_that_does_not_fit(build):
    with pytest.raises(RuleError, match=r"must divide both weight dimensions: got 4 for \(8, 10.*choose one of 1, 2"):
        build()


def test_find_layer_in_a_model_without_layers():
    with pytest.raises(RuleError, match="got 'fc'; its layers are none"):
        find_layer(nn.ReLU(), "fc")
