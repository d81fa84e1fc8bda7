"""Squares in residues against products of integers."""

from math import prod

import numpy as np
import pytest

from papers.falcon2020.circuits.square import BfvSquare
from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.rlwe.key_switching import ModulusChain
from privcirnet.he.rlwe.parameters import RlweParameters

N, BITS, T = 1024, 48, (1 << 20) - 3


def chain() -> ModulusChain:
    """Three data primes and a special one; n is a toy's."""
    primes: tuple[int, ...] = ()
    for _ in range(4):
        primes += (modular.largest_prime(BITS, 2 * N, frozenset(primes)),)
    return ModulusChain(RlweParameters(N, primes[:3], primes[3:], 2))


def residues(made: ModulusChain, polynomials: np.ndarray, level: int) -> np.ndarray:
    """Integers as polynomials in the kernel's order, (polynomials, level, n)."""
    rows = np.stack([(polynomials % p).astype(np.uint64) for p in made.parameters.data_primes[:level]], axis=1)
    tables = made.ring.tables
    for limb in range(level):
        own = np.ascontiguousarray(rows[:, limb])
        ntt.forward(own, tables, limb)
        rows[:, limb] = own
    return rows


def integers(made: ModulusChain, values: np.ndarray) -> np.ndarray:
    """The other way round, centred."""
    primes = made.parameters.data_primes[: values.shape[1]]
    q, found = prod(primes), made.coefficients(values).astype(object)
    total = sum(found[:, i] * (q // p * pow(q // p, -1, p)) for i, p in enumerate(primes)) % q
    return np.where(2 * total > q, total - q, total)


def product(a: dict[int, int], b: dict[int, int]) -> np.ndarray:
    """Of sparse polynomials modulo X^n + 1."""
    found = np.zeros(N, dtype=object)
    for i, x in a.items():
        for j, y in b.items():
            found[(i + j) % N] += -x * y if i + j >= N else x * y
    return found


@pytest.mark.slow
def test_a_square_is_the_rounded_product_of_integers_at_every_level():
    made, random = chain(), np.random.default_rng(0)
    for level in (3, 1):
        q = prod(made.parameters.data_primes[:level])
        sparse = [
            {int(i): int(x * q) for i, x in zip(random.integers(0, N, 9), random.random(9) - 0.5, strict=True)}
            for _ in range(2)
        ]
        values = np.zeros((2, N), dtype=object)
        for row, own in zip(values, sparse, strict=True):
            for i, x in own.items():
                row[i] = x
        found = integers(made, BfvSquare(made, T).square(residues(made, values, level)))
        (a, b) = sparse
        for got, exact in zip(found, (product(a, a), 2 * product(a, b), product(b, b)), strict=True):
            scaled = np.array([(2 * T * x + q) // (2 * q) for x in exact], dtype=object)
            wrong = (got - scaled + q // 2) % q - q // 2
            assert np.abs(wrong).max() <= 1, "a rounding may fall to either side"


def test_fewer_data_primes_divide_and_round():
    made = chain()
    q, dropped = prod(made.parameters.data_primes), prod(made.parameters.data_primes[1:])
    values = np.array([[int(x * q) for x in np.random.default_rng(1).random(N) - 0.5]], dtype=object)
    found = integers(made, made.reduced(residues(made, values, 3), 1))
    wrong = (found - (2 * values + dropped) // (2 * dropped)) % made.parameters.data_primes[0]
    assert set(np.unique(np.minimum(wrong, made.parameters.data_primes[0] - wrong))) <= {0, 1}
