"""Rotations of ciphertexts with a client's Galois keys, each step one call: :mod:`privcirnet.he.kernels.keyswitch` whole.

Words: L data primes, D = L digits, one special prime; "extended" residues are under all L + 1 primes. A call lets go of
Python's lock for as long as it works, so calls are as long as can be: taking the lock back costs more than a transform.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privcirnet.he.kernels import keyswitch, ntt, products
from privcirnet.he.kernels.jit import jit
from privcirnet.he.kernels.ring import Ring
from privcirnet.he.modular import Integers, Residues

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

    def hoist(self, residues: Residues) -> tuple[Residues, Residues]:
        """What all rotations of a ciphertext share, from its coefficients (2, L, n).

        Returns:
            (the ciphertext in the kernel's order (2, L, n), the digits of c1, cut (L, L + 1, n)).
        """
        values = np.empty_like(residues)
        digits = np.empty((residues.shape[1], residues.shape[1] + 1, residues.shape[2]), dtype=np.uint64)
        _hoist(values, digits, residues, self.ring)
        return values, digits

    def rotate(self, inputs: Residues, index: int, hoisted: tuple[Residues, Residues], step: int) -> None:
        """Make a ciphertext turned by ``step`` an input of products."""
        (values, digits), n = hoisted, self.ring.degree
        _rotate(inputs, index, values[0], digits, self.inputs, self._start(step), _order(step, n), self.ring)

    def add_rotated(self, total: Residues, values: Residues, step: int) -> None:
        """Add P times a ciphertext (2, L, n), which is lost, turned by ``step``, to an extended total (2, L + 1, n)."""
        _add_rotated(total, values, self.inputs, self._start(step), _order(step, self.ring.degree), self.ring)

    def _start(self, step: int) -> int:
        return self.steps.index(step) * (len(self.ring.primes) - 1)


@jit
def _digits(digits: Residues, polynomial: Residues, ring: Ring) -> None:
    for limb in range(digits.shape[1]):
        keyswitch.decompose(digits, polynomial, ring.tables, ring.division.ones, limb)


@jit
def _hoist(values: Residues, digits: Residues, residues: Residues, ring: Ring) -> None:
    """Values of both polynomials, and digits: of c1's own transforms each is a digit already."""
    _digits(digits, residues[1], ring)
    for limb in range(residues.shape[1]):
        values[0, limb], values[1, limb] = residues[0, limb], digits[limb, limb]
        ntt.forward(values[0, limb : limb + 1], ring.tables, limb)
    products.cut(digits, ring.moduli)


@jit
def _rotate(
    inputs: Residues,
    index: int,
    first: Residues,
    digits: Residues,
    keys: Residues,
    start: int,
    order: Integers,
    ring: Ring,
) -> None:
    """(first, 0) + a / P, turned, cut and placed."""
    switched = products.inner_product(keys, start, digits, ring.moduli)
    for half in range(2):
        keyswitch.divide_values(switched, first, ring.tables, ring.division, half)
    turned = np.empty((2, first.shape[0], first.shape[1]), dtype=np.uint64)
    keyswitch.permute(turned, switched, order)
    products.cut(turned, ring.moduli)
    products.place(inputs, index, turned)


@jit
def _add_rotated(total: Residues, values: Residues, keys: Residues, start: int, order: Integers, ring: Ring) -> None:
    """Total + turned (P first + a)."""
    limbs = values.shape[1]
    for limb in range(limbs):
        ntt.inverse(values[1, limb : limb + 1], ring.tables, limb)
    digits = np.empty((limbs, limbs + 1, values.shape[2]), dtype=np.uint64)
    _digits(digits, values[1], ring)
    products.cut(digits, ring.moduli)
    switched = products.inner_product(keys, start, digits, ring.moduli)
    keyswitch.add_scaled(switched[0], values[0], ring.division)
    keyswitch.add_permuted(total, switched, order, ring.tables.primes)
