"""Plaintexts: slots to the polynomials that ciphertexts are multiplied with, or that are added to them.

Maths: a plaintext m mod (X^n + 1, t) has the slots m(psi^(3^i)) and m(psi^(-3^i)), so its coefficients are an inverse
transform mod t of the slots in another order (:func:`slot_order`). It is multiplied as it is, lifted to (-t/2, t/2).
It is added as round(q m / t): with r = q mod t, m floor(q / t) + floor((m r + floor((t + 1) / 2)) / t), as SEAL does.
"""

from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.batching import slot_exponents
from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    barrett_lazy,
    estimate,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.kernels.ntt import Tables, forward, inverse, kernel_order, tables
from privcirnet.he.ring.modular import Integers, Residues, bit_reversed
from privcirnet.he.system.jit import jit


class Plain(NamedTuple):
    """Constants of plaintexts under some data primes.

    Attributes:
        order: slot that stands at each place of the kernel's order, (n,).
        primes: (L,).
        modulus: t mod p, (L,).
        ones: floor(2^64 / p), (L,).
        delta: floor(q / t) mod p and its quotient, (L, 2).
        remainder: q mod t and its quotient mod t, (2,).
    """

    order: Integers
    tables: Tables
    primes: Residues
    modulus: Residues
    ones: Residues
    delta: Residues
    remainder: Residues


def plain(t: int, primes: tuple[int, ...], n: int) -> Plain:
    """Return the constants of plaintexts.

    Args:
        primes: data primes.
    """
    q = 1
    for p in primes:
        q *= p
    return Plain(
        slot_order(n),
        tables((t,), n),
        np.array(primes, dtype=np.uint64),
        np.array([t % p for p in primes], dtype=np.uint64),
        np.array([(1 << 64) // p for p in primes], dtype=np.uint64),
        np.stack([with_quotient(q // t % p, p) for p in primes]),
        with_quotient(q % t, t),
    )


def slot_order(n: int) -> Integers:
    """Return the slot that stands at each place of the kernel's order, shape (n,).

    Slot i of row 0 is the value at psi^(3^i), of row 1 at psi^(-3^i); place j in SEAL's order at psi^(2 brv(j) + 1).
    """
    place = bit_reversed(n)[slot_exponents(n) // 2]
    return np.argsort(place)[kernel_order(n)]


@jit
def coefficients(slots: Residues, plain: Plain) -> Residues:
    """Return the coefficients mod t of the plaintext with some slots, shape (n,).

    Args:
        slots: residues mod t, shape (n,).
    """
    values = np.empty((1, slots.size), dtype=np.uint64)
    for i in range(slots.size):
        values[0, i] = slots[plain.order[i]]
    inverse(values, plain.tables, 0)
    return values[0]


@jit
def slots(polynomial: Residues, plain: Plain) -> Residues:
    """Return the slots of a plaintext, shape (n,): the inverse of :func:`coefficients`.

    Args:
        polynomial: coefficients, residues mod t, shape (n,).
    """
    values, ordered = polynomial.copy().reshape(1, -1), np.empty_like(polynomial)
    forward(values, plain.tables, 0)
    for i in range(ordered.size):
        ordered[plain.order[i]] = values[0, i]
    return ordered


@jit
def factor(target: Residues, slots: Residues, plain: Plain, tables: Tables) -> None:
    """Compute a plaintext for products in the NTT domain.

    Args:
        target: written, shape (L, n), in the kernel's order.
        slots: slots of the plaintext, residues mod t, shape (n,).
        tables: NTT tables of the L primes.
    """
    t, polynomial = plain.tables.primes[0], coefficients(slots, plain)
    middle = (t + np.uint64(1)) >> np.uint64(1)
    for limb in range(target.shape[0]):
        p, ratio, modulus = plain.primes[limb], plain.ones[limb], plain.modulus[limb]
        for i in range(polynomial.size):
            lifted = reduce_4p(barrett_lazy(polynomial[i], ratio, p), p)
            target[limb, i] = lifted + p - modulus if polynomial[i] >= middle else lifted
        forward(target[limb : limb + 1], tables, limb)


@jit
def add(target: Residues, slots: Residues, plain: Plain) -> None:
    """Add a plaintext to the first polynomial of a ciphertext, in place.

    Args:
        target: c0 in coefficient form, shape (L, n).
        slots: slots of the plaintext, residues mod t, shape (n,).
    """
    t, polynomial = plain.tables.primes[0], coefficients(slots, plain)
    remainder, quotient, middle = plain.remainder[0], plain.remainder[1], (t + np.uint64(1)) >> np.uint64(1)
    rounded = np.empty_like(polynomial)
    for i in range(polynomial.size):
        rounded[i] = _quotient(polynomial[i], remainder, quotient, middle, t)
    for limb in range(target.shape[0]):
        row, p, ratio = target[limb], plain.primes[limb], plain.ones[limb]
        delta, delta_quotient = plain.delta[limb, 0], plain.delta[limb, 1]
        for i in range(polynomial.size):
            term = mul_shoup_lazy(polynomial[i], delta, delta_quotient, p) + barrett_lazy(rounded[i], ratio, p)
            row[i] = sub_if_ge(row[i] + reduce_4p(sub_if_ge(term, p + p + p + p), p), p)


@jit
def _quotient(m: Word, constant: Word, quotient: Word, offset: Word, t: Word) -> Word:
    """Return floor((m constant + offset) / t) for m, constant < t < 2^61, offset <= t / 2 + 1.

    The estimate is at most 3 too small and the offset adds at most 1: what is left over is under 5 t < 2^64.
    """
    whole = estimate(m, quotient)
    rest = m * constant + offset - whole * t
    two = t + t
    more = np.uint64(rest >= t) + np.uint64(rest >= two) + np.uint64(rest >= two + t) + np.uint64(rest >= two + two)
    return whole + more
