"""Values in new places as one module, which encrypted inference computes for free: each party moves its share alone."""

from collections.abc import Callable
from math import prod
from typing import Self

import torch
from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.nn.functional.grids import Grid, grid_of


class Rearrange(nn.Module):
    """A chain of reshapes, permutations, slices and repetitions of each image's values.

    Args:
        before: shape of an image's values, without the batch; only their number and order matter.
        after: shape of the result, without the batch: a map (C, H, W), tokens (T, C) or a vector (C,).
        grid: source of each place's value (:mod:`privcirnet.nn.functional.grids`).

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
