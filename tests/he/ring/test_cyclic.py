"""Cyclic transforms against the sum in Python's integers."""

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ring import cyclic, modular
from tests.he.kernel_oracles import residues_mod

LENGTHS = (1, 2, 3, 5, 6, 8, 9, 12, 15, 16, 17, 33)
T = modular.largest_prime(61, 16 * 9 * 5 * 11 * 17)


def slow_cyclic(x: list[int], t: int) -> list[int]:
    """y[k] = sum_j x[j] w^(j k), w of order N."""
    root = modular.root_of_unity(len(x), t)
    return [sum(v * pow(root, j * k, t) for j, v in enumerate(x)) % t for k in range(len(x))]


@pytest.mark.parametrize("length", LENGTHS)
def test_cyclic_equals_the_sum(length: int) -> None:
    """The largest values too, which must not overflow."""
    for x in (residues_mod((length,), T), np.full(length, T - 1, dtype=np.uint64)):
        assert cyclic.cyclic(x, 0, T).tolist() == slow_cyclic(x.tolist(), T)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("sizes", [(9, 8, 5), (17, 3, 16), (5, 17, 300)])
def test_each_axis_alone(sizes: tuple[int, ...], axis: int) -> None:
    t = modular.largest_prime(61, 16 * 9 * 5 * 17 * 25)
    x = residues_mod(sizes, t)
    before = x.copy()
    found = np.moveaxis(cyclic.cyclic(x, axis, t), axis, -1)
    source = np.moveaxis(x, axis, -1)
    for index in ((0, 0), (-1, -1), (2, 1)):
        assert found[index].tolist() == slow_cyclic(source[index].tolist(), t)
    assert (x == before).all()


@pytest.mark.parametrize("length", LENGTHS)
def test_inverse(length: int) -> None:
    x = residues_mod((4, length, 7), T)
    assert (cyclic.cyclic(cyclic.cyclic(x, 1, T), 1, T, inverse=True) == x).all()


def test_length_must_divide() -> None:
    with pytest.raises(RuleError, match="must divide t - 1: got length 7"):
        cyclic.cyclic(np.zeros((2, 7), dtype=np.uint64), 1, T)


@pytest.mark.parametrize("axes", [(), (0,), (2,), (0, 1, 2)])
@pytest.mark.parametrize("terms", [1, 3])
@pytest.mark.parametrize("inverse", [False, True])
def test_cells_are_sums_of_gathered_values_transformed(axes: tuple[int, ...], terms: int, inverse: bool) -> None:
    cells, shape = 7, (3, 5, 8)
    source = residues_mod((4, 100), T)
    numbers = np.random.default_rng(0).integers(0, source.size + 1, (terms, cells, 120), dtype=np.int32)
    numbers[:, 0, :3] = 0, 1, source.size
    values = [0, *source.reshape(-1).tolist()]
    wanted = np.array([sum(values[place] for place in column) % T for column in numbers.reshape(terms, -1).T])
    wanted = wanted.astype(np.uint64).reshape(cells, *shape)
    for axis in axes:
        wanted = cyclic.cyclic(wanted, axis + 1, T, inverse=inverse)
    found = cyclic.cyclic_cells(source, numbers, shape, axes, T, inverse=inverse)
    assert (found == wanted.reshape(cells, -1)).all()
    assert cyclic.gather(source, numbers[0]).tolist() == [[values[place] for place in row] for row in numbers[0]]
