"""The noise that hides choices of silent transfers has 128 bits by every formula there is for it."""

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


def test_the_densest_part_is_smaller_than_a_random_one():
    assert lpn_security.densest(16) == pytest.approx(0.588, abs=0.001)
    assert lpn_security.densest(16) < (1 / 16) ** (1 / 9)
