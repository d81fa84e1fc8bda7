"""Polynomials in residues: a modulus's tables, and operations on rows, one for each prime, and on whole ciphertexts.

Rows of a polynomial are independent, so that threads share them out.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import inner_products, ntt, sampling
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.base_conversion import lifted
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.kernels.ntt import Tables
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.jit import inline, jit


@inline
def product(x: Word, y: Word, moduli: Moduli, limb: int) -> Word:
    """Return x y mod p, reduced, of two words that vary.

    Args:
        x: residues under p.
        y: residues under p.
        moduli: constants of the primes.
    """
    p, half, powers = moduli.primes[limb], moduli.half[limb], moduli.powers[limb]
    mask = (np.uint64(1) << half) - np.uint64(1)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    return inner_products.joined(x0 * y0, x0 * y1 + x1 * y0, x1 * y1, powers[0], powers[1], powers[2], half, p)


@jit
def tensor(target: Residues, first: Residues, second: Residues, moduli: Moduli, limb: int) -> None:
    """Compute a row of the product of two ciphertexts: (a0 b0, a0 b1 + a1 b0, a1 b1).

    Args:
        target: written, shape (3, n).
        first: a, shape (2, n).
        second: b, shape (2, n).
        moduli: constants of the primes.
    """
    p = moduli.primes[limb]
    for i in range(target.shape[1]):
        a0, a1, b0, b1 = first[0, i], first[1, i], second[0, i], second[1, i]
        target[0, i] = product(a0, b0, moduli, limb)
        target[1, i] = sub_if_ge(product(a0, b1, moduli, limb) + product(a1, b0, moduli, limb), p)
        target[2, i] = product(a1, b1, moduli, limb)


@jit
def multiply(target: Residues, source: Residues, factor: Residues, moduli: Moduli, limb: int) -> None:
    """Compute a row of the product of polynomials and one other.

    Args:
        target: written, shape (polynomials, n); may be the source.
        source: shape (polynomials, n).
        factor: shape (n,).
        moduli: constants of the primes.
    """
    for half in range(target.shape[0]):
        for i in range(factor.size):
            target[half, i] = product(source[half, i], factor[i], moduli, limb)


@jit
def multiply_constant(target: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Multiply rows by a constant, in place.

    Args:
        target: shape (polynomials, n).
        factor: number under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for half in range(target.shape[0]):
        for i in range(target.shape[1]):
            target[half, i] = reduce_4p(mul_shoup_lazy(target[half, i], factor, quotient, p), p)


@jit
def multiply_rows(target: Residues, factors: Residues, primes: Residues) -> None:
    """Multiply the first rows of polynomials by constants, in place.

    Args:
        target: shape (polynomials, l or more, n), contiguous: words with a stride take LoLa a tenth longer.
        factors: numbers under each prime, and their quotients, shape (l, 2) or longer.
        primes: moduli of the l rows.
    """
    for polynomial in range(target.shape[0]):
        for row in range(primes.size):
            factor, quotient, p = factors[row, 0], factors[row, 1], primes[row]
            for i in range(target.shape[2]):
                product = mul_shoup_lazy(target[polynomial, row, i], factor, quotient, p)
                target[polynomial, row, i] = reduce_4p(product, p)


@jit
def add_multiple(target: Residues, source: Residues, factor: Word, quotient: Word, p: Word) -> None:
    """Add a constant times a row to another, in place.

    Args:
        target: reduced, shape (n,).
        source: shape (n,).
        factor: number under p.
        quotient: floor(factor 2^64 / p).
        p: prime.
    """
    for i in range(target.size):
        target[i] = sub_if_ge(target[i] + reduce_4p(mul_shoup_lazy(source[i], factor, quotient, p), p), p)


@jit
def transformed(target: Residues, integers: Integers, tables: Tables, limb: int) -> None:
    """Compute a row of a polynomial with signed coefficients, in the kernel's order.

    Args:
        target: written, shape (1, n).
        integers: coefficients, shape (n,).
        tables: NTT tables of the primes.
    """
    ratio, p = tables.ones[limb], tables.primes[limb]
    for i in range(integers.size):
        target[0, i] = lifted(integers[i], ratio, p)
    ntt.forward(target, tables, limb)


@jit
def encrypt_row(target: Residues, key: Residues, error: Residues, message: Integers, tables: Tables, limb: int) -> None:
    """Turn a row of the uniform polynomial a into one of m + e - a s, in place.

    Args:
        target: a, shape (n,).
        key: the secret's row and its quotients, shape (2, n).
        error: random words, shape (n,).
        message: signed coefficients, shape (n,).
        tables: NTT tables of the primes.
    """
    p, ratio, noise = tables.primes[limb], tables.ones[limb], np.empty((1, target.size), dtype=np.uint64)
    offset = np.uint64(p - np.uint64(sampling.BINOMIAL))
    for i in range(target.size):
        noise[0, i] = sub_if_ge(lifted(message[i], ratio, p) + sub_if_ge(sampling.binomial(error[i]) + offset, p), p)
    ntt.forward(noise, tables, limb)
    for i in range(target.size):
        hidden = reduce_4p(mul_shoup_lazy(target[i], key[0, i], key[1, i], p), p)
        target[i] = sub_if_ge(noise[0, i] + p - hidden, p)
    noise[:] = 0


@jit
def decrypt_row(target: Residues, ciphertext: Residues, key: Residues, tables: Tables, limb: int) -> None:
    """Compute a row of c0 + c1 s in coefficient form.

    Args:
        target: written, shape (1, n).
        ciphertext: shape (2, n).
        key: the secret's row and its quotients, shape (2, n).
        tables: NTT tables of the primes.
    """
    p = tables.primes[limb]
    for i in range(target.shape[1]):
        shared = reduce_4p(mul_shoup_lazy(ciphertext[1, i], key[0, i], key[1, i], p), p)
        target[0, i] = sub_if_ge(ciphertext[0, i] + shared, p)
    ntt.inverse(target, tables, limb)


class RnsRing(NamedTuple):
    """Tables for some primes: data primes first, special primes last, which divisions are by.

    No field's type depends on the number of primes, so kernels that take a ring are compiled once.

    Attributes:
        degree: n.
        division: constants of the division by the special primes.
    """

    degree: int
    tables: ntt.Tables
    moduli: inner_products.Moduli
    division: conversion.ModDownConstants

    @property
    def primes(self) -> tuple[int, ...]:
        """The L primes."""
        return tuple(self.tables.primes.tolist())

    @property
    def chunks(self) -> int:
        """Chunks of a row of inputs of products; a ring shorter than a chunk has one."""
        return max(1, self.degree // inner_products.CHUNK)

    def values(self, residues: Residues) -> Residues:
        """Return polynomials in the kernel's order, a copy.

        Args:
            residues: coefficients under the first L' primes, shape (polynomials, L', n).
        """
        values = residues.copy()
        to_values(values, self.tables)
        return values

    def to_coefficients(self, values: Residues) -> None:
        """Bring polynomials back to coefficient form, in place.

        Args:
            values: in the kernel's order, shape (polynomials, L', n).
        """
        to_coefficients(values, self.tables)

    def split(self, residues: Residues) -> Residues:
        """Make polynomials ready for products, in place.

        Args:
            residues: shape (count, L', n).

        Returns:
            the same array.
        """
        inner_products.split(residues, self.moduli)
        return residues

    def inputs(self, count: int, rows: int) -> Residues:
        """Return an array for inputs of products, not written yet, shape (chunks, count, 2, CHUNK).

        Args:
            rows: primes.
        """
        return np.empty((rows * self.chunks, count, 2, self.degree // self.chunks), dtype=np.uint64)

    def place(self, inputs: Residues, index: int, values: Residues) -> None:
        """Make a ciphertext one of the inputs of products.

        Args:
            inputs: written, shape (chunks, inputs, 2, CHUNK).
            values: in the kernel's order, shape (2, L, n).
        """
        inner_products.place(inputs, index, values, self.moduli.half)


@jit
def to_values(polynomials: Residues, tables: ntt.Tables) -> None:
    """Bring polynomials to the kernel's order, in place.

    Args:
        polynomials: coefficients, shape (polynomials, L', n).
        tables: NTT tables of the primes.
    """
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            ntt.forward(polynomials[index, limb : limb + 1], tables, limb)


@jit
def to_coefficients(polynomials: Residues, tables: ntt.Tables) -> None:
    """Bring polynomials to coefficient form, in place.

    Args:
        polynomials: in the kernel's order, shape (polynomials, L', n).
        tables: NTT tables of the primes.
    """
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            ntt.inverse(polynomials[index, limb : limb + 1], tables, limb)


@jit
def add_scaled(total: Residues, values: Residues, ring: RnsRing) -> None:
    """Add P times a ciphertext to a total, in place.

    Args:
        total: shape (2, L or more, n).
        values: the ciphertext in the same form, shape (2, L, n).
        ring: ring of the data primes and those of P.
    """
    for half in range(2):
        for limb in range(values.shape[1]):
            factor, quotient = ring.division.scale[limb, 0], ring.division.scale[limb, 1]
            add_multiple(total[half, limb], values[half, limb], factor, quotient, ring.tables.primes[limb])


@lru_cache(maxsize=32)
def ring(primes: tuple[int, ...], n: int, special: int = 1) -> RnsRing:
    """Return the tables for some primes.

    Args:
        primes: moduli under 2^61, each 1 mod 2n.
        special: number of special primes, which stand last.
    """
    divisors = primes[len(primes) - special :]
    return RnsRing(
        n, ntt.tables(primes, n), inner_products.moduli(primes), conversion.mod_down_constants(divisors, primes)
    )
