"""Random integers that hide a reply, compiled: ternary, binomial, or a sum of three uniform ones.

Flooding noise is tested against Python's integers on the same random words. The other distributions are SEAL's. The
words are those of a reply's own stream (:mod:`ring.sampling`). No sampler branches on a value that it keeps.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring import sampling
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge, with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import Words
from privcirnet.he.system.jit import inline, jit

BINOMIAL = 21
"""Random bits on each side of an error: :data:`ring.sampling.ERROR_BITS`, as a number in this file because compiled
code is only dropped when a file of a folder named kernels changes."""

_FIELDS = 32
_TWO, _THREE = np.uint64(2), np.uint64(3)


def ternary_words(count: int) -> int:
    """Return the number of words for :func:`ternary`: a third more than it needs on average, so that they suffice."""
    return -(-2 * count // _FIELDS)


class FloodingNoise(NamedTuple):
    """Flooding noise in digits, and the constants that make residues of it.

    Attributes:
        digits: :func:`ring.sampling.flood_digits`, (digits, count).
        starts: minus the offset mod p for each prime, (primes,).
        weights: weight of each digit mod p and its quotient, (primes, digits, 2).
    """

    digits: Residues
    starts: Residues
    weights: Residues


def flooding(bits: int, primes: tuple[int, ...], count: int, words: Words) -> FloodingNoise:
    """Draw flooding noise, sums of three uniform integers of width 2^bits about zero, in digits.

    Args:
        bits: log2 of the width of each of its three parts, at least 1.
        primes: primes of the modulus, each under 2^61.

    Returns:
        noise for :func:`add_flood`.
    """
    return FloodingNoise(sampling.flood_digits(bits, count, words), *_constants(bits, primes))


@lru_cache(maxsize=64)
def _constants(bits: int, primes: tuple[int, ...]) -> tuple[Residues, Residues]:
    powers, offset = sampling.flood_powers(bits)
    starts = np.array([-offset % p for p in primes], dtype=np.uint64)
    return starts, np.array([[with_quotient(power % p, p) for power in powers] for p in primes])


@jit
def add_flood(target: Residues, flood: FloodingNoise, limb: int, p: Word) -> None:
    """Add flooding noise to a polynomial under one prime, in place.

    Formula: start + sum over digits of digit x weight. Each term is exact in [0, p), so no sum passes 2 p.

    Args:
        target: residues, shape (n,).
        flood: result of :func:`flooding` for n integers.
        limb: index of ``p`` among its primes.
    """
    start = flood.starts[limb]
    for k in range(flood.digits.shape[0]):
        digits, weight, quotient = flood.digits[k], flood.weights[limb, k, 0], flood.weights[limb, k, 1]
        for i in range(target.size):
            target[i] = sub_if_ge(target[i] + reduce_4p(mul_shoup_lazy(digits[i], weight, quotient, p), p), p)
    for i in range(target.size):
        target[i] = sub_if_ge(target[i] + start, p)


@jit
def ternary(words: Residues, draws: Residues) -> bool:
    """Draw integers that are uniform in {0, 1, 2}, exactly so: those in {-1, 0, 1} plus 1.

    A word has 32 candidates of two bits, from the lowest, of which 3 is rejected. A candidate is written before it is
    known to count, and the place moves on only if it does: which ones count says nothing about those that do.

    Args:
        words: random words, shape (words,).
        draws: written, shape (count,).

    Returns:
        False if the words do not fill ``draws``.
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


@inline
def binomial(word: Word) -> Word:
    """Return 21 + (ones among bits 0 to 20) - (ones among bits 21 to 41) of a word, in [0, 42].

    An error is 21 less: SEAL's distribution, of deviation sqrt(10.5) = 3.24. Formula: 21 minus the ones of the
    second half are the ones of its complement, so this is one count of 42 bits.

    Args:
        word: random word.
    """
    half = np.uint64((1 << BINOMIAL) - 1)
    return _ones((word & half) | (~word & (half << np.uint64(BINOMIAL))))


@inline
def _ones(x: Word) -> Word:
    """Count the bits of a word that are one: sums of 2, 4 and 8 neighbours, then all eight by a product."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)
