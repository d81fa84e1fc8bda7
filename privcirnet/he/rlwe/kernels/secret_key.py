"""The client's secret key, and digits of the keys that switch to it, as SEAL makes them, from our own random words.

Maths: s has coefficients that are uniform in {-1, 0, 1}. Digits are those of :mod:`rlwe.kernels.gadget`, in the NTT
domain, with e of SEAL's error distribution. Memory that held s or e is zeroed.
"""

import os
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels import ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import mul_shoup_lazy, quotients, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.sampling import stream, wipe
from privcirnet.he.rlwe.kernels.rns import RnsRing, to_values
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES
from privcirnet.he.system.jit import jit


class EncryptionRandomness(NamedTuple):
    """Randomness of an encryption or of a key's digit.

    Attributes:
        seed: seed of the uniform polynomial; it is sent.
        error: random words for the error, (n,); secret.
    """

    seed: bytes
    error: Residues


def draw(count: int) -> EncryptionRandomness:
    """Return fresh random numbers: a seed of the operating system's, and words from a stream of their own."""
    return EncryptionRandomness(os.urandom(SEED_BYTES), stream()(count))


def generate(ring: RnsRing) -> Residues:
    """Return a fresh secret key in the kernel's order, each word with its quotient: (2, R, n), [word or quotient].

    Args:
        ring: ring of all primes.
    """
    ternary, words = np.empty(ring.degree, dtype=np.uint64), stream()
    while True:
        drawn = words(sampling.ternary_words(ring.degree))
        enough = sampling.ternary(drawn, ternary)
        wipe([drawn])
        if enough:
            break
    key = prepared(ternary, ring)
    wipe([ternary])
    return key


def sparse(ring: RnsRing, weight: int) -> Residues:
    """Return a fresh sparse secret as :func:`generate` does: its places are those of the h smallest of n random words.

    Args:
        ring: ring of all primes.
        weight: h, coefficients that are 1 or -1.

    Returns:
        secret, shape (2, R, n).
    """
    words, ternary = stream()(2 * ring.degree), np.ones(ring.degree, dtype=np.uint64)
    places = np.argpartition(words[: ring.degree], weight)[:weight]
    ternary[places] = 2 * (words[ring.degree + places] & np.uint64(1))
    key = prepared(ternary, ring)
    wipe([words, ternary])
    places.fill(0)
    return key


def prepared(ternary: Residues, ring: RnsRing) -> Residues:
    """Return :func:`generate`'s key for given coefficients.

    Args:
        ternary: each coefficient of s plus 1, (n,).
        ring: ring of all primes.
    """
    key = np.empty((2, len(ring.primes), ring.degree), dtype=np.uint64)
    primes = ring.tables.primes
    np.add(ternary, primes[:, None] - np.uint64(1), out=key[0])  # under 2 p, which transforms reduce
    to_values(key[:1], ring.tables)
    quotients(key[1:], key[:1], primes)
    return key


class KeyDigitPlan(NamedTuple):
    """Place of a digit in a key.

    Attributes:
        first: index of its first data prime.
        end: index behind its last one.
        data: data primes of the key; its other rows are those of the special primes.
        turned: index in the source of each value of s', and its place on the wire, (n,).
    """

    first: int
    end: int
    data: int
    turned: Integers


@jit
def digit(
    words: Residues, source: Residues, target: Residues, error: Residues, form: KeyDigitPlan, ring: RnsRing
) -> None:
    """Turn a into a digit's first polynomial, -(a s + e) + [under its primes: P s'], in place.

    Args:
        words: a, shape (rows, n), each value at its place.
        source: s' under all primes, secret, shape (R, n).
        target: s and its quotients under all primes, secret, shape (2, R, n).
        error: random words, shape (n,).
        ring: ring of all primes.
    """
    noise, dropped = np.empty((1, error.size), dtype=np.uint64), source.shape[0] - words.shape[0]
    turned = form.turned
    for index in range(words.shape[0]):
        limb = index if index < form.data else index + dropped
        p, row, secret, quotient = ring.tables.primes[limb], words[index], target[0, limb], target[1, limb]
        offset, scale = p - np.uint64(sampling.BINOMIAL), ring.division.scale[limb]
        for i in range(error.size):
            noise[0, i] = sampling.binomial(error[i]) + offset
        ntt.forward(noise, ring.tables, limb)
        for i in range(error.size):
            product = reduce_4p(mul_shoup_lazy(row[turned[i]], secret[i], quotient[i], p), p)
            row[turned[i]] = sub_if_ge(p - sub_if_ge(product + noise[0, i], p), p)
        if form.first <= index < form.end:
            for i in range(error.size):
                term = reduce_4p(mul_shoup_lazy(source[limb, turned[i]], scale[0], scale[1], p), p)
                row[turned[i]] = sub_if_ge(row[turned[i]] + term, p)
    noise[:] = 0
