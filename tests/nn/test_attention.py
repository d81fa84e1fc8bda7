"""Attention as modules and as the pieces that inference runs."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.train.callbacks import OutlierPenalty
from tests.nn.networks import DOUBLE, randn, vit


def test_attentions_pieces_are_attention():
    attention, qkv = PolynomialAttention(8, heads=2, tokens=5).double(), randn(3, 5, 24)
    nn.init.normal_(attention.shift)
    assert_close(attention.scale * attention.pieces()(qkv), attention(qkv), **DOUBLE)


def test_attention_of_other_tokens():
    """In training it is the mean over those that are there; in evaluation there are all."""
    attention, qkv = PolynomialAttention(8, heads=2, tokens=5), torch.rand(1, 6, 24)
    for tokens in (4, 6):
        with pytest.raises(RuleError, match=f"tokens it was made for: got {tokens} for 5"):
            attention.eval()(qkv[:, :tokens])
    with pytest.raises(RuleError, match="got 6 for 5"):
        attention.train()(qkv)
    few = PolynomialAttention(8, heads=2, tokens=4)
    assert_close(attention(qkv[:, :4]), few(qkv[:, :4]))


def test_scores_are_among_the_squares_whose_tails_are_penalized():
    model = vit()
    observer = OutlierPenalty(model, 1.0)
    model(1e3 * torch.rand(4, 3, 8, 8).double())
    assert len(observer._peaks) == 4, "two attentions and two activations"
