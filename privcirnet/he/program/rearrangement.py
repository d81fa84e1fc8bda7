"""Values in new places, none of them computed: what each party does alone with its share, as with the integers.

Tokens are the places of a value (C, T, 1). Channels are split in groups where several heads lie side by side.
"""

from dataclasses import dataclass

import numpy as np

from privcirnet.he.encodings.integer import tokens, transpose

Shape = tuple[int, int, int]


@dataclass(frozen=True)
class Flatten:
    """(C, H, W) to (C H W, 1, 1)."""


@dataclass(frozen=True)
class Tokens:
    """(C, H, W) to (C, 1 + H W, 1): a class token in front of the places. Constants are added to all of them."""


@dataclass(frozen=True)
class Take:
    """One token: (C, T, 1) to (C, 1, 1)."""

    place: int


@dataclass(frozen=True)
class Channels:
    """Channels [first, first + count) of (C, H, W)."""

    first: int
    count: int


@dataclass(frozen=True)
class Transpose:
    """Channels and places of each channel group change places: (g a, b, 1) to (g b, a, 1)."""

    groups: int


Rearrangement = Flatten | Tokens | Take | Channels | Transpose


def rearrange(operation: Rearrangement, x: np.ndarray) -> np.ndarray:
    """Values or shares (C, H, W) in their new places; a class token is zero, for whoever has its value to add it."""
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


def shape_after(operation: Rearrangement, shape: Shape) -> Shape:
    """The shape of what :func:`rearrange` gives."""
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


def unfit(operation: Rearrangement, shape: Shape) -> str:
    """Why values of this shape cannot be rearranged, "" if they can."""
    channels, height, width = shape
    match operation:
        case Channels(first, count) if not 0 <= first < first + count <= channels:
            return f"channels {first} to {first + count} of {channels}"
        case Take() | Transpose() if width != 1:
            return f"tokens of shape {shape}"
        case Take(place) if not 0 <= place < height:
            return f"token {place} of {height}"
        case Transpose(groups) if groups < 1 or channels % groups:
            return f"{groups} groups of {channels} channels"
        case _:
            return ""
