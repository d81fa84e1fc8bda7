"""The split of residues: its digits add up, are as small as promised, and are as few as can be."""

import numpy as np
import pytest

from privcirnet.he.mpc.local.products import EXACT_BITS, split
from privcirnet.he.ring import modular

MODULI = [modular.largest_prime(bits, 2) for bits in (3, 20, 41, 54, 60, 61)]


@pytest.mark.parametrize("t", MODULI)
@pytest.mark.parametrize("weight_bits", [0, 10, 23, 24, 33, 48])
def test_limbs_add_up_and_are_small_enough(t: int, weight_bits: int) -> None:
    found = split(t, 1 << weight_bits)
    values = np.random.default_rng(0).integers(0, t, 10_000, dtype=np.uint64)
    edges = {0, 1, t // 2, t // 2 + 1, t - 1, *(((1 << i) + j) % t for i in range(found.width * 2) for j in (-1, 0, 1))}
    rest = centered = modular.centered(np.concatenate([values, np.array(sorted(edges), dtype=np.uint64)]), t)
    total = np.zeros(len(rest), dtype=object)
    for digit in range(found.count):
        low, rest = found.cut(rest, digit)
        total += low.astype(object) * (1 << (found.width * digit))
        assert int(np.abs(low).max()) << weight_bits <= 1 << EXACT_BITS
        assert found.power(digit) == (1 << (found.width * digit)) % t
    assert (total == centered.astype(object)).all()


def test_as_few_limbs_as_can_be() -> None:
    t = MODULI[4]
    assert [split(t, 1 << bits).count for bits in (0, 23, 24, 33, 34)] == [2, 2, 3, 3, 4]
    assert split(MODULI[2], 1 << 12).count == 1
