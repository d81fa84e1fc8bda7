"""Places that lie on a grid: a rearrangement of many values in a few numbers.

A chain of reshapes, permutations, slices and repetitions takes value number ``places[i]`` to place i. These places are
a grid: offset + i strides[0] + j strides[1] + ..., with i, j, ... counting through its sizes. Rolls and pads have no
grid.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


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
