"""The noise that hides choices of silent transfers has 128 bits by every formula there is for it."""

import numpy as np
import pytest

from benchmarks import lpn_security
from privcirnet.he.mpc.ot.silent import CODE


def test_no_attack_takes_less_than_128_bits():
    found = lpn_security.bits(CODE.trees, CODE.depth, CODE.seed)
    assert min(found.values()) > 128
    assert {*lpn_security.ATTACKS} < {*found}


def test_a_sparse_code_is_weaker_than_its_size_says():
    """Ferret's parameters: more than 100 bits if rows were dense, less on the rows that touch seven tenths of columns."""
    trees, depth, seed = lpn_security.OTHERS["Ferret"]
    whole = lpn_security.Noise(trees << depth, seed, trees, 2.0**-depth)
    columns = (whole.k / whole.n) ** (1 / 9)
    part = whole.part(columns)
    assert part.n == pytest.approx(part.k)
    assert columns == pytest.approx(0.705, abs=0.001)
    assert lpn_security.information_set(whole) > 100
    assert lpn_security.information_set(part) < 90


def test_a_part_of_a_code_is_an_instance_of_its_own():
    """Rows that touch eight tenths of the columns, free of noise, give those unknowns without the others."""
    rng, unknowns, rows, columns = np.random.default_rng(0), 400, 6400, 320
    secret, places = rng.integers(0, 2, unknowns), rng.integers(0, unknowns, (rows, lpn_security.LOCALITY))
    part = places[(places < columns).all(1)]
    assert len(part) == pytest.approx(rows * (columns / unknowns) ** lpn_security.LOCALITY, rel=0.1)
    pivots: dict[int, int] = {}
    for row, word in zip(part, secret[part].sum(1) % 2, strict=True):
        equation = int(word) << columns
        for place in row:
            equation ^= 1 << int(place)
        while equation & ((1 << columns) - 1):
            lowest = (equation & -equation).bit_length() - 1
            if lowest not in pivots:
                pivots[lowest] = equation
                break
            equation ^= pivots[lowest]
    assert len(pivots) >= columns - 2
    found = 0
    for place in range(columns - 1, -1, -1):
        equation = pivots.get(place, int(secret[place]) << columns)
        above = equation & ((1 << columns) - 1) & ~(1 << place)
        found |= ((equation >> columns) ^ (above & found).bit_count() & 1) << place
    assert [found >> i & 1 for i in range(columns)] == secret[:columns].tolist()


def test_the_densest_part_is_smaller_than_a_random_one():
    assert lpn_security.densest(16) == pytest.approx(0.588, abs=0.001)
    assert lpn_security.densest(16) < (1 / 16) ** (1 / 9)
