"""Attention with and without softmax, on queries, keys and values of shape (N, heads, tokens, d).

Polynomial attention replaces the weights softmax(q k^T / sqrt(d)) by (q k^T / sqrt(d) + c)^2 / tokens, with one
constant c for each head, initially 1. The weights stay non-negative; with c = 1 they are 1 + 2 s + s^2, which resembles
exp(s) = 1 + s + s^2 / 2 + ... The degree is 4 in q and k, and 5 with v.

Source: 2Quad of MPCFormer (Li et al., ICLR 2023, arXiv 2211.01452). Departure: 2Quad divides by the sum of the weights,
which would be secret; this divides by the number of tokens.
"""

from torch import Tensor


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | None = None, constants: Tensor | None = None
) -> Tensor:
    """Return softmax(scale q k^T + constants) v: (N, heads, tokens, e).

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, (N, heads, keys, d).
        v: values, (N, heads, keys, e).
        scale: None for 1 / sqrt(d).
        constants: constants of each head and pair, (heads, tokens, keys); minus infinity for a pair that is masked.
    """
    scores = q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale)
    return (scores if constants is None else scores + constants).softmax(-1) @ v


def polynomial_scores(q: Tensor, k: Tensor, c: Tensor, scale: float | None = None) -> Tensor:
    """Return scale q k^T + c, whose square divided by the number of keys gives the attention weights.

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, (N, heads, keys, d).
        c: constant of each head, (heads, 1, 1), or of each pair, (heads, tokens, keys).
        scale: None for 1 / sqrt(d).

    Returns:
        (N, heads, tokens, keys).
    """
    return q @ k.transpose(-2, -1) * (q.shape[-1] ** -0.5 if scale is None else scale) + c
