"""Rotations of ciphertexts with a client's Galois keys, out of :mod:`privcirnet.he.kernels.keyswitch`.

Words: L data primes, D = L digits, one special prime; "extended" residues are under all L + 1 primes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.he.kernels import keyswitch, ntt, products
from privcirnet.he.modular import Integers, Residues

_order = lru_cache(maxsize=1024)(keyswitch.rotation)


class Ring(NamedTuple):
    """Tables of one ciphertext modulus: all that its kernels need."""

    tables: ntt.Tables
    moduli: products.Moduli
    division: keyswitch.Division


@lru_cache(maxsize=16)
def ring(primes: tuple[int, ...], n: int) -> Ring:
    """Tables for these primes; divisions are by the last."""
    return Ring(ntt.tables(primes, n), products.moduli(primes), keyswitch.division(primes))


@dataclass(frozen=True)
class GaloisKeys:
    """Keys for some rotations.

    Attributes:
        ring: of all primes.
        steps: column steps.
        chunks: every key's digits turned back by its rotation, cut: ((L + 1) n / CHUNK, steps D, 2, CHUNK).
    """

    ring: Ring
    steps: tuple[int, ...]
    chunks: Residues

    @staticmethod
    def build(ring: Ring, steps: Sequence[int], digits: Sequence[Residues]) -> "GaloisKeys":
        """Keys from each step's digits in SEAL's order, (D, 2, L + 1, n)."""
        limbs, n = ring.tables.primes.size, ring.tables.far.shape[2] * ntt.GROUP
        count = limbs - 1
        chunks = np.empty((limbs * n // products.CHUNK, len(steps) * count, 2, products.CHUNK), dtype=np.uint64)
        for number, (step, key) in enumerate(zip(steps, digits, strict=True)):
            back = ntt.kernel_order(n)[np.argsort(_order(step, n))]
            for digit in range(count):
                turned = np.ascontiguousarray(key[digit][..., back])
                products.cut(turned, ring.moduli)
                products.place(chunks, number * count + digit, turned)
        return GaloisKeys(ring, tuple(steps), chunks)

    def order(self, step: int, n: int) -> Integers:
        """Where each value of a ciphertext turned by ``step`` comes from."""
        return _order(step, n)

    def digits(self, polynomial: Residues) -> Residues:
        """Digits of c1 in coefficient form (L, n), extended and transformed but not yet cut, (L, L + 1, n)."""
        found = np.empty((polynomial.shape[0], self.ring.tables.primes.size, polynomial.shape[1]), dtype=np.uint64)
        for limb in range(found.shape[1]):
            keyswitch.decompose(found, polynomial, self.ring.tables, self.ring.division.ones, limb)
        return found

    def switch(self, digits: Residues, step: int) -> Residues:
        """Sum of digits (cut) times key digits: P times what is to be turned by ``step``, extended, (2, L + 1, n)."""
        start = self.steps.index(step) * digits.shape[0]
        return products.inner_product(self.chunks, start, digits, self.ring.moduli)

    def rotate_values(self, first: Residues, digits: Residues, step: int) -> Residues:
        """A ciphertext turned by ``step``, from c0 (L, n) and c1's cut digits, kernel's order: (2, L, n)."""
        switched = self.switch(digits, step)
        for half in range(2):
            keyswitch.divide_values(switched, first, self.ring.tables, self.ring.division, half)
        turned = np.empty((2, *first.shape), dtype=np.uint64)
        keyswitch.permute(turned, switched, self.order(step, first.shape[1]))
        return turned

    def add_rotated(self, total: Residues, first: Residues, polynomial: Residues, step: int) -> None:
        """Add P times a ciphertext turned by ``step`` to an extended total (2, L + 1, n).

        Args:
            total: in the kernel's order.
            first: c0, (L, n), kernel's order.
            polynomial: c1, (L, n), coefficient form.
            step: columns.
        """
        digits = self.digits(polynomial)
        products.cut(digits, self.ring.moduli)
        switched = self.switch(digits, step)
        keyswitch.add_scaled(switched[0], first, self.ring.division)
        keyswitch.add_permuted(total, switched, self.order(step, first.shape[1]), self.ring.tables.primes)
