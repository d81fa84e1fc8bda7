"""Grids: what chains of reshapes and permutations come to, and what is none."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.nn.moves import Grid, grid_of


def places_of(grid: Grid) -> list[int]:
    """One place after the other, as the class says it."""
    numbers = itertools.product(*map(range, grid.sizes))
    return [grid.offset + sum(i * stride for i, stride in zip(each, grid.strides, strict=True)) for each in numbers]


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-9, 9)), max_size=4), st.integers(-5, 5))
def test_every_grid_is_found(axes, offset):
    grid = Grid(offset, tuple(size for size, _ in axes), tuple(stride for _, stride in axes))
    places = places_of(grid)
    assert grid.places().tolist() == places
    found = grid_of(torch.tensor(places))
    assert found is not None
    assert places_of(found) == places
    assert len(found.sizes) <= len(axes)


@pytest.mark.parametrize("places", [[3, 0, 1, 2], [0, 1, 3], [0, 1, 2, 3, 5, 6], [1, 1, 2, 2, 4, 4]])
def test_what_lies_on_no_grid_is_none(places):
    assert grid_of(torch.tensor(places)) is None
