"""Everything that the kernels need to know of one ciphertext modulus, and what is done to whole ciphertexts with it."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.engines.kernels import inner_products, keyswitch, ntt
from privcirnet.he.engines.kernels.jit import jit
from privcirnet.he.ring.modular import Residues


class Ring(NamedTuple):
    """Tables for some primes; divisions are by the last.

    Attributes:
        primes: L of them.
        degree: n.
        tables: of the transforms.
        moduli: of products.
        division: by the last prime.
    """

    primes: tuple[int, ...]
    degree: int
    tables: ntt.Tables
    moduli: inner_products.Moduli
    division: keyswitch.Division

    def values(self, residues: Residues) -> Residues:
        """Coefficients (polynomials, L', n) under the first L' primes in the kernel's order, a copy."""
        found = residues.copy()
        to_values(found, self.tables)
        return found

    def to_coefficients(self, values: Residues) -> None:
        """The kernel's order (polynomials, L', n) back to coefficients, in place."""
        to_coefficients(values, self.tables)

    def split(self, residues: Residues) -> Residues:
        """The same (count, L, n), made ready for products in place."""
        inner_products.split(residues, self.moduli)
        return residues

    def inputs(self, count: int) -> Residues:
        """Room for that many inputs of products, (chunks, count, 2, CHUNK); a shorter ring is one chunk a prime."""
        words = min(inner_products.CHUNK, self.degree)
        return np.empty((len(self.primes) * self.degree // words, count, 2, words), dtype=np.uint64)

    def place(self, inputs: Residues, index: int, values: Residues) -> None:
        """Make values (2, L, n), which are lost, an input of products."""
        inner_products.place(inputs, index, self.split(values))


@jit
def to_values(polynomials: Residues, tables: ntt.Tables) -> None:
    """Coefficients (polynomials, L', n) to the kernel's order, in place."""
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            ntt.forward(polynomials[index, limb : limb + 1], tables, limb)


@jit
def to_coefficients(polynomials: Residues, tables: ntt.Tables) -> None:
    """The kernel's order (polynomials, L', n) to coefficients, in place."""
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            ntt.inverse(polynomials[index, limb : limb + 1], tables, limb)


@jit
def add_scaled(total: Residues, values: Residues, division: keyswitch.Division) -> None:
    """Total (2, L or L + 1, n) + P values (2, L, n)."""
    for half in range(2):
        for limb in range(values.shape[1]):
            keyswitch.add_scaled(total[half, limb], values[half, limb], division, limb)


@lru_cache(maxsize=32)
def ring(primes: tuple[int, ...], n: int) -> Ring:
    """Tables for these primes."""
    return Ring(primes, n, ntt.tables(primes, n), inner_products.moduli(primes), keyswitch.division(primes))
