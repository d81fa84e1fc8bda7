"""Attention with and without softmax, on queries, keys and values of shape (N, heads, tokens, d).

Polynomial attention replaces the weights softmax(q k^T / sqrt(d)) by (q k^T / sqrt(d) + c)^2 / tokens, with one
constant c for each head, initially 1. The weights stay non-negative; with c = 1 they are 1 + 2 s + s^2, which resembles
exp(s) = 1 + s + s^2 / 2 + ... The degree is 4 in q and k, and 5 with v.

Source: 2Quad of MPCFormer (Li et al., ICLR 2023, arXiv 2211.01452). Departure: 2Quad divides by the sum of the weights,
which would be secret; this divides by the number of tokens.
"""

from torch import Tensor


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return softmax(q k^T / sqrt(d)) v: (N, heads, tokens, d).

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, of the same shape.
        v: values, of the same shape.
    """
    return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v


def polynomial_scores(q: Tensor, k: Tensor, c: Tensor) -> Tensor:
    """Return q k^T / sqrt(d) + c, whose square divided by the number of tokens gives the attention weights.

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, of the same shape.
        c: constant of each head, (heads, 1, 1).

    Returns:
        (N, heads, tokens, tokens).
    """
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + c
