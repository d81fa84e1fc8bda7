"""Values in new places, none of them computed: each party rearranges its share alone, exactly as in clear.

Tokens are the places of a value (C, T, 1). Channels are split into groups where several heads lie side by side.
:class:`Gather` is every other rearrangement whose places follow from strides: windows, shuffled channels, patches, one
value at many places. The operations here are part of the namespace :mod:`program.operations`.
"""

from dataclasses import dataclass
from math import prod
from typing import assert_never

import numpy as np

from privcirnet.he.layers.integer import tokens, transpose

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Flatten:
    """(C, H, W) to (C H W, 1, 1)."""


@dataclass(frozen=True)
class Tokens:
    """(C, H, W) to (C, 1 + H W, 1): a class token in front of the places. Constants are added to all of them."""


@dataclass(frozen=True)
class Take:
    """One token: (C, T, 1) to (C, 1, 1).

    Attributes:
        place: number of the token, in [0, T).
    """

    place: int


@dataclass(frozen=True)
class Channels:
    """Channels [first, first + count) of (C, H, W).

    Attributes:
        first: number of the first channel.
    """

    first: int
    count: int


@dataclass(frozen=True)
class Transpose:
    """Channels and places of each channel group change places: (g a, b, 1) to (g b, a, 1)."""

    groups: int


@dataclass(frozen=True)
class Gather:
    """Values along a grid: y[i, j, ...] = x[offset + i strides[0] + j strides[1] + ...], x flat, y flat in this order.

    Attributes:
        shape: (C, H, W) of the result, which has as many values as the grid.
        offset: where the grid begins.
        sizes: of the grid's axes, at most :data:`MAX_AXES`.
        strides: one for each axis, of any sign; 0 repeats values.
    """

    shape: Shape
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


MAX_AXES = 8
Rearrangement = Flatten | Tokens | Take | Channels | Transpose | Gather


def rearrange(operation: Rearrangement, x: np.ndarray) -> np.ndarray:
    """Return values or shares in their new places.

    Args:
        x: numbers of any type, shape (C, H, W).

    Returns:
        the same numbers, of the shape that :func:`shape_after` gives. A class token is zero: whoever knows its value
        adds it.
    """
    match operation:
        case Flatten():
            return x.reshape(-1, 1, 1)
        case Tokens():
            return tokens(x)
        case Take(place):
            return x[:, place : place + 1]
        case Channels(first, count):
            return x[first : first + count]
        case Transpose(groups):
            return transpose(x, groups)
        case Gather(shape, offset, sizes, strides):
            return x.reshape(-1)[grid(offset, sizes, strides)].reshape(shape)
        case _:
            assert_never(operation)


def shape_after(operation: Rearrangement, shape: Shape) -> Shape:
    """Return the shape of what :func:`rearrange` gives.

    Args:
        shape: (C, H, W) of the values before.
    """
    channels, height, width = shape
    match operation:
        case Flatten():
            return channels * height * width, 1, 1
        case Tokens():
            return channels, height * width + 1, 1
        case Take():
            return channels, 1, 1
        case Channels(_, count):
            return count, height, width
        case Transpose(groups):
            return groups * height, channels // groups, 1
        case Gather(after):
            return after
        case _:
            assert_never(operation)


def unfit(operation: Rearrangement, shape: Shape) -> str:
    """Return why values of a shape cannot be rearranged, "" if they can.

    Args:
        shape: (C, H, W) of the values.
    """
    channels, height, width = shape
    match operation:
        case Flatten() | Tokens():
            return ""
        case Take() | Transpose() if width != 1:
            return f"tokens of shape {shape}"
        case Take(place):
            return "" if 0 <= place < height else f"token {place} of {height}"
        case Channels(first, count):
            fits = 0 <= first < first + count <= channels
            return "" if fits else f"channels {first} to {first + count} of {channels}"
        case Transpose(groups):
            return f"{groups} groups of {channels} channels" if groups < 1 or channels % groups else ""
        case Gather():
            return _unfit_grid(operation, channels * height * width)
        case _:
            assert_never(operation)


def grid(offset: int, sizes: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    """Return the places of a :class:`Gather` in the flat value, int64, in the order of the result.

    Args:
        offset: where the grid begins.
        strides: one for each axis.

    >>> grid(1, (2, 3), (10, 1)).tolist()
    [1, 2, 3, 11, 12, 13]
    """
    places = np.array([offset])
    for size, stride in zip(sizes, strides, strict=True):
        places = (places[:, None] + stride * np.arange(size)).reshape(-1)
    return places


def _unfit_grid(gather: Gather, count: int) -> str:
    """What is wrong with a grid over so many values; nothing is computed that grows with its numbers."""
    sizes, strides = gather.sizes, gather.strides
    if not len(sizes) == len(strides) <= MAX_AXES or len(gather.shape) != 3 or min(sizes, default=1) < 1:
        return f"a grid of sizes {sizes} and strides {strides}"
    reach = [stride * (size - 1) for size, stride in zip(sizes, strides, strict=True)]
    first, last = (gather.offset + sum(end(0, r) for r in reach) for end in (min, max))
    if prod(sizes) != prod(gather.shape) or not 0 <= first <= last < count:
        return f"a grid of {sizes} over places {first} to {last} of {count} for shape {gather.shape}"
    return ""
