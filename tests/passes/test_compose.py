"""Pairs of 1 x 1 convolutions as one: the same function, circulant again; what is no pair is refused."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.models.mobilenetv2 import InvertedResidual
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import is_circulant
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.passes.compose import compose_, pairs
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import with_quantizers
from tests.nn.networks import randn, randomize_norms_

CHAIN = {"1.expand": (False, True), "2.expand": (True, True), "3.expand": (True, False), "4": (False, False)}
"""Second layer of each pair -> whether its input is a residual's sum, and is read again."""


def chain(b: int, bias: bool = True) -> nn.Module:
    """Inverted residuals with every kind of pair."""
    torch.manual_seed(0)
    sizes = [(8, 8, 2, 2), (8, 8, 1, 3), (8, 8, 1, 2), (8, 16, 2, 2)]
    blocks = [InvertedResidual(i, o, stride, t, "square") for i, o, stride, t in sizes]
    model = nn.Sequential(*blocks, nn.Conv2d(16, 24, 1, bias=bias)).double()
    randomize_norms_(model)
    return circulant_(model, uniform_sizes(model, b)).eval()


@given(st.sampled_from((1, 2, 4, 8)), st.sets(st.sampled_from(tuple(CHAIN))), st.booleans())
def test_composed_layers_compute_the_same_with_circulant_weights(b, chosen, bias):
    model = chain(b, bias)
    fused, x = fuse(model), randn(2, 8, 8, 8)
    assert {pair.second: (pair.residual, pair.kept) for pair in pairs(fused)} == CHAIN
    composed = compose_(fuse(model), chosen)
    with torch.no_grad():
        expected, found = fused(x), composed(x)
    assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item())
    assert {pair.second for pair in pairs(composed)} == CHAIN.keys() - chosen
    for name in chosen:
        layer = composed.get_submodule(name)
        assert block_size_of(layer) == b
        assert is_circulant(layer.weight, b)


def test_both_parts_of_a_composed_layer_have_one_step():
    """Where y1 is kept and squares read y2: y2 takes a power of two, which the layer behind its square takes back."""
    model = chain(2)
    with torch.no_grad():
        model[1].project.weight = 20 * model[1].project.weight
    fused, composed = fuse(model), compose_(fuse(model), CHAIN)
    first, kept = (
        log_step_for(m.weight.abs().max().item(), 8)
        for m in (fused.get_submodule("1.project"), composed.get_submodule("2.expand"))
    )
    lower = log_step_for(composed.get_submodule("2.expand").weight[8:].abs().max().item(), 8)
    assert first == kept == lower
    ratio = composed.get_submodule("2.depthwise").weight / fused.get_submodule("2.depthwise").weight
    assert ratio.log2().unique().tolist() == [-2 * round(-ratio.log2().mean().item() / 2)] != [0]
    with torch.no_grad():
        expected, found = fused(randn(2, 8, 8, 8)), composed(randn(2, 8, 8, 8))
    assert_close(found, expected, rtol=0, atol=1e-12 * expected.abs().max().item())


def test_a_composed_layer_takes_the_place_of_both():
    """Its inputs are the first one's and the residual; its outputs the second one's, behind what is read again."""
    composed = compose_(fuse(chain(4)), CHAIN)
    sizes = {
        name: (composed.get_submodule(name).in_channels, composed.get_submodule(name).out_channels) for name in CHAIN
    }
    assert sizes == {"1.expand": (16, 8 + 24), "2.expand": (24 + 8, 8 + 16), "3.expand": (16 + 8, 16), "4": (16, 24)}
    layers = [name for name, module in composed.named_modules() if isinstance(module, nn.Conv2d)]
    assert not [name for name in layers if name.endswith("project")]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Sequential(nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)), "at most a sum between: got 1"),
        (nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1, stride=2)), "got 1"),
        (nn.Sequential(nn.Conv2d(4, 4, 1), nn.ReLU(), nn.Conv2d(4, 4, 1)), "got 1"),
        (circulant_(nn.Sequential(nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)), {"0": 2}), "one block size: got 2 and 1"),
        (circulant_(nn.Sequential(nn.Conv2d(4, 6, 1), nn.Conv2d(6, 4, 1)), {"0": 4, "1": 4}, pad=True), "got 1"),
    ],
    ids=["kernel", "stride", "activation", "block sizes", "padded"],
)
def test_what_is_no_pair_is_refused(model, message):
    with pytest.raises(RuleError, match=message):
        compose_(fuse(model), ["1"])


def test_quantized_weights_are_refused():
    with pytest.raises(RuleError, match="got 4"):
        compose_(with_quantizers(fuse(chain(4))), ["4"])
