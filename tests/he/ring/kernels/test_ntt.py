import numpy as np
import pytest

from privcirnet.he.ring.kernels import ntt
from tests.he.kernel_oracles import SIZES, forward, inverse, point, primes_of, random_residues, value_at


@pytest.mark.parametrize("bits", [*SIZES, 61])
@pytest.mark.parametrize("n", [1024, 4096, 8192])
@pytest.mark.parametrize("largest", [False, True])
def test_entries_are_values_at_roots_of_unity(n: int, bits: int, largest: bool) -> None:
    primes = primes_of((bits,), n)
    polynomial = random_residues(primes, n, seed=bits, largest=largest)
    values = forward(polynomial, primes)
    for i in (0, 1, 63, 64, 1000, n - 1):
        assert int(values[0, i]) == value_at(polynomial[0], point(i, n, primes[0]), primes[0])
    assert np.array_equal(inverse(values, primes), polynomial)


@pytest.mark.parametrize("bits", [30, 61])
def test_lazy_inputs_are_reduced(bits: int) -> None:
    """Both directions take values under 4 p and leave them under p."""
    (p,) = primes = primes_of((bits,), 1024)
    tables = ntt.tables(primes, 1024)
    for transform in (ntt.forward, ntt.inverse):
        reduced = random_residues(primes, 1024, seed=3)
        lazy = reduced + np.uint64(p) * np.random.default_rng(4).integers(0, 4, 1024).astype(np.uint64)
        transform(reduced, tables, 0)
        transform(lazy, tables, 0)
        assert np.array_equal(lazy, reduced)
        assert reduced.max() < p


def test_every_row_and_the_prime_that_was_asked_for() -> None:
    primes = primes_of((55, 48), 1024)
    polynomials = random_residues(primes, 3, 1024)[:, 1]
    values = np.ascontiguousarray(polynomials)
    ntt.forward(values, ntt.tables(primes, 1024), 1)
    for row, polynomial in zip(values, polynomials, strict=True):
        assert int(row[77]) == value_at(polynomial, point(77, 1024, primes[1]), primes[1])
