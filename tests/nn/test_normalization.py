"""Softmax attention and layer norms are their pieces, and tables hold what comes."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.nn.attention import SoftmaxAttention, softmax_attention
from privcirnet.nn.exact_functions import DecomposedLayerNorm, SoftmaxPieces, SumChannels, TableFunction, table_ends
from tests.nn.networks import DOUBLE, randn


@pytest.mark.parametrize("heads", [1, 3])
def test_softmax_attentions_pieces_are_attention(heads):
    qkv = 5 * randn(4, 5, 36)
    pieces = SoftmaxPieces(12, heads, 5).double()
    scaled = torch.cat([qkv[..., :12] * (heads / 12) ** 0.5, qkv[..., 12:]], -1)
    assert_close(pieces(scaled), SoftmaxAttention(heads)(qkv), **DOUBLE)
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in qkv.chunk(3, -1))
    assert_close(pieces(scaled), softmax_attention(q, k, v).transpose(1, 2).flatten(2), **DOUBLE)


@pytest.mark.parametrize("shape", [(4, 5, 12), (4, 1, 8)], ids=str)
def test_layer_norms_pieces_are_the_norm(shape):
    pieces, x = DecomposedLayerNorm(shape[-1], shape[1], 0.1).double(), randn(*shape)
    wanted = nn.functional.layer_norm(x, shape[-1:], eps=0.1)
    assert_close(shape[-1] ** 0.5 * pieces(x), wanted, rtol=1e-6, atol=1e-7)  # eps is a number of 32 bits


def test_sums_of_softmax_lie_in_their_table_whatever_the_scores():
    """The largest exp is 1, as a number of 8 bits after the point, too."""
    for scores in (randn(2, 3, 65), 1e6 * randn(2, 3, 65), torch.zeros(2, 3, 65)):
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        total = SumChannels(1)((weights * 256 + 0.5).floor() / 256)
        assert ((total >= 1) & (total <= 65)).all()


@pytest.mark.parametrize("function", ["exp", "reciprocal", "rsqrt"])
def test_tables_have_values_at_their_ends(function):
    low, high = table_ends(function, 12)
    assert TableFunction(function)(torch.tensor([low, high], dtype=torch.float64)).isfinite().all()
