"""Conversion of residues between bases of primes, and division, without big integers.

Maths (Halevi, Polyakov and Shoup, 2019, section 2): for x mod Q = q_1 ... q_S with y_s = x (Q / q_s)^-1 mod q_s,

    x = sum over s of y_s Q / q_s - v Q,    v = round(sum of y_s / q_s),

which is the representative in [-Q/2, Q/2) and, taken mod p, its residue there. v is a small integer that floats give;
where they round the other way the representative is another one, off by Q, as close to Q/2 as a float is to 1/2.

With one prime it is the residue minus q where it is over q / 2 (:func:`lift`), without floats and products.

Cost: S lazy products for each coefficient and each new prime.
"""

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    barrett_lazy,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.jit import inline, jit


class BaseConversion(NamedTuple):
    """Constants for S primes to T others.

    Attributes:
        sources: the S primes.
        inverse: (Q / q)^-1 mod q and its quotient, (S, 2).
        reciprocals: 1 / q, (S,).
        targets: the T primes.
        ones: floor(2^64 / p), (T,).
        parts: Q / q mod p and its quotient, (T, S, 2).
        whole: -v Q mod p for v = 0, ..., S, (T, S + 1).
    """

    sources: Residues
    inverse: Residues
    reciprocals: npt.NDArray[np.float64]
    targets: Residues
    ones: Residues
    parts: Residues
    whole: Residues


class ModDownConstants(NamedTuple):
    """Constants of the rounded division by the product P of some primes, under others.

    Attributes:
        conversion: constants of the conversion from the former primes to the latter.
        inverse: 1 / P mod p and its quotient, (T, 2); zeros for the divisors.
        scale: P mod p and its quotient, (T, 2).
    """

    conversion: BaseConversion
    inverse: Residues
    scale: Residues


@lru_cache(maxsize=256)
def base_conversion(sources: tuple[int, ...], targets: tuple[int, ...]) -> BaseConversion:
    """Return the constants of a conversion; ``sources``: S primes under 2^61; ``targets``: T primes under 2^61."""
    q = prod(sources)
    return BaseConversion(
        np.array(sources, dtype=np.uint64),
        np.stack([with_quotient(pow(q // s, -1, s), s) for s in sources]),
        np.array([1 / s for s in sources]),
        np.array(targets, dtype=np.uint64),
        np.array([(1 << 64) // p for p in targets], dtype=np.uint64),
        np.array([[with_quotient(q // s % p, p) for s in sources] for p in targets], dtype=np.uint64),
        np.array([[-v * q % p for v in range(len(sources) + 1)] for p in targets], dtype=np.uint64),
    )


@lru_cache(maxsize=256)
def mod_down_constants(divisors: tuple[int, ...], primes: tuple[int, ...]) -> ModDownConstants:
    """Return the constants of a division.

    Args:
        divisors: primes under 2^61.
        primes: moduli under 2^61; the divisors may be among them.
    """
    product, none = prod(divisors), np.zeros(2, dtype=np.uint64)
    return ModDownConstants(
        base_conversion(divisors, primes),
        np.stack([none if p in divisors else with_quotient(pow(product, -1, p), p) for p in primes]),
        np.stack([with_quotient(product % p, p) for p in primes]),
    )


@jit
def scale(scaled: Residues, multiples: Integers, polynomials: Residues, constants: BaseConversion) -> None:
    """Compute the values that all new primes share: y and v.

    Args:
        scaled: y, written, shape (S, n).
        multiples: v, written, shape (n,).
        polynomials: coefficients, reduced, shape (S, n).
    """
    if scaled.shape[0] == 1:
        scaled[0] = polynomials[0]
        return
    total = np.full(multiples.size, 0.5)
    for s in range(scaled.shape[0]):
        q, factor, quotient = constants.sources[s], constants.inverse[s, 0], constants.inverse[s, 1]
        reciprocal = constants.reciprocals[s]
        for i in range(multiples.size):
            y = reduce_4p(mul_shoup_lazy(polynomials[s, i], factor, quotient, q), q)
            scaled[s, i] = y
            total[i] += np.float64(np.int64(y)) * reciprocal
    for i in range(multiples.size):
        multiples[i] = np.int64(total[i])


@jit
def convert(target: Residues, scaled: Residues, multiples: Integers, constants: BaseConversion, number: int) -> None:
    """Compute the residues under one new prime.

    Args:
        target: written, coefficients under 5 p, for a transform, shape (n,).
        scaled: y, shape (S, n).
        multiples: v, shape (n,).
        number: index among the T primes.
    """
    p, whole = constants.targets[number], constants.whole[number]
    if scaled.shape[0] == 1:
        lift(target, scaled[0], constants.sources[0], constants.ones[number], p)
        return
    for i in range(target.size):
        target[i] = whole[multiples[i]]
    for s in range(scaled.shape[0]):
        factor, quotient = constants.parts[number, s, 0], constants.parts[number, s, 1]
        for i in range(target.size):
            target[i] = sub_if_ge(target[i] + reduce_4p(mul_shoup_lazy(scaled[s, i], factor, quotient, p), p), p)


@jit
def lift(target: Residues, source: Residues, q: Word, ratio: Word, p: Word) -> None:
    """Compute the residues mod p of numbers in [-q/2, q/2) that are given mod q, one prime.

    Args:
        target: written, under 5 p, shape (n,).
        source: residues mod q, shape (n,).
        ratio: floor(2^64 / p).
    """
    half = q >> np.uint64(1)
    offset = p - reduce_4p(barrett_lazy(half, ratio, p), p)
    for i in range(target.size):
        target[i] = barrett_lazy(sub_if_ge(source[i] + half, q), ratio, p) + offset


@inline
def lifted(integer: Word, ratio: Word, p: Word) -> Word:
    """Return a signed integer mod p, reduced.

    Args:
        integer: any of 64 bits but the least.
        ratio: floor(2^64 / p).
        p: prime under 2^61.
    """
    size = reduce_4p(barrett_lazy(np.uint64(abs(integer)), ratio, p), p)
    return sub_if_ge(p - size, p) if integer < 0 else size
