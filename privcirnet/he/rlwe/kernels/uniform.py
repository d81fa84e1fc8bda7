"""The uniform polynomial that a seed stands for: a stream of words whose key it is, reduced under each prime.

A ciphertext or a key digit is the bytes of its first polynomial and such a seed (:func:`receive`).

Layout: word i n + j of the stream (:mod:`ring.sampling`) is for coefficient j under prime i of L. A word that is not
under the largest multiple of its prime gives way to the next spare word that is; spare words are those from L n on.
So residues are exactly uniform if the words are. Primes just under powers of two reject no word in a lifetime.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import barrett_lazy, reduce_4p
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import stream
from privcirnet.he.rlwe.kernels import wire_bytes
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Message, WireFormat, not_under
from privcirnet.he.system.jit import jit

_SPARE = 512
"""Spare words at first; where they are too few, the stream is made again with twice as many."""


class Bounds(NamedTuple):
    """Constants that turn words into residues.

    Attributes:
        primes: p, (primes,).
        ones: floor(2^64 / p), (primes,).
        limits: the largest multiple of p up to 2^64, from which on a word is rejected, (primes,).
    """

    primes: Residues
    ones: Residues
    limits: Residues


@lru_cache(maxsize=64)
def bounds(primes: tuple[int, ...]) -> Bounds:
    """Return the constants that turn words into residues of some primes.

    Args:
        primes: odd, under 2^61.
    """
    ones = [(1 << 64) // p for p in primes]
    limits = [ratio * p for ratio, p in zip(ones, primes, strict=True)]
    return Bounds(np.array(primes, np.uint64), np.array(ones, np.uint64), np.array(limits, np.uint64))


def fill(target: Residues, seed: bytes, bounds: Bounds) -> None:
    """Make the uniform polynomial that a seed stands for.

    Args:
        target: written, residues, shape (L, n).
        seed: 32 bytes.
        bounds: constants of L primes.
    """
    spare = _SPARE
    while not reduce(target, stream(seed)(target.size + spare), bounds):
        spare *= 2


def expanded(seed: bytes, modulus: WireFormat) -> Residues:
    """Return the uniform polynomial that a seed stands for, shape (L, n).

    Args:
        seed: 32 bytes.
        modulus: L primes.
    """
    polynomial = np.empty((len(modulus.primes), modulus.ring_degree), dtype=np.uint64)
    fill(polynomial, seed, bounds(modulus.primes))
    return polynomial


@jit
def reduce(target: Residues, words: Residues, bounds: Bounds) -> bool:
    """Turn words into residues; rejected words are replaced by spare ones.

    Args:
        target: written, shape (L, n).
        words: L n, then the spare ones.
        bounds: constants of L primes.

    Returns:
        False if the spare words are too few; some residues are then not written.
    """
    n, spare = target.shape[1], target.size
    for j in range(target.shape[0]):
        row, candidates, rejected = target[j], words[j * n : (j + 1) * n], np.uint64(0)
        p, ratio, limit = bounds.primes[j], bounds.ones[j], bounds.limits[j]
        for i in range(n):
            row[i] = reduce_4p(barrett_lazy(candidates[i], ratio, p), p)
            rejected += np.uint64(candidates[i] >= limit)
        if rejected:
            for i in range(n):
                if candidates[i] < limit:
                    continue
                while spare < words.size and words[spare] >= limit:
                    spare += 1
                if spare == words.size:
                    return False
                row[i] = reduce_4p(barrett_lazy(words[spare], ratio, p), p)
                spare += 1
    return True


def receive(target: Residues, message: Message, sent: Integers, modulus: WireFormat) -> None:
    """Read a seeded ciphertext or a key digit.

    Args:
        target: written, residues, shape (2, L, n).
        message: coefficients of the first polynomial in compact bytes, then the seed of the second, of the length that
            the modulus and the kept coefficients fix.
        sent: ascending places of these coefficients; the others are zero.
        modulus: L primes.

    Raises:
        RuleError: a residue is not under its prime.
    """
    size = len(message) - SEED_BYTES
    # One more word than the residues fill: unpacking reads two neighbours for each.
    packed, bits = np.frombuffer(message, dtype=np.uint64, count=-(-size // 8) + 1), np.array(modulus.bits)
    limits = bounds(modulus.primes)
    if not unpack(target[0], packed, sent, limits.primes, bits):
        raise not_under()
    fill(target[1], bytes(message[size:]), limits)


@jit
def unpack(polynomial: Residues, packed: Residues, sent: Integers, primes: Residues, bits: Integers) -> bool:
    """Read some coefficients of a polynomial.

    Args:
        polynomial: written, residues, shape (L, n); those that are not there become zero.
        packed: compact bytes in 64-bit words, and one word more.
        sent: ascending places of the coefficients that are there.
        primes: shape (L,).
        bits: width of a packed residue of each prime, 8 to 64.

    Returns:
        False if a residue is not under its prime.
    """
    if sent.size == polynomial.shape[1]:
        return wire_bytes.unpack_into(polynomial, packed, primes, bits)
    some = np.empty((primes.size, sent.size), dtype=np.uint64)
    under = wire_bytes.unpack_into(some, packed, primes, bits)
    polynomial[:] = 0
    for limb in range(primes.size):
        for i in range(sent.size):
            polynomial[limb, sent[i]] = some[limb, i]
    return under
