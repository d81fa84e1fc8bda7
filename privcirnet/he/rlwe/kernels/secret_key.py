"""The client's secret key, and the Galois keys that it makes: what SEAL makes, from random words of our own.

Maths: s has coefficients that are uniform in {-1, 0, 1}. The key of an automorphism g switches g(s) to s: digit d is

    (-(a s + e) + [under prime d: P g(s)], a),    a uniform, e of SEAL's error distribution, P the special prime,

under all L + 1 primes and in the NTT domain, a being uniform there in SEAL's order. Memory that held s or e is zeroed.
"""

import os
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.compiled.jit import jit
from privcirnet.he.ring.kernels import ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import mul_shoup_lazy, quotients, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.stream import stream
from privcirnet.he.ring.wipe import wipe
from privcirnet.he.rlwe.kernels import blake2xb, keyswitch, wire_bytes
from privcirnet.he.rlwe.kernels.modulus import Ring, to_values
from privcirnet.he.rlwe.kernels.receive import uniform
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES

_order = lru_cache(maxsize=8)(ntt.kernel_order)


class Draws(NamedTuple):
    """Randomness of an encryption or of a key's digit.

    Attributes:
        seed: of the uniform polynomial; it is sent.
        error: random words for the error, (n,); secret.
    """

    seed: bytes
    error: Residues


def draw(count: int) -> Draws:
    """Return fresh random numbers: a seed of the operating system's, and words from a stream of their own."""
    return Draws(os.urandom(SEED_BYTES), stream()(count))


def generate(ring: Ring) -> Residues:
    """Return a fresh secret key in the kernel's order, each word with its quotient: (2, L + 1, n), [word or quotient].

    Args:
        ring: of all L + 1 primes.
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


def sparse(ring: Ring, weight: int) -> Residues:
    """Return a fresh sparse secret as :func:`generate` does: its places are those of the h smallest of n random words.

    Args:
        ring: of all primes.
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


def prepared(ternary: Residues, ring: Ring) -> Residues:
    """Return :func:`generate`'s key for given coefficients.

    Args:
        ternary: each coefficient of s plus 1, (n,).
        ring: of all L + 1 primes.
    """
    key = np.empty((2, len(ring.primes), ring.degree), dtype=np.uint64)
    primes = ring.tables.primes
    np.add(ternary, primes[:, None] - np.uint64(1), out=key[0])  # under 2 p, which transforms reduce
    to_values(key[:1], ring.tables)
    quotients(key[1:], key[:1], primes)
    return key


def galois_digit(key: Residues, step: int, digit: int, ring: Ring, bits: Residues) -> bytes:
    """Return one digit of a rotation's key, as compact bytes (:mod:`rlwe.wire_bytes`).

    Args:
        key: secret, shape (2, L + 1, n).
        step: columns by which both slot rows are rotated to the left.
        digit: which, 0 to L - 1.
        ring: of all L + 1 primes.
        bits: of a packed residue of each prime.
    """
    words, order = np.empty(key.shape[1:], dtype=np.uint64), _order(ring.degree)
    rotated = keyswitch.rotation(step, ring.degree)
    made, limits = wire_bytes.packed(ring.degree, bits), blake2xb.bounds(ring.primes)
    while True:
        drawn = draw(ring.degree)
        (roots,) = blake2xb.roots([drawn.seed], words.size)
        enough = uniform(words, roots, limits)
        if enough:
            _galois_digit(words, key, rotated, digit, drawn.error, ring, order)
            wire_bytes.pack_into(made, words, bits)
        wipe([drawn.error])
        if enough:
            return wire_bytes.octets(made, ring.degree, bits) + drawn.seed


@jit
def _galois_digit(  # noqa: PLR0913, PLR0917
    words: Residues, key: Residues, rotated: Integers, digit: int, error: Residues, ring: Ring, order: Integers
) -> None:
    """Turn a into the digit's first polynomial, (L + 1, n) in SEAL's order."""
    noise = np.empty((1, error.size), dtype=np.uint64)
    for limb in range(words.shape[0]):
        p, row, own, quotient = ring.tables.primes[limb], words[limb], key[0, limb], key[1, limb]
        offset, scale = p - np.uint64(sampling.BINOMIAL), ring.division.scale[limb]
        for i in range(error.size):
            noise[0, i] = sampling.binomial(error[i]) + offset
        ntt.forward(noise, ring.tables, limb)
        for i in range(error.size):
            product = reduce_4p(mul_shoup_lazy(row[order[i]], own[i], quotient[i], p), p)
            row[order[i]] = sub_if_ge(p - sub_if_ge(product + noise[0, i], p), p)
        if limb == digit:
            for i in range(error.size):
                term = reduce_4p(mul_shoup_lazy(own[rotated[i]], scale[0], scale[1], p), p)
                row[order[i]] = sub_if_ge(row[order[i]] + term, p)
    noise[:] = 0
