"""Batch norms of vectors and scales: folded into the layer before them or those behind, circulant ones too."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Square
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.example import IMAGE
from privcirnet.nn.norm import Affine, TokenBatchNorm
from privcirnet.passes.convert import circulant_, dense_state_dict
from privcirnet.passes.fuse import fuse, fuse_at
from tests.nn.networks import DOUBLE, Written, randn


def network(*layers: nn.Module) -> nn.Sequential:
    """Vectors of 16, then layers; norms measured and with scales of their own."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), *layers).double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias)
    return measured(model)


def measured(model: nn.Module) -> nn.Module:
    for _ in range(20):
        model.train()(2 * torch.randn(16, 3, 2, 2).double() + 0.5)
    return model.eval()


NETWORKS = {
    "before": lambda: network(nn.BatchNorm1d(16), nn.Linear(16, 8)),
    "before, and an activation": lambda: network(nn.BatchNorm1d(16), Aespa1d(16), nn.Linear(16, 8)),
    "behind": lambda: network(Square(), nn.BatchNorm1d(16), nn.Linear(16, 8)),
    "tokens' norm": lambda: network(TokenBatchNorm(16), Square(), nn.Linear(16, 8)),
    "two norms and a scale": lambda: network(
        nn.BatchNorm1d(16), Affine(-2.0, 1.0), nn.BatchNorm1d(16), nn.Linear(16, 8)
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("sizes", [{}, {"1": 4}, {"1": 2, "last": 8}], ids=str)
def test_norms_of_vectors_are_folded_and_shared(name, sizes):
    model, x = NETWORKS[name](), randn(5, 3, 2, 2)
    last = str(len(model) - 1)
    circulant_(model, {last if key == "last" else key: b for key, b in sizes.items()})
    measured(model)
    fused = fuse(model)
    assert_close(fused(x), model(x), **DOUBLE)
    assert not [module for module in fused.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm | Affine)]
    assert block_size_of(fused.get_submodule("1")) == sizes.get("1", 1)
    twin = NETWORKS[name]()
    twin.load_state_dict(dense_state_dict(model))
    assert_close(twin(x), model(x), **DOUBLE)


def test_a_scale_goes_behind_what_is_no_layer():
    model, x = network(Square(), Affine(0.25, 0.0), nn.Linear(16, 8)), randn(5, 3, 2, 2)
    assert_close(fuse(model)(x), model(x), **DOUBLE)


def at_known_size(model: nn.Module, *size: int) -> nn.Module:
    """Where surgery was before, which would have given a norm or a scale a layer."""
    model.meta = {IMAGE: size}
    return fuse(model)


def assert_gets_a_layer(model: nn.Module, x: torch.Tensor) -> None:
    """Without a size it stays as it is; with images it becomes a layer of its own."""
    unfolded, fused = fuse(model), fuse_at(model, x)
    kinds = nn.BatchNorm1d | Affine
    assert [sum(isinstance(each, kinds) for each in net.modules()) for net in (model, unfolded, fused)] == [1, 1, 0]
    assert_close(unfolded(x), model(x), **DOUBLE)
    assert_close(fused(x), model(x), **DOUBLE)


def test_a_shift_that_no_layer_takes_is_refused():
    model = network(Square(), Affine(0.25, 1.0), nn.Linear(16, 8))
    assert_gets_a_layer(model, randn(5, 3, 2, 2))
    with pytest.raises(RuleError, match=r"scaled and shifted right behind a layer, .* got '3' after '2'"):
        at_known_size(model, 3, 2, 2)


def beside() -> nn.Module:
    """A linear layer that a norm and a sum read."""

    def forward(net: Written, x: torch.Tensor) -> torch.Tensor:
        x = net.fc(x.flatten(1))
        return x + net.norm(x)

    return Written(forward, fc=nn.Linear(12, 16), norm=nn.BatchNorm1d(16))


def test_a_norm_of_vectors_beside_another_reader_is_refused():
    model = measured(beside().double())
    assert_gets_a_layer(model, randn(5, 3, 2, 2))
    with pytest.raises(RuleError, match=r"a BatchNorm1d must work on vectors .* got 'norm' after 'fc'"):
        at_known_size(model, 3, 2, 2)


def test_a_norm_over_tokens_is_not_taken_for_one_of_channels():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.Flatten(2), nn.Linear(4, 4), nn.BatchNorm1d(4))
    model(torch.rand(8, 3, 2, 2))
    images = torch.rand(2, 3, 2, 2)
    assert_close(fuse_at(model.eval(), images)(images), model(images))
    with pytest.raises(RuleError, match="a BatchNorm1d must work on vectors"):
        at_known_size(copy.deepcopy(model), 3, 2, 2)
    with pytest.raises(RuleError, match=r"must work on vectors .*: got '3' beside '2', which is circulant"):
        circulant_(model, {"2": 2})
    assert type(model[3]) is nn.BatchNorm1d
