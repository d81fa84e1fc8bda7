"""Layers that blocks do not divide: the upper left part of a larger circulant matrix."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.errors import RuleError
from privcirnet.nn.functional.circulant import (
    admissible_block_sizes,
    expand,
    is_circulant,
    pad_blocks,
    project,
    squared_error,
)
from tests.nn.functional.test_circulant import random_weight


def slow_diagonals(shape: tuple[int, ...], b: int) -> dict[tuple[int, int, int], list[tuple[int, int]]]:
    """The places of each circulant diagonal that the weight has: (block row, block column, i - j mod b) -> [(i, j)]."""
    places: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
    for i in range(shape[0]):
        for j in range(shape[1]):
            places.setdefault((i // b, j // b, (i - j) % b), []).append((i, j))
    return places


@st.composite
def padded_shapes(draw: st.DrawFn) -> tuple[tuple[int, ...], int]:
    """(shape, block size) of weights whose sizes are any of at least b."""
    b = draw(st.sampled_from([2, 3, 4, 8]))
    sizes = tuple(draw(st.integers(b, 3 * b)) for _ in range(2))
    return (*sizes, *draw(st.sampled_from([(), (3, 3), (1, 2)]))), b


@given(padded_shapes(), st.integers(0, 99), st.booleans())
def test_the_projection_is_the_mean_of_each_diagonal_s_own_entries(
    found: tuple[tuple[int, ...], int], seed: int, weighted: bool
) -> None:
    shape, b = found
    weight = random_weight(shape, seed, dtype=torch.float64)
    importance = random_weight(shape, seed + 1, dtype=torch.float64).clamp_min(0) if weighted else None
    rows = project(weight, b, importance, pad=True)
    nearest = expand(rows, b, shape[:2])
    assert rows.shape == (-(-shape[0] // b), -(-shape[1] // b) * b, *shape[2:])
    assert nearest.shape == weight.shape
    for places in slow_diagonals(shape, b).values():
        entries = torch.stack([weight[place] for place in places])
        masses = torch.ones_like(entries) if importance is None else torch.stack([importance[p] for p in places])
        mean = torch.where(masses.sum(0) > 0, (masses * entries).sum(0) / masses.sum(0), entries.mean(0))
        for place in places:
            torch.testing.assert_close(nearest[place], mean, rtol=1e-12, atol=1e-12)


@given(padded_shapes(), st.integers(0, 99))
def test_a_padded_product_is_that_of_the_larger_circulant_matrix_without_its_last_rows(
    found: tuple[tuple[int, ...], int], seed: int
) -> None:
    (out, into, *_), b = found
    rows = project(random_weight((out, into), seed, dtype=torch.float64), b, pad=True).mul(1 << 20).round()
    x = random_weight((into, 3), seed, dtype=torch.float64).mul(1 << 20).round()  # integers: sums are exact
    whole = expand(rows, b) @ torch.cat([x, x.new_zeros(rows.shape[1] - into, 3)])
    assert torch.equal(expand(rows, b, (out, into)) @ x, whole[:out])


@given(padded_shapes(), st.integers(0, 99))
def test_a_weight_that_is_circulant_already_keeps_every_bit(found: tuple[tuple[int, ...], int], seed: int) -> None:
    shape, b = found
    weight = expand(project(random_weight(shape, seed, dtype=torch.float64), b, pad=True), b, shape[:2])
    assert is_circulant(weight, b, pad=True)
    assert not is_circulant(weight + random_weight(shape, seed + 2, dtype=torch.float64), b, pad=True)
    assert torch.equal(squared_error(weight, torch.ones_like(weight), b, pad=True), torch.zeros_like(weight))


@pytest.mark.parametrize(("shape", "b", "free"), [((100, 845), 8, 0), ((163, 83), 16, 11), ((10, 100), 8, 3)])
def test_diagonals_without_an_entry_are_zero_and_change_nothing(shape: tuple[int, int], b: int, free: int) -> None:
    """Falcon's layers: b x b - (r + c - 1) of the last block's diagonals have no entry in r rows and c columns."""
    rows = project(torch.ones(shape), b, pad=True)
    assert rows.numel() - int(rows.sum()) == free
    assert torch.equal(expand(torch.where(rows == 0, 7.0, rows), b, shape), torch.ones(shape))


def test_where_blocks_divide_padding_changes_nothing() -> None:
    weight, importance = (
        random_weight((8, 12, 3, 3), 0, dtype=torch.float64),
        random_weight((8, 12, 3, 3), 1, dtype=torch.float64).clamp_min(0),
    )
    assert pad_blocks(weight, 4) is weight
    for given_importance in (None, importance):
        assert torch.equal(project(weight, 4, given_importance, pad=True), project(weight, 4, given_importance))


def test_gradients_reach_every_diagonal_that_the_weight_has() -> None:
    rows = torch.ones(13, 848, requires_grad=True)
    expand(rows, 8, (100, 845)).sum().backward()
    assert rows.grad is not None
    assert rows.grad.sum() == 100 * 845
    assert (rows.grad > 0).all()


def test_padding_must_be_asked_for_and_blocks_must_not_be_larger_than_the_weight() -> None:
    weight = torch.ones(100, 845)
    with pytest.raises(RuleError, match=r"must divide both weight dimensions: got 8 for \(100, 845\).*pad=true"):
        project(weight, 8)
    with pytest.raises(RuleError, match=r"at most both weight dimensions: got 128 for \(100, 845\)"):
        project(weight, 128, pad=True)
    assert admissible_block_sizes((100, 845)) == (1,)
    assert admissible_block_sizes((100, 845), pad=True) == (1, 2, 4, 8, 16)
    assert admissible_block_sizes((10, 845), pad=True) == (1, 2, 4, 8)
