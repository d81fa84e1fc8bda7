"""Modules between the linear layers of a transformer, on tokens (N, T, C).

Encrypted inference supports these modules. None of them multiplies by a weight. Several heads lie side by side in the
channels: head h of g has channels h C / g to (h + 1) C / g.
"""

import torch
from torch import Tensor, nn


class ToTokens(nn.Module):
    """The positions of a map as tokens, or tokens, with a class token in front and learned constants added.

    The constants are the class token's value and the position embeddings.

    >>> ToTokens(5, 8)(torch.randn(3, 8, 2, 2)).shape
    torch.Size([3, 5, 8])
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(count, width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the positions of a map as tokens, or tokens with one more: (N, 1 + H W, C) or (N, 1 + T, C).

        Args:
            x: (N, C, H, W) or (N, T, C).
        """
        tokens = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x
        return nn.functional.pad(tokens, (0, 0, 1, 0)) + self.constants

    @property
    def constants(self) -> Tensor:
        """Constants that are added, (1 + T, C)."""
        return self.bias


class ScoreConstants(ToTokens):
    """Constants of pairs of tokens, added to scores (N, T, g K) of g heads, with a row of zeros in front.

    Where a pair is masked, a score falls so far that its key leaves the softmax.

    Args:
        constants: (T, g K).
        masked: pairs whose keys leave, (T, g K).

    Attributes:
        far: distance by which masked scores fall. :func:`privcirnet.passes.quantize.quantize` makes it a power of two
            beside the scores.

    >>> ScoreConstants(torch.ones(1, 2), torch.tensor([[False, True]]))(torch.zeros(1, 1, 2)).tolist()
    [[[0.0, 0.0], [1.0, -1048576.0]]]
    """

    far: Tensor
    masked: Tensor

    def __init__(self, constants: Tensor, masked: Tensor) -> None:
        super().__init__(len(constants) + 1, constants.shape[1])
        self.to(constants.dtype)
        with torch.no_grad():
            self.bias[1:] = constants.masked_fill(masked, 0)
        self.bias.requires_grad_(bool(self.bias.any()))
        self.register_buffer("masked", nn.functional.pad(masked, (0, 0, 1, 0)))
        self.register_buffer("far", torch.tensor(2.0**20))

    @property
    def constants(self) -> Tensor:
        return self.bias.where(~self.masked, -self.far)


class Take(nn.Module):
    """One token of each image: (N, T, C) to (N, C)."""

    def __init__(self, place: int = 0) -> None:
        super().__init__()
        self.place = place

    def forward(self, x: Tensor) -> Tensor:
        """Return the token's channels: (N, C); ``x``: (N, T, C)."""
        return x[:, self.place]


class SliceChannels(nn.Module):
    """Channels [first, first + count) of tokens or of a map.

    Args:
        first: first channel.
    """

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        self.first, self.count = first, count

    def forward(self, x: Tensor) -> Tensor:
        """Return the channels: (N, T, count) or (N, count, H, W); ``x``: (N, T, C) or (N, C, H, W)."""
        return x.narrow(1 if x.ndim == 4 else -1, self.first, self.count)


class HeadTranspose(nn.Module):
    """The exchange of tokens and the channels of each head: (N, T, g a) to (N, a, g T).

    Args:
        heads: g.

    >>> HeadTranspose(2)(torch.arange(8).reshape(1, 2, 4))[0].tolist()
    [[0, 4, 2, 6], [1, 5, 3, 7]]
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        """Return the transposed tokens: (N, a, g T); ``x``: (N, T, g a)."""
        return x.unflatten(-1, (self.heads, -1)).permute(0, 3, 2, 1).flatten(2)


class HeadProduct(nn.Module):
    """Inner products of two sets of tokens, head by head: (N, A, g k) and (N, B, g k) to (N, A, g B).

    Channel h B + j of token i is the inner product of the channels of head h of left token i and right token j.

    Args:
        heads: g.
        bias: whether to add a constant for each head.
        result_bits: least bits of a result when it is quantized; 0: as many as other activations.

    >>> HeadProduct(1)(torch.tensor([[[1, 2]]]), torch.tensor([[[3, 4], [5, 6]]])).tolist()
    [[[11, 17]]]
    """

    bias: Tensor | None

    def __init__(self, heads: int, bias: bool = False, result_bits: int = 0) -> None:
        super().__init__()
        self.heads, self.result_bits = heads, result_bits
        self.register_parameter("bias", nn.Parameter(torch.zeros(heads)) if bias else None)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Return the inner products: (N, A, g B); ``left``: (N, A, g k); ``right``: (N, B, g k)."""
        a, b = (x.unflatten(-1, (self.heads, -1)).transpose(1, 2) for x in (left, right))
        products = a @ b.transpose(-2, -1)
        if self.bias is not None:
            products = products + self.bias[:, None, None]
        return products.transpose(1, 2).flatten(2)
