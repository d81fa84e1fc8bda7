"""Modules without weights between layers: values in new places, and the products of attention.

A move costs nothing under encryption: each party moves its share alone. A chain of reshapes, permutations, slices and
repetitions takes value number ``places[i]`` to place i. These places are a grid: offset + i strides[0] + j strides[1]
+ ..., with i, j, ... counting through its sizes; then a few numbers describe the move. Rolls and pads have no grid.

Tokens are (N, T, C). Several heads lie side by side in the channels: head h of g has channels h C / g to (h + 1) C / g.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Self

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError


@dataclass(frozen=True)
class Grid:
    """Places offset + sum of i_k strides[k] for i_k in [0, sizes[k]), the last axis first.

    Attributes:
        offset: the first place.
        strides: one for each axis, of any sign; 0 repeats places.
    """

    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def places(self) -> Tensor:
        """Return all places in order, flat, int64."""
        places = torch.tensor([self.offset])
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = (places[:, None] + stride * torch.arange(size)).flatten()
        return places


def grid_of(places: Tensor) -> Grid | None:
    """Return the grid that places lie on, with as few axes as possible; None if there is none.

    Args:
        places: whole numbers of any shape, read row by row.

    >>> grid_of(torch.arange(6).reshape(2, 3).T)
    Grid(offset=0, sizes=(3, 2), strides=(1, 3))
    >>> grid_of(torch.tensor([3, 0, 1, 2])) is None
    True
    """
    remaining, sizes, strides = places.flatten(), list[int](), list[int]()
    while len(remaining) > 1:
        axis = _last_axis(remaining)
        if axis is None:
            return None
        size, stride = axis
        sizes.insert(0, size)
        strides.insert(0, stride)
        remaining = remaining[::size]
    return Grid(int(remaining[0]), tuple(sizes), tuple(strides))


def _last_axis(places: Tensor) -> tuple[int, int] | None:
    """Return size and stride of the longest axis that the places end in."""
    stride = int(places[1] - places[0])
    breaks = (places.diff() != stride).nonzero()
    longest = int(breaks[0]) + 1 if len(breaks) else len(places)
    for size in range(longest, 1, -1):
        if len(places) % size:
            continue
        rows = places.view(-1, size)
        if torch.equal(rows, rows[:, :1] + stride * torch.arange(size)):
            return size, stride
    return None


class Rearrange(nn.Module):
    """A chain of reshapes, permutations, slices and repetitions of each image's values.

    Args:
        before: shape of an image's values, without the batch; only their number and order matter.
        after: shape of the result, without the batch: a map (C, H, W), tokens (T, C) or a vector (C,).
        grid: source of each place's value (:mod:`privcirnet.nn.moves`).

    >>> move = Rearrange.like(lambda x: x.permute(0, 2, 3, 1), (8, 2, 2), channels_last=True)
    >>> move(torch.zeros(3, 8, 2, 2)).shape
    torch.Size([3, 4, 8])
    """

    def __init__(self, before: tuple[int, ...], after: tuple[int, ...], grid: Grid) -> None:
        super().__init__()
        self.before, self.after, self.grid = before, after, grid

    @classmethod
    def like(cls, function: Callable[[Tensor], Tensor], before: tuple[int, ...], channels_last: bool) -> Self:
        """Return the module that moves values as a function does, tried on their numbers.

        Args:
            channels_last: whether the result's channels are its last axis; all others become tokens.
        """
        count = prod(before)
        numbers = torch.arange(2 * count).reshape(2, *before)
        places = function(numbers)
        first = places[0]
        alike = len(places) == 2 and torch.equal(places[1], first + count) and bool((first < count).all())
        grid = grid_of(first) if alike else None
        if grid is None:
            rule = "values must be moved along a grid, image by image"
            raise RuleError(rule, got=f"{before} to {tuple(places.shape[1:])}", remedy="use reshapes and permutations")
        after = tuple(first.shape)
        return cls(before, (prod(after[:-1]), after[-1]) if channels_last and len(after) > 1 else after, grid)

    @classmethod
    def to_tokens(cls, channels: int, height: int, width: int) -> Self:
        """Return the module that takes a map (C, H, W) to tokens (H W, C)."""
        return cls.like(lambda x: x.flatten(2).mT, (channels, height, width), channels_last=True)

    @classmethod
    def to_map(cls, channels: int, height: int, width: int, first: int = 0) -> Self:
        """Return the module that takes tokens (first + H W, C) to a map (C, H, W)."""
        tokens = first + height * width, channels
        return cls.like(lambda x: x[:, first:].mT.unflatten(2, (height, width)), tokens, channels_last=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the values in their new places: (N, *after); ``x``: (N, *before), or as many values in this order."""
        flat = x.contiguous().view(len(x), -1)
        if min(self.grid.strides, default=0) < 0:  # torch has no views that go backward
            return flat[:, self.grid.places()].reshape(len(x), *self.after)
        sizes, strides = (len(x), *self.grid.sizes), (flat.shape[1], *self.grid.strides)
        moved = flat.as_strided(sizes, strides, flat.storage_offset() + self.grid.offset)
        return moved.reshape(len(x), *self.after)

    def keeps_channels(self) -> bool:
        """Return whether every value stays in its channel, channels last before and after."""
        channels = torch.arange(self.before[-1])
        moved = self(channels.expand(1, *self.before))[0]
        return self.after[-1] == len(channels) and torch.equal(moved, channels.expand(self.after))

    def keeps_map_channels(self) -> bool:
        """Return whether every value of a map stays in its channel: rows and columns move, all alike."""
        if not len(self.before) == len(self.after) == 3 or self.before[0] != self.after[0]:
            return False
        channels = torch.arange(self.before[0])[:, None, None]
        moved = self(channels.expand(1, *self.before))[0]
        return torch.equal(moved, channels.expand(self.after))

    def extra_repr(self) -> str:
        return f"{self.before} to {self.after}"


class Concat(nn.Module):
    """Concatenation of maps (N, C_i, H, W), or of tokens and vectors with channels last.

    >>> Concat()(torch.zeros(1, 2, 3, 3), torch.ones(1, 4, 3, 3)).shape
    torch.Size([1, 6, 3, 3])
    """

    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1 if parts[0].ndim == 4 else -1)


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
