"""Values in new places, none of them computed: each party rearranges its share alone, exactly as in clear.

Tokens are the places of a value (C, T, 1). Channels are split into groups where several heads lie side by side.
:class:`AsStrided` is every other rearrangement whose places follow from strides: windows, shuffled channels, patches,
one value at many places. :class:`Sampled` is a side of a window that may reach over the edges.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from privcirnet.he.layers.integer import tokens, transpose
from privcirnet.he.program.limits import MAX_KERNEL
from privcirnet.he.program.operation import Domain, Node, Operation, Shape, V, Weights, require_weights


class Rearrangement(Operation):
    """An operation on one value that gives it new places."""

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return numbers in their new places; ``x``: of any type, shape (C, H, W)."""
        raise NotImplementedError

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.move(self.places, arguments[0])

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        return self.unfit(sources[0].shape)

    def unfit(self, shape: Shape) -> str:
        """Return why values of a shape (C, H, W) cannot be rearranged, "" if they can."""
        return ""


@dataclass(frozen=True)
class Flatten(Rearrangement):
    """(C, H, W) to (C H W, 1, 1)."""

    kind: ClassVar[str] = "flatten"

    def places(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(-1, 1, 1)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return prod(shapes[0]), 1, 1


@dataclass(frozen=True)
class Tokens(Rearrangement):
    """(C, H, W) to (C, 1 + H W, 1): a class token in front of the places. Constants are added to all of them."""

    kind: ClassVar[str] = "tokens"

    needs_share = True

    def places(self, x: np.ndarray) -> np.ndarray:
        """Return a class token is zero: whoever knows its value adds it."""
        return tokens(x)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.plus(on.move(self.places, arguments[0]), require_weights(weights).bias[..., None])

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        channels, height, width = shapes[0]
        return channels, height * width + 1, 1

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"bias": shape[:2]}


@dataclass(frozen=True)
class Take(Rearrangement):
    """Selection of one token: (C, T, 1) to (C, 1, 1).

    Attributes:
        place: number of the token, in [0, T).
    """

    kind: ClassVar[str] = "take"

    place: int

    def places(self, x: np.ndarray) -> np.ndarray:
        return x[:, self.place : self.place + 1]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0][0], 1, 1

    def unfit(self, shape: Shape) -> str:
        if shape[2] != 1:
            return f"tokens of shape {shape}"
        return "" if 0 <= self.place < shape[1] else f"token {self.place} of {shape[1]}"


@dataclass(frozen=True)
class SliceChannels(Rearrangement):
    """Channels [first, first + count) of (C, H, W).

    Attributes:
        first: number of the first channel.
    """

    kind: ClassVar[str] = "channels"

    first: int
    count: int

    def places(self, x: np.ndarray) -> np.ndarray:
        return x[self.first : self.first + self.count]

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return self.count, *shapes[0][1:]

    def unfit(self, shape: Shape) -> str:
        last = self.first + self.count
        return "" if 0 <= self.first < last <= shape[0] else f"channels {self.first} to {last} of {shape[0]}"


@dataclass(frozen=True)
class Transpose(Rearrangement):
    """Channels and places of each channel group change places: (g a, b, 1) to (g b, a, 1)."""

    kind: ClassVar[str] = "transpose"

    groups: int

    def places(self, x: np.ndarray) -> np.ndarray:
        return transpose(x, self.groups)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        channels, height, _ = shapes[0]
        return self.groups * height, channels // self.groups, 1

    def unfit(self, shape: Shape) -> str:
        if shape[2] != 1:
            return f"tokens of shape {shape}"
        split = self.groups >= 1 and shape[0] % self.groups == 0
        return "" if split else f"{self.groups} groups of {shape[0]} channels"


@dataclass(frozen=True)
class AsStrided(Rearrangement):
    """Values along a grid: y[i, j, ...] = x[offset + i strides[0] + j strides[1] + ...], x flat, y flat in this order.

    Attributes:
        shape: (C, H, W) of the result, which has as many values as the grid.
        offset: position at which the grid begins.
        sizes: lengths of the grid's axes, at most :data:`MAX_AXES`.
        strides: steps of each axis, of any sign; 0 repeats values.
    """

    kind: ClassVar[str] = "gather"

    shape: Shape
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]

    def places(self, x: np.ndarray) -> np.ndarray:
        return x.reshape(-1)[grid(self.offset, self.sizes, self.strides)].reshape(self.shape)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return self.shape

    def unfit(self, shape: Shape) -> str:
        """Return the problem of the grid, "" if it fits; the work does not grow with the grid's numbers."""
        sizes, strides, count = self.sizes, self.strides, prod(shape)
        if not len(sizes) == len(strides) <= MAX_AXES or len(self.shape) != 3 or min(sizes, default=1) < 1:
            return f"a grid of sizes {sizes} and strides {strides}"
        reach = [stride * (size - 1) for size, stride in zip(sizes, strides, strict=True)]
        first, last = (self.offset + sum(end(0, r) for r in reach) for end in (min, max))
        if prod(sizes) != prod(self.shape) or not 0 <= first <= last < count:
            return f"a grid of {sizes} over places {first} to {last} of {count} for shape {self.shape}"
        return ""


@dataclass(frozen=True)
class Sampled(Rearrangement):
    """Rows (or columns) number first, first + stride, ...; beyond an edge, those at the edge.

    Attributes:
        axis: 1 for rows, 2 for columns.
        first: number of the first row, which may be negative.
        count: number of rows.
    """

    kind: ClassVar[str] = "sampled"

    axis: int
    first: int
    stride: int
    count: int

    def places(self, x: np.ndarray) -> np.ndarray:
        positions = self.first + self.stride * np.arange(self.count)
        return x.take(positions.clip(0, x.shape[self.axis] - 1), axis=self.axis)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        channels, height, width = shapes[0]
        return (channels, self.count, width) if self.axis == 1 else (channels, height, self.count)

    def unfit(self, shape: Shape) -> str:
        """Return the problem of the grid, "" if it fits; the work does not grow with its numbers."""
        fits = self.axis in (1, 2) and 1 <= self.stride <= MAX_KERNEL and -MAX_KERNEL <= self.first <= MAX_KERNEL
        fits = fits and 1 <= self.count <= shape[self.axis] + MAX_KERNEL
        return "" if fits else f"{self.count} places from {self.first} on along axis {self.axis} of {shape}"


MAX_AXES = 8


def grid(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return the places of a :class:`AsStrided` in the flat value, int64, in the order of the result.

    >>> grid(1, (2, 3), (10, 1)).tolist()
    [1, 2, 3, 11, 12, 13]
    """
    places = np.array([offset])
    for size, stride in zip(sizes, strides, strict=True):
        places = (places[:, None] + stride * np.arange(size)).reshape(-1)
    return places
