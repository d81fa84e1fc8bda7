"""Attention with and without softmax, on queries, keys and values of shape (N, heads, tokens, d).

The polynomial one has the weights (q k^T / sqrt(d) + c)^2 / tokens instead of softmax(q k^T / sqrt(d)), with a constant
c for each head, 1 at first. Non-negative as softmax's; 1 + 2 s + s^2 at first, against 1 + s + s^2 / 2 + ... of exp(s).

Source: 2Quad of MPCFormer (Li et al., ICLR 2023, arXiv 2211.01452), its secret denominator, the sum of the weights,
replaced by the number of tokens; that replacement is ours. The degree is 4 in q and k, 5 with v.
"""

from torch import Tensor


def softmax_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(d)) v; all of shape (N, heads, tokens, d)."""
    return (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-1) @ v


def polynomial_scores(q: Tensor, k: Tensor, c: Tensor) -> Tensor:
    """Q k^T / sqrt(d) + c, whose square over the tokens are the weights: (N, heads, tokens, tokens)."""
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5 + c


def polynomial_attention(q: Tensor, k: Tensor, v: Tensor, c: Tensor) -> Tensor:
    """((q k^T / sqrt(d) + c)^2 / tokens) v.

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, likewise.
        v: values, likewise.
        c: constant of each head, (heads, 1, 1).

    Returns:
        (N, heads, tokens, d)

    >>> import torch
    >>> q = k = torch.zeros(1, 1, 3, 2)
    >>> polynomial_attention(q, k, torch.arange(6.0).reshape(1, 1, 3, 2), torch.ones(1, 1, 1))[0, 0, 0]
    tensor([2., 3.])
    """
    return (polynomial_scores(q, k, c).square() / k.shape[-2]) @ v
