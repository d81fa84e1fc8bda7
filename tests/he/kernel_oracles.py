"""Slow Python integers beside the kernels: random residues, transforms by their definition, negacyclic products."""

import functools

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import ntt
from privcirnet.he.ring.modular import Residues

SIZES = [30, 48, 55, 60]
"""Bits of primes."""


@functools.cache
def primes_of(bits: tuple[int, ...], n: int) -> tuple[int, ...]:
    """Different primes of these sizes that are 1 mod 2n."""
    found: list[int] = []
    for size in bits:
        found.append(modular.largest_prime(size, 2 * n, frozenset(found)))
    return tuple(found)


def random_residues(primes: tuple[int, ...], *shape: int, seed: int = 0, largest: bool = False) -> Residues:
    """Residues (*shape[:-1], primes, n), shape ending in n; all p - 1 if ``largest``."""
    random = np.random.default_rng(seed)
    *lead, n = shape
    found = [np.full((*lead, n), p - 1) if largest else random.integers(0, p, (*lead, n)) for p in primes]
    return np.stack(found, axis=-2).astype(np.uint64)


def residues_mod(shape: tuple[int, ...], t: int, seed: int = 0) -> Residues:
    """Residues of which the first are t - 1."""
    residues = np.random.default_rng(seed).integers(0, t, shape, dtype=np.uint64)
    residues.reshape(-1)[: min(3, residues.size)] = t - 1
    return residues


def prime_under(bound: float, n: int) -> int:
    """The largest prime under a bound that is 1 mod 2n."""
    candidate = (int(bound) - 2) // (2 * n) * 2 * n + 1
    while not modular.is_prime(candidate):
        candidate -= 2 * n
    return candidate


def value_at(coefficients: Residues, x: int, p: int) -> int:
    """A polynomial's value (Horner)."""
    total = 0
    for coefficient in coefficients[::-1].tolist():
        total = (total * x + coefficient) % p
    return total


def bit_reversed(i: int, n: int) -> int:
    return int(f"{i:0{n.bit_length() - 1}b}"[::-1], 2)


def point(i: int, n: int, p: int) -> int:
    """Where entry i of the kernel's order is the value: psi^(2 brv(j) + 1), j its place in SEAL's order."""
    place = int(ntt.kernel_order(n)[i])
    return pow(ntt.minimal_root(2 * n, p), 2 * bit_reversed(place, n) + 1, p)


def forward(polynomial: Residues, primes: tuple[int, ...]) -> Residues:
    """Coefficients (L, n) to the kernel's order, a copy."""
    values = polynomial.copy()
    for limb in range(len(primes)):
        ntt.forward(values[limb : limb + 1], ntt.tables(primes, polynomial.shape[1]), limb)
    return values


def inverse(values: Residues, primes: tuple[int, ...]) -> Residues:
    """The kernel's order (L, n) to coefficients, a copy."""
    polynomial = values.copy()
    for limb in range(len(primes)):
        ntt.inverse(polynomial[limb : limb + 1], ntt.tables(primes, values.shape[1]), limb)
    return polynomial


def integers(polynomial: Residues, primes: tuple[int, ...]) -> list[int]:
    """Coefficients (L, n) as integers in (-Q/2, Q/2] (Chinese remainders)."""
    q = int(np.prod([1], dtype=object))
    for p in primes:
        q *= p
    weights = [q // p * pow(q // p, -1, p) for p in primes]
    found = [sum(w * int(x) for w, x in zip(weights, column, strict=True)) % q for column in polynomial.T]
    return [x - q if x > q // 2 else x for x in found]


def automorphism(coefficients: list[int], element: int) -> list[int]:
    """a(X^g) mod X^n + 1 by its definition."""
    n = len(coefficients)
    rotated = [0] * n
    for i, a in enumerate(coefficients):
        place = i * element % (2 * n)
        rotated[place % n] += -a if place >= n else a
    return rotated


def negacyclic(first: list[int], second: list[int], p: int) -> list[int]:
    """A product mod (X^n + 1, p), by one product of two large integers."""
    n, width = len(first), 2 * p.bit_length() + len(first).bit_length()
    left, right = (sum(x % p << width * i for i, x in enumerate(own)) for own in (first, second))
    product, mask = left * right, (1 << width) - 1
    digits = [product >> width * i & mask for i in range(2 * n)]
    return [(low - high) % p for low, high in zip(digits[:n], digits[n:], strict=True)]


def errors(words: Residues) -> list[int]:
    """The errors that random words stand for: ones among the lowest 21 bits less those among the next 21."""
    half = (1 << 21) - 1
    return [(word & half).bit_count() - (word >> 21 & half).bit_count() for word in words.tolist()]
