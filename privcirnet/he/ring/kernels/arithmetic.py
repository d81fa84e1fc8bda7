"""Modular arithmetic of 64-bit words inside kernels: lazy, without branches or divisions, in a form that vectorises.

Lazy: a product is left under 4 p instead of p, and reduced once where it matters. All differences wrap mod 2^64.

Sources: V. Shoup's multiplication by a constant with a precomputed quotient, in the lazy form of D. Harvey, "Faster
arithmetic for number-theoretic transforms" (2014); P. Barrett's reduction (1986).
"""

from typing import Any

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline, jit

Word = Any
"""A 64-bit word, ``numpy.uint64``: checkers take an element of an array of them for an array."""

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def with_quotient(constant: int, p: int) -> Residues:
    """Return a constant and floor(constant 2^64 / p), for :func:`mul_shoup_lazy`, shape (2,); ``constant``: under p."""
    return np.array([constant, (constant << 64) // p], dtype=np.uint64)


@jit
def quotients(target: Residues, words: Residues, primes: Residues) -> None:
    """Compute floor(word 2^64 / p) of many constants by long division, a bit at a time, without branches.

    Args:
        target: written, shape (count, L, n).
        words: residues, shape (count, L, n).
        primes: shape (L,).
    """
    for index in range(words.shape[0]):
        for limb in range(words.shape[1]):
            p = primes[limb]
            for i in range(words.shape[2]):
                rest, quotient = words[index, limb, i], np.uint64(0)
                for _ in range(64):
                    rest = rest + rest
                    bit = np.uint64(rest >= p)
                    rest = rest - bit * p
                    quotient = quotient + quotient + bit
                target[index, limb, i] = quotient


@inline
def estimate(x: Word, quotient: Word) -> Word:
    """Return floor(x constant / p) or at most 3 less, for constant < p.

    It is the upper half of x quotient without the carry of its lowest quarter. Its products are of 32-bit halves, which
    vector units have.

    Args:
        x: any 64-bit word.
        quotient: floor(constant 2^64 / p).
    """
    high, low, q_high, q_low = x >> _HALF, x & _LOW, quotient >> _HALF, quotient & _LOW
    return high * q_high + ((high * q_low) >> _HALF) + ((low * q_high) >> _HALF)


@inline
def divided(x: Word, constant: Word, quotient: Word, p: Word) -> tuple[Word, Word]:
    """Return floor(x constant / p) and what is left, under p.

    Args:
        x: any 64-bit word.
        constant: number under p.
        quotient: floor(constant 2^64 / p).
        p: modulus under 2^62.
    """
    guess = estimate(x, quotient)  # at most 3 too small
    remainder = x * constant - guess * p
    more = np.uint64(remainder >= p) + np.uint64(remainder >= p + p) + np.uint64(remainder >= p + p + p)
    return guess + more, remainder - more * p


@inline
def mul_shoup_lazy(x: Word, constant: Word, quotient: Word, p: Word) -> Word:
    """Return x constant mod p, under 4 p (Shoup).

    Args:
        x: any 64-bit word.
        constant: number under p.
        quotient: floor(constant 2^64 / p).
        p: modulus under 2^62.
    """
    return x * constant - estimate(x, quotient) * p


@inline
def barrett_lazy(x: Word, ratio: Word, p: Word) -> Word:
    """Return x mod p, under 4 p: :func:`mul_shoup_lazy` with the constant 1.

    Args:
        x: any 64-bit word.
        ratio: floor(2^64 / p).
        p: modulus under 2^62.
    """
    return x - estimate(x, ratio) * p


@inline
def sub_if_ge(x: Word, m: Word) -> Word:
    """Return x - m where x >= m, else x: where x < m the difference wraps to a huge number."""
    return min(x, x - m)


@inline
def reduce_4p(x: Word, p: Word) -> Word:
    """Return x mod p for x in [0, 4 p); ``x``: a word under 4 p; ``p``: modulus under 2^62."""
    return sub_if_ge(sub_if_ge(x, p + p), p)
