"""Sums, differences, multiples and truncations of shares against Python's integers."""

import numpy as np
import pytest

from privcirnet.he.mpc.local import parallel
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.ring import modular
from privcirnet.he.system import threads

MODULI = [modular.largest_prime(bits, 2) for bits in (4, 20, 41, 54, 60, 61)]


def edges(t: int) -> list[np.ndarray]:
    """Every pair of values at the edges of what there is."""
    values = sorted({0, 1, 2, t // 2, t // 2 + 1, t - 2, t - 1, *(1 << i for i in range((t - 1).bit_length()))})
    return [np.array(x, dtype=np.uint64) for x in np.meshgrid(values, values)]


@pytest.mark.parametrize("t", MODULI)
def test_sums_and_differences(t: int) -> None:
    x, y = edges(t)
    a, b = x.astype(object), y.astype(object)
    assert (parallel.add(x, y, t) == (a + b) % t).all()
    assert (parallel.subtract(x, y, t) == (a - b) % t).all()


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("bits", [0, 1, 7, 30, 59])
def test_multiples(t: int, bits: int) -> None:
    share, _ = edges(t)
    for factor in (1 << bits, -(1 << bits) - 1):
        assert (parallel.times(share, factor, t) == share.astype(object) * factor % t).all()


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("bits", [1, 7, 30, 59])
def test_truncations(t: int, bits: int) -> None:
    share, _ = edges(t)
    exact = share.astype(object)
    assert (parallel.truncate_server(share, bits) == exact >> bits).all()
    assert (parallel.truncate_client(share, bits, t) == -((t - exact) >> bits) % t).all()


def test_many_values_on_several_threads() -> None:
    t, count = MODULI[3], 5 * passes.AT_ONCE + 3
    x, y = (np.random.default_rng(seed).integers(0, t, count, dtype=np.uint64) for seed in (0, 1))
    with threads.using(3):
        assert (parallel.add(x, y, t) == modular.add(x, y, t)).all()
        assert (parallel.subtract(x, y, t) == modular.subtract(x, y, t)).all()
