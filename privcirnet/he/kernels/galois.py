"""Rotations of ciphertexts with a client's Galois keys, out of :mod:`privcirnet.he.kernels.keyswitch`.

Words: L data primes, D = L digits, one special prime; "extended" residues are under all L + 1 primes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privcirnet.he.kernels import keyswitch, ntt, products
from privcirnet.he.kernels.ring import Ring
from privcirnet.he.modular import Residues

_order = lru_cache(maxsize=1024)(keyswitch.rotation)


@dataclass(frozen=True)
class GaloisKeys:
    """Keys for some rotations.

    Attributes:
        ring: of all primes.
        steps: column steps.
        inputs: every key's digits turned back by its rotation, as inputs of products, D for each step.
    """

    ring: Ring
    steps: tuple[int, ...]
    inputs: Residues

    @staticmethod
    def build(ring: Ring, steps: Sequence[int], digits: Sequence[Residues]) -> "GaloisKeys":
        """Keys from each step's digits in SEAL's order, (D, 2, L + 1, n)."""
        n, count = ring.degree, len(ring.primes) - 1
        inputs = ring.inputs(len(steps) * count)
        for number, (step, key) in enumerate(zip(steps, digits, strict=True)):
            back = ntt.kernel_order(n)[np.argsort(_order(step, n))]
            for digit in range(count):
                ring.place(inputs, number * count + digit, np.ascontiguousarray(key[digit][..., back]))
        return GaloisKeys(ring, tuple(steps), inputs)

    def digits(self, polynomial: Residues) -> Residues:
        """Digits of c1 in coefficient form (L, n), extended and transformed but not yet cut, (L, L + 1, n)."""
        ring = self.ring
        found = np.empty((polynomial.shape[0], len(ring.primes), ring.degree), dtype=np.uint64)
        for limb in range(found.shape[1]):
            keyswitch.decompose(found, polynomial, ring.tables, ring.division.ones, limb)
        return found

    def switch(self, digits: Residues, step: int) -> Residues:
        """Sum of digits (cut) times key digits: P times what is to be turned by ``step``, extended, (2, L + 1, n)."""
        start = self.steps.index(step) * digits.shape[0]
        return products.inner_product(self.inputs, start, digits, self.ring.moduli)

    def rotate_values(self, first: Residues, digits: Residues, step: int) -> Residues:
        """A ciphertext turned by ``step``, from c0 (L, n) and c1's cut digits, kernel's order: (2, L, n)."""
        switched = self.switch(digits, step)
        for half in range(2):
            keyswitch.divide_values(switched, first, self.ring.tables, self.ring.division, half)
        turned = np.empty((2, *first.shape), dtype=np.uint64)
        keyswitch.permute(turned, switched, _order(step, self.ring.degree))
        return turned

    def add_rotated(self, total: Residues, first: Residues, polynomial: Residues, step: int) -> None:
        """Add P times a ciphertext turned by ``step`` to an extended total (2, L + 1, n).

        Args:
            total: in the kernel's order.
            first: c0, (L, n), kernel's order.
            polynomial: c1, (L, n), coefficient form.
            step: columns.
        """
        switched = self.switch(self.ring.cut(self.digits(polynomial)), step)
        keyswitch.add_scaled(switched[0], first, self.ring.division)
        keyswitch.add_permuted(total, switched, _order(step, self.ring.degree), self.ring.tables.primes)
