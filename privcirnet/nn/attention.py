"""Attention as modules that read the queries, keys and values of one linear layer, and its pieces for inference.

For encrypted inference polynomial attention is written without its constant factor, so that integers stay exact::

    ((q k^T / sqrt(d) + c)^2 / T) v  =  (q k^T + c sqrt(d))^2 v / (d T)

The factor 1 / (d T) goes into the weights of the layers that read the result.
"""

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.functional.attention import polynomial_scores, softmax_attention
from privcirnet.nn.activations import Square
from privcirnet.nn.tokens import Channels, HeadProduct, HeadTranspose


class SoftmaxAttention(nn.Module):
    """softmax(q k^T / sqrt(d)) v for each head.

    Args:
        heads: each of d = C / heads channels.

    >>> SoftmaxAttention(2)(torch.randn(3, 5, 3 * 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, qkv: Tensor) -> Tensor:
        """Return softmax attention of tokens: (N, T, C).

        Args:
            qkv: queries, keys and values of all heads, (N, T, 3 C).
        """
        return _joined(softmax_attention(*_split(qkv, self.heads)))


class PolynomialAttention(nn.Module):
    """((q k^T / sqrt(d) + c)^2 / T) v for each head (:mod:`..functional.attention`), c learned.

    It is a mean over tokens, so in training it is one over those that are there (``recipe.patches``).

    Args:
        width: C.
        heads: each of d = C / heads channels.
        tokens: T.

    >>> PolynomialAttention(8, heads=2, tokens=5)(torch.randn(3, 5, 3 * 8)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, width: int, heads: int, tokens: int) -> None:
        super().__init__()
        self.width, self.heads, self.tokens = width, heads, tokens
        self.shift = nn.Parameter(torch.ones(heads, 1, 1))
        self.square = Square()

    def forward(self, qkv: Tensor) -> Tensor:
        """Return polynomial attention of tokens: (N, T, C).

        Args:
            qkv: queries, keys and values of all heads, (N, T, 3 C).
        """
        tokens = qkv.shape[1]
        if tokens > self.tokens or (tokens < self.tokens and not self.training):
            got, remedy = f"{tokens} for {self.tokens}", "build the network for images of this size"
            raise RuleError("an attention must get the tokens it was made for", got=got, remedy=remedy)
        q, k, v = _split(qkv, self.heads)
        return _joined((self.square(polynomial_scores(q, k, self.shift)) / tokens) @ v)

    @property
    def scale(self) -> float:
        """1 / (d T): what the result of the pieces is multiplied by."""
        return self.heads / (self.width * self.tokens)

    def pieces(self) -> "PolynomialPieces":
        """Return the modules that :mod:`privcirnet.passes.fuse` puts in place of the attention."""
        made = PolynomialPieces(self.width, self.heads).to(self.shift)
        with torch.no_grad():
            made.scores.bias.copy_(self.shift.flatten() * (self.width / self.heads) ** 0.5)  # type: ignore[union-attr]
        return made


class PolynomialPieces(nn.Module):
    """(q k^T + c)^2 v for each head: polynomial attention, divided by its :attr:`~PolynomialAttention.scale`.

    Args:
        width: C.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (Channels(i * width, width) for i in range(3))
        self.scores, self.square = HeadProduct(heads, bias=True), Square()
        self.turn, self.gather = HeadTranspose(heads), HeadProduct(heads)

    def forward(self, qkv: Tensor) -> Tensor:
        """Return what attention gathers: (N, T, C); ``qkv``: queries, keys and values of all heads, (N, T, 3 C)."""
        query, key, value = self.query(qkv), self.key(qkv), self.value(qkv)
        return self.gather(self.square(self.scores(query, key)), self.turn(value))


def _split(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """(N, T, 3 C) to queries, keys and values, each (N, heads, T, d)."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
    return q, k, v


def _joined(y: Tensor) -> Tensor:
    """(N, heads, T, d) to (N, T, C)."""
    return y.transpose(1, 2).flatten(2)
