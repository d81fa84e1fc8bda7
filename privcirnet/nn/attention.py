"""Attention as modules that read the queries, keys and values of one linear layer, and its pieces for inference.

For encrypted inference polynomial attention is written without its constant factor, so that integers stay exact::

    ((q k^T / sqrt(d) + c)^2 / T) v  =  (q k^T + c sqrt(d))^2 v / (d T)

The factor 1 / (d T) goes into the weights of the layers that read the result. It replaces the weights
softmax(q k^T / sqrt(d)), with one constant c for each head, initially 1. The weights stay non-negative; with c = 1 they
are 1 + 2 s + s^2, which resembles exp(s) = 1 + s + s^2 / 2 + ... The degree is 4 in q and k, and 5 with v.

Source: 2Quad of MPCFormer (Li et al., ICLR 2023, arXiv 2211.01452). Departure: 2Quad divides by the sum of the weights,
which would be secret; this divides by the number of tokens.
"""

import math

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.exact_functions import constants_of_scores
from privcirnet.nn.moves import HeadProduct, HeadTranspose, SliceChannels


def softmax_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | Tensor | None = None, constants: Tensor | None = None
) -> Tensor:
    """Return softmax(scale q k^T + constants) v: (N, heads, tokens, e).

    Args:
        q: queries, (N, heads, tokens, d).
        k: keys, (N, heads, keys, d).
        v: values, (N, heads, keys, e).
        scale: None for 1 / sqrt(d); a number, or one of each head, (heads, 1, 1).
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


class SoftmaxAttention(nn.Module):
    """softmax(scale q k^T + constants) v for each head.

    Args:
        heads: number of heads, each of d = C / heads channels.
        scale: None for 1 / sqrt(d).
        constants: constants of each head and pair of tokens, (heads, T, K); minus infinity for a pair that is masked.

    >>> SoftmaxAttention(2)(torch.randn(3, 5, 3 * 8)).shape
    torch.Size([3, 5, 8])
    """

    bias: nn.Parameter | None
    masked: Tensor | None

    def __init__(self, heads: int, scale: float | None = None, constants: Tensor | None = None) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        masked = None if constants is None else constants.isinf()
        finite = None if constants is None or masked is None else constants.detach().masked_fill(masked, 0)
        self.register_parameter("bias", None if finite is None else nn.Parameter(finite, bool(finite.any())))
        self.register_buffer("masked", masked)

    @property
    def constants(self) -> Tensor | None:
        """Constants of pairs, (heads, T, K); None if there are none."""
        if self.bias is None or self.masked is None:
            return None
        return self.bias.masked_fill(self.masked, -math.inf)

    def forward(self, qkv: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        """Return softmax attention of tokens: (N, T, C).

        Args:
            qkv: queries, keys and values of all heads, (N, T, 3 C); with ``k`` and ``v`` the queries, (N, T, C).
            k: keys, (N, K, C).
            v: values, (N, K, C).
        """
        return _joined(softmax_attention(*_heads(qkv, k, v, self.heads), self.scale, self.constants))


class PolynomialAttention(nn.Module):
    """((scale q k^T + c)^2 / T) v for each head (:mod:`..functional.attention`), c learned.

    It is a mean over the tokens of an image.

    Args:
        width: C.
        heads: number of heads, each of d = C / heads channels.
        tokens: T, the number of keys.
        scale: None for 1 / sqrt(d).
        constants: constants of each head and pair of tokens, (heads, T, K), that a softmax adds to scores. Then c has a
            value for each pair, initially that with which scores of zero have the weights of the softmax.

    >>> PolynomialAttention(8, heads=2, tokens=5)(torch.randn(3, 5, 3 * 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(
        self, width: int, heads: int, tokens: int, scale: float | None = None, constants: Tensor | None = None
    ) -> None:
        super().__init__()
        self.width, self.heads, self.tokens, self.score_scale = width, heads, tokens, scale
        self.shift = nn.Parameter(torch.ones(heads, 1, 1) if constants is None else _shifts(constants.detach()))
        self.square = Square()

    def forward(self, qkv: Tensor, k: Tensor | None = None, v: Tensor | None = None) -> Tensor:
        """Return polynomial attention of tokens: (N, T, C).

        Args:
            qkv: queries, keys and values of all heads, (N, T, 3 C); with ``k`` and ``v`` the queries, (N, T, C).
            k: keys, (N, K, C).
            v: values, (N, K, C).
        """
        tokens = (qkv if k is None else k).shape[1]
        some = self.training and not self._of_pairs
        if tokens > self.tokens or (tokens < self.tokens and not some):
            got, remedy = f"{tokens} for {self.tokens}", "build the network for images of this size"
            raise RuleError("an attention must get the tokens it was made for", got=got, remedy=remedy)
        q, k, v = _heads(qkv, k, v, self.heads)
        return _joined((self.square(polynomial_scores(q, k, self.shift, self.score_scale)) / tokens) @ v)

    @property
    def _of_pairs(self) -> bool:
        """Return whether c has a value for each pair of tokens, not for each head."""
        return self.shift[0].numel() > 1

    @property
    def scale(self) -> float:
        """Factor of the pieces' result: scale^2 / T, which is 1 / (d T)."""
        if self.score_scale is None:
            return self.heads / (self.width * self.tokens)
        return self.score_scale**2 / self.tokens

    def pieces(self, separate: bool = False) -> "PolynomialPieces":
        """Return the modules that :mod:`privcirnet.passes.fuse` puts in place of the attention.

        Args:
            separate: whether they read queries, keys and values, not one layer of all.
        """
        inverse = (self.width / self.heads) ** 0.5 if self.score_scale is None else 1 / self.score_scale
        whole = self.shift.detach() * inverse
        kind = SeparatePolynomialPieces if separate else PolynomialPieces
        pieces = kind(self.width, self.heads, whole if self._of_pairs else None).to(self.shift)
        if pieces.scores.bias is not None:
            with torch.no_grad():
                pieces.scores.bias.copy_(whole.flatten())
        return pieces


class PolynomialPieces(nn.Module):
    """(q k^T + c)^2 v for each head: polynomial attention, divided by its :attr:`~PolynomialAttention.scale`.

    Args:
        width: C.
        constants: c of each head and pair, (heads, T, K); None for one c of each head.
    """

    def __init__(self, width: int, heads: int, constants: Tensor | None = None) -> None:
        super().__init__()
        self.query, self.key, self.value = (SliceChannels(i * width, width) for i in range(3))
        self.scores, self.square = HeadProduct(heads, bias=constants is None), Square()
        self.shift = constants_of_scores(constants)
        self.turn, self.gather = HeadTranspose(heads), HeadProduct(heads)

    def forward(self, qkv: Tensor) -> Tensor:
        """Return the result of attention: (N, T, C); ``qkv``: queries, keys and values of all heads, (N, T, 3 C)."""
        return self.attend(self.query(qkv), self.key(qkv), self.value(qkv))

    def attend(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the result of attention, (N, T, C), of three values (N, T, C)."""
        return self.gather(self.square(self.shift(self.scores(query, key))), self.turn(value))


class SeparatePolynomialPieces(PolynomialPieces):
    """:class:`PolynomialPieces` of queries, keys and values apart."""

    def __init__(self, width: int, heads: int, constants: Tensor | None = None) -> None:
        super().__init__(width, heads, constants)
        del self.query, self.key, self.value

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:  # type: ignore[override]
        return self.attend(query, key, value)


def _shifts(constants: Tensor) -> Tensor:
    """Return the roots of T softmax(constants)."""
    return (constants.shape[-1] * constants.softmax(-1)).sqrt()


def _heads(qkv: Tensor, k: Tensor | None, v: Tensor | None, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each (N, heads, T, d), from one (N, T, 3 C) or three values (N, T, C)."""
    if k is None or v is None:
        q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        return q, k, v
    q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (qkv, k, v))
    return q, k, v


def _joined(y: Tensor) -> Tensor:
    """Return values (N, heads, T, d) as (N, T, C)."""
    return y.transpose(1, 2).flatten(2)
