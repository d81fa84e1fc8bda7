"""Rotations: key switching with hoisting, and division by the special prime.

Maths (hybrid key switching as SEAL does it, one digit for each data prime q_d; P is the special prime): with c1 in
coefficient form, digit d is c1 mod q_d, lifted to all primes and transformed. For an automorphism g and key K_g,

    a = sum over d of digit_d * g^-1(K_g,d),    rotation of (c0, c1) = g((c0, 0) + a / P)     rounded division.

Hoisting (Halevi and Shoup, 2018): the digits are made once for all rotations of a ciphertext, since g acts on values as
a permutation; it is moved to the end, so that the keys carry g^-1 (done once, when they are loaded). Double hoisting
(Bossuat et al., 2021): sums of rotations are added before the division, as P (c0, 0) + a.

Differs from SEAL in the digits' representatives (g of a lift is not the lift of g): the same noise, other bits.
"""

from typing import NamedTuple

import numpy as np

from privcirnet.compiled.jit import inline, jit
from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    barrett_lazy,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.kernels.ntt import Tables, forward, kernel_order
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.roots import bit_reversed


class Division(NamedTuple):
    """Constants of the division by the last of some primes.

    Attributes:
        primes: (L,), the last one is the divisor P.
        ones: floor(2^64 / p), (L,).
        half: P / 2 mod p, (L,).
        inverse: 1 / P mod p and its quotient, (L, 2); zeros for P itself.
        scale: P mod p and its quotient, (L, 2).
    """

    primes: Residues
    ones: Residues
    half: Residues
    inverse: Residues
    scale: Residues


def division(primes: tuple[int, ...]) -> Division:
    """Return the constants of the division by the last of some primes.

    Args:
        primes: the last one is the divisor.
    """
    divisor, others = primes[-1], primes[:-1]
    return Division(
        np.array(primes, dtype=np.uint64),
        np.array([(1 << 64) // p for p in primes], dtype=np.uint64),
        np.array([(divisor >> 1) % p for p in primes], dtype=np.uint64),
        np.stack([*(with_quotient(pow(divisor, -1, p), p) for p in others), np.zeros(2, dtype=np.uint64)]),
        np.stack([with_quotient(divisor % p, p) for p in primes]),
    )


def rotation(step: int, n: int) -> Integers:
    """Return where each value of a rotated ciphertext comes from, in the kernel's order, shape (n,).

    The Galois element is g = 3^step mod 2n (:func:`automorphism`).

    Args:
        step: columns by which both slot rows are rotated to the left.
    """
    return automorphism(pow(3, step, 2 * n), n)


def automorphism(element: int, n: int) -> Integers:
    """Return where each value of a polynomial a(X^g) comes from among those of a(X), in the kernel's order, shape (n,).

    Entry i, the value at psi^(2 brv(i) + 1), is the old one at g times that exponent.

    Args:
        element: g, odd, modulo 2n.
    """
    order, reversed_bits = kernel_order(n), bit_reversed(n)
    exponents = (2 * reversed_bits + 1) * element % (2 * n)
    return np.argsort(order)[reversed_bits[exponents // 2]][order]


@jit
def decompose(digits: Residues, polynomial: Residues, values: Residues, tables: Tables, limb: int) -> None:
    """Compute all digits of a polynomial under one prime, transformed.

    Args:
        digits: written, shape (L, L + 1, n): [:, limb] in the kernel's order.
        polynomial: c1 in coefficient form, shape (L, n).
        values: c1 in the kernel's order, shape (L, n): digit d under prime d.
        tables: of all L + 1 primes.
        limb: which prime.
    """
    p, one = tables.primes[limb], tables.ones[limb]
    for digit in range(polynomial.shape[0]):
        if digit == limb:
            digits[digit, limb] = values[limb]
        else:
            for i in range(polynomial.shape[1]):
                digits[digit, limb, i] = barrett_lazy(polynomial[digit, i], one, p)
            forward(digits[digit, limb : limb + 1], tables, limb)


@jit
def divide_values(values: Residues, rest: Residues, tables: Tables, division: Division, limb: int) -> None:
    """Compute (values - rest) / P under one prime, in place.

    Both are the same polynomial; the rest under P is what has to be subtracted to make it divisible by P. It is taken
    in [-P/2, P/2), as (rest + P/2) mod P - P/2, so that the division rounds.

    Args:
        values: in the kernel's order, shape (n,).
        rest: the polynomial under P, in coefficient form, shape (n,).
        tables: of all primes.
        division: by the last of them.
        limb: which prime.
    """
    p, divisor = division.primes[limb], division.primes[-1]
    factor, quotient = division.inverse[limb, 0], division.inverse[limb, 1]
    lifted = np.empty((1, values.size), dtype=np.uint64)
    for i in range(values.size):
        lifted[0, i] = _lifted(rest[i], divisor, division.ones[limb], division.half[limb], p)
    forward(lifted, tables, limb)
    for i in range(values.size):
        values[i] = reduce_4p(mul_shoup_lazy(values[i] + p - lifted[0, i], factor, quotient, p), p)


@jit
def divide_coefficients(polynomial: Residues, division: Division) -> None:
    """Divide a polynomial in coefficient form by the last prime and round, in place.

    Args:
        polynomial: shape (L, n); the quotient is in its first L - 1 rows.
        division: by the last of L primes.
    """
    last = polynomial.shape[0] - 1
    divisor = division.primes[last]
    for limb in range(last):
        p, one, offset = division.primes[limb], division.ones[limb], division.half[limb]
        factor, quotient = division.inverse[limb, 0], division.inverse[limb, 1]
        for i in range(polynomial.shape[1]):
            rest = _lifted(polynomial[last, i], divisor, one, offset, p)
            polynomial[limb, i] = reduce_4p(mul_shoup_lazy(polynomial[limb, i] + p + p - rest, factor, quotient, p), p)


@inline
def _lifted(rest: Word, divisor: Word, one: Word, offset: Word, p: Word) -> Word:
    """Return the representative in [-P/2, P/2) of a residue mod P, mod p, under 2 p; see :class:`Division`."""
    centred = sub_if_ge(rest + (divisor >> np.uint64(1)), divisor)
    return reduce_4p(barrett_lazy(centred, one, p), p) + p - offset


@jit
def add_permuted(total: Residues, term: Residues, order: Integers, p: Word) -> None:
    """Compute total[i] += term[order[i]] mod p, in place.

    Args:
        total: residues, shape (n,).
        term: residues, shape (n,).
        order: places in ``term``, shape (n,).
        p: prime.
    """
    for i in range(order.size):
        total[i] = sub_if_ge(total[i] + term[order[i]], p)


@jit
def add_scaled(total: Residues, values: Residues, division: Division, limb: int) -> None:
    """Compute total += P values under one prime, in place.

    Args:
        total: residues, shape (n,).
        values: residues, shape (n,).
        division: by P.
        limb: which prime.
    """
    p, factor, quotient = division.primes[limb], division.scale[limb, 0], division.scale[limb, 1]
    for i in range(values.size):
        total[i] = sub_if_ge(total[i] + reduce_4p(mul_shoup_lazy(values[i], factor, quotient, p), p), p)
