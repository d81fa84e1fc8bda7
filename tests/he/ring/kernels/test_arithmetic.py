"""Word arithmetic against Python integers, at the ends of every range and in between."""

import numpy as np
import pytest

from privcirnet.he.ring.kernels.arithmetic import barrett_lazy, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit

TOP = (1 << 64) - 1
WORDS = [0, 1, 2, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, (1 << 63) - 1, 1 << 63, TOP - 1, TOP]
RANDOM = [int(word) for word in np.random.default_rng(3).integers(0, TOP, 20, dtype=np.uint64, endpoint=True)]
MODULI = [2, 3, 40961, (1 << 36) - 5, 36028797017456641, (1 << 60) - 93, (1 << 61) - 1]


@jit
def all_times(a: Residues, w: np.uint64, quotient: np.uint64, p: np.uint64, made: Residues) -> None:
    for i in range(a.size):
        made[i] = mul_shoup_lazy(a[i], w, quotient, p)


@jit
def all_folded(a: Residues, one: np.uint64, p: np.uint64, made: Residues) -> None:
    for i in range(a.size):
        made[i] = barrett_lazy(a[i], one, p)


@pytest.mark.parametrize("p", MODULI)
def test_times(p: int) -> None:
    """Any word times any constant, also the words that make the quotient's estimate too small."""
    words = WORDS + RANDOM + [TOP - TOP % p - 1, TOP - TOP % p, p, p - 1]
    for w in {0, 1, p // 2, p - 1, *(word % p for word in RANDOM[:5])}:
        made = np.empty(len(words), dtype=np.uint64)
        all_times(np.array(words, dtype=np.uint64), np.uint64(w), np.uint64((w << 64) // p), np.uint64(p), made)
        assert [x % p for x in made.tolist()] == [word * w % p for word in words]
        assert made.max() < 4 * p
    made = np.empty(len(words), dtype=np.uint64)
    all_folded(np.array(words, dtype=np.uint64), np.uint64((1 << 64) // p), np.uint64(p), made)
    assert [x % p for x in made.tolist()] == [word % p for word in words]
    assert made.max() < 4 * p


@pytest.mark.parametrize("p", MODULI)
def test_conditional_subtractions(p: int) -> None:
    for x in (0, 1, p - 1, p, p + 1, 2 * p - 1):
        assert sub_if_ge(np.uint64(x), np.uint64(p)) == x % p
    for x in (0, p - 1, p, 2 * p - 1, 2 * p, 3 * p, 4 * p - 1):
        assert reduce_4p(np.uint64(x), np.uint64(p)) == x % p
