"""Tables of one ciphertext modulus for the kernels, and operations on whole ciphertexts with them."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import inner_products, ntt, operands
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.kernels.rows import add_multiple
from privcirnet.he.system.jit import jit


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
        return max(1, self.degree // operands.CHUNK)

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
        operands.split(residues, self.moduli)
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
        operands.place(inputs, index, values, self.moduli.half)


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
