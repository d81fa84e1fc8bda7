"""What hides a reply: small and wide random polynomials, each from a fresh seed of the operating system.

The seed's words come from :func:`privcirnet.he.kernels.seeds.stream`. No sampler branches on a value that it keeps.
"""

import os
from functools import lru_cache

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.kernels import seeds
from privcirnet.he.kernels.arithmetic import Word, once, reduced, times
from privcirnet.he.kernels.jit import inline, jit
from privcirnet.he.modular import Residues
from privcirnet.he.params import SEED_BYTES

_FIELDS = 32
_BINOMIAL = 21
_LIMB, _MAX_BITS = 64, 191
_TWO, _THREE = np.uint64(2), np.uint64(3)


def ternary(primes: tuple[int, ...], ring_degree: int) -> Residues:
    """Integers that are uniform in {-1, 0, 1}, exactly so, as residues.

    A word has 32 candidates of two bits, of which 3 is rejected: 24 numbers on average. Words for a third more than
    that are drawn, and twice as many where they do not suffice.

    Args:
        primes: of the modulus, each under 2^61.
        ring_degree: n.

    Returns:
        residues of the same integers under every prime, shape (primes, n).
    """
    seed, words = os.urandom(SEED_BYTES), -(-2 * ring_degree // _FIELDS)
    draws = np.empty(ring_degree, dtype=np.uint64)
    while not _fields(seeds.stream(seed, words), draws):
        words *= 2
    return _centered(draws, 1, primes)


def centered_binomial(primes: tuple[int, ...], ring_degree: int) -> Residues:
    """Differences of two sums of 21 random bits, as residues: SEAL's error, of deviation sqrt(10.5) = 3.24.

    Args:
        primes: of the modulus, each under 2^61.
        ring_degree: n.

    Returns:
        residues of the same integers in [-21, 21] under every prime, shape (primes, n).
    """
    draws = seeds.stream(os.urandom(SEED_BYTES), ring_degree)
    _differences(draws)
    return _centered(draws, _BINOMIAL, primes)


def flooding(bits: int, primes: tuple[int, ...], ring_degree: int) -> Residues:
    """Uniform integers in [-2^bits, 2^bits), as residues: :func:`privcirnet.he.flooding.sample`, compiled.

    Args:
        bits: of the range, 0 to 191.
        primes: of the modulus, each under 2^61.
        ring_degree: n.

    Returns:
        residues of the same integers under every prime, shape (primes, n).

    Raises:
        RuleError: more bits than three words have.
    """
    if not 0 <= bits <= _MAX_BITS:
        raise RuleError(
            f"flooding noise must have 0 to {_MAX_BITS} bits", got=bits, remedy="choose parameters with less noise"
        )
    count = bits // _LIMB + 1
    limbs = seeds.stream(os.urandom(SEED_BYTES), count * ring_degree).reshape(count, ring_degree)
    limbs[-1] &= np.uint64((2 << bits % _LIMB) - 1)
    made = np.empty((len(primes), ring_degree), dtype=np.uint64)
    _weighted_sums(limbs, *_weights(bits, primes), made)
    return made


def _centered(draws: Residues, offset: int, primes: tuple[int, ...]) -> Residues:
    made = np.empty((len(primes), len(draws)), dtype=np.uint64)
    _shift(draws, np.uint64(offset), np.array(primes, dtype=np.uint64), made)
    return made


@lru_cache(maxsize=64)
def _weights(bits: int, primes: tuple[int, ...]) -> tuple[Residues, Residues, Residues, Residues]:
    """Primes p, -2^bits mod p, and for each prime and limb 2^(64 limb) mod p and its quotient: (primes, limbs)."""
    weights = [[pow(2, _LIMB * limb, p) for limb in range(bits // _LIMB + 1)] for p in primes]
    quotients = [[(w << 64) // p for w in row] for row, p in zip(weights, primes, strict=True)]
    starts = np.array([-(1 << bits) % p for p in primes], dtype=np.uint64)
    return np.array(primes, np.uint64), starts, np.array(weights, np.uint64), np.array(quotients, np.uint64)


@jit
def _fields(words: Residues, draws: Residues) -> bool:
    """The two-bit fields of words that are not 3, from the lowest, fill ``draws``; False if there are too few.

    A field is written before it is known to count, and the place moves on only if it does: which fields count says
    nothing about those that do.
    """
    place = 0
    for word in words:
        rest = word
        for _ in range(_FIELDS):
            field = rest & _THREE
            rest = rest >> _TWO
            draws[place] = field
            place += int(field < _THREE)
            if place == draws.size:
                return True
    return False


@jit
def _differences(words: Residues) -> None:
    """Each word becomes 21 + (ones among bits 0 to 20) - (ones among bits 21 to 41), in [0, 42].

    Formula: 21 minus the ones of the second half are the ones of its complement, so this is one count of 42 bits.
    """
    half = np.uint64((1 << _BINOMIAL) - 1)
    for i in range(words.size):
        words[i] = _ones((words[i] & half) | (~words[i] & (half << np.uint64(_BINOMIAL))))


@inline
def _ones(x: Word) -> Word:
    """How many bits of a word are one: sums of 2, 4 and 8 neighbours, then all eight by a product."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@jit
def _shift(draws: Residues, offset: Word, primes: Residues, made: Residues) -> None:
    """(draw - offset) mod p into ``made``, (primes, n), for draws in [0, 2 offset] and p > offset."""
    for j in range(primes.size):
        row, p = made[j], primes[j]
        for i in range(draws.size):
            row[i] = once(draws[i] + (p - offset), p)


@jit
def _weighted_sums(
    limbs: Residues, primes: Residues, starts: Residues, weights: Residues, quotients: Residues, made: Residues
) -> None:
    """(start + sum over limbs of limb 2^(64 index)) mod p into ``made``, (primes, n); limbs are (limbs, n), any words.

    Each term is exact in [0, p), so no sum passes 2 p.
    """
    for j in range(primes.size):
        row, p = made[j], primes[j]
        row[:] = starts[j]
        for k in range(limbs.shape[0]):
            limb, weight, quotient = limbs[k], weights[j, k], quotients[j, k]
            for i in range(limb.size):
                row[i] = once(row[i] + reduced(times(limb[i], weight, quotient, p), p), p)
