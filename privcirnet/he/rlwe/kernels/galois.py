"""Rotations of ciphertexts with a client's Galois keys: :mod:`rlwe.kernels.keyswitch`, whole steps in a call.

Words: L data primes, D = L digits, one special prime; "extended" residues are under all L + 1 primes. A call lets go of
Python's lock for as long as it works, so calls are as long as can be: taking the lock back costs more than a transform.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from privcirnet.compiled.jit import jit
from privcirnet.he.ring.kernels import inner_products, ntt, operands
from privcirnet.he.ring.kernels.arithmetic import sub_if_ge
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import keyswitch
from privcirnet.he.rlwe.kernels.modulus import Ring, to_values

_order = lru_cache(maxsize=1024)(keyswitch.rotation)


class Key(NamedTuple):
    """One rotation's key.

    Attributes:
        inputs: the keys of all rotations.
        start: its first digit among them.
        order: where each value of a rotated ciphertext comes from.
    """

    inputs: Residues
    start: int
    order: Integers


@dataclass(frozen=True)
class GaloisKeys:
    """Keys for some rotations.

    Attributes:
        ring: of all primes.
        inputs: every key's digits rotated back by its rotation, as inputs of products, D for each step.
    """

    ring: Ring
    steps: tuple[int, ...]
    inputs: Residues

    @staticmethod
    def build(ring: Ring, steps: Sequence[int], digits: Sequence[Residues]) -> "GaloisKeys":
        """Return keys made ready for rotations.

        Args:
            ring: of all L + 1 primes.
            digits: of each step's key, in SEAL's order, shape (D, 2, L + 1, n) for D = L.
        """
        n, count = ring.degree, len(ring.primes) - 1
        inputs = ring.inputs(len(steps) * count)
        for number, (step, key) in enumerate(zip(steps, digits, strict=True)):
            back = ntt.kernel_order(n)[np.argsort(_order(step, n))]
            for digit in range(count):
                ring.place(inputs, number * count + digit, np.ascontiguousarray(key[digit][..., back]))
        return GaloisKeys(ring, tuple(steps), inputs)

    def hoist(self, residues: Residues) -> tuple[Residues, Residues]:
        """Compute what all rotations of a ciphertext share.

        Args:
            residues: the ciphertext in coefficient form, shape (2, L, n).

        Returns:
            (the ciphertext in the kernel's order (2, L, n), the digits of c1, split (L, L + 1, n)).
        """
        values = np.empty_like(residues)
        digits = np.empty((residues.shape[1], residues.shape[1] + 1, residues.shape[2]), dtype=np.uint64)
        _hoist(values, digits, residues, self.ring)
        return values, digits

    def rotate(self, inputs: Residues, index: int, hoisted: tuple[Residues, Residues], step: int) -> None:
        """Rotate a ciphertext and make it one of the inputs of products.

        Args:
            inputs: written, shape (chunks, inputs, 2, CHUNK).
            hoisted: what :meth:`hoist` returned.
            step: columns by which both slot rows are rotated to the left; one of the keys' steps.
        """
        values, digits = hoisted
        _rotate(inputs, index, values[0], digits, self._key(step), self.ring)

    def add_rotated(self, total: Residues, values: Residues, step: int) -> None:
        """Add P times a rotated ciphertext to an extended total, in place.

        Args:
            total: in the kernel's order, shape (2, L + 1, n).
            values: the ciphertext in the kernel's order, shape (2, L, n).
            step: columns by which both slot rows are rotated to the left; one of the keys' steps.
        """
        _add_rotated(total, values, self._key(step), self.ring)

    def _key(self, step: int) -> Key:
        start = self.steps.index(step) * (len(self.ring.primes) - 1)
        return Key(self.inputs, start, _order(step, self.ring.degree))


@jit
def _hoist(values: Residues, digits: Residues, residues: Residues, ring: Ring) -> None:
    """Both polynomials' values and the digits of c1, split."""
    values[:] = residues
    to_values(values, ring.tables)
    for limb in range(digits.shape[1]):
        keyswitch.decompose(digits, residues[1], values[1], ring.tables, limb)
    operands.split(digits, ring.moduli)


@jit
def _switched(switched: Residues, digits: Residues, key: Key, ring: Ring, limb: int) -> None:
    """Write [0, :, limb]: the sum of digits times key digits under a prime, P times what is to be rotated."""
    each = switched.shape[3] // key.inputs.shape[3]
    terms = inner_products.successive(key.start, digits.shape[0])
    inner_products.multiply_accumulate(
        switched, key.inputs, digits, terms, ring.moduli, (limb * each, (limb + 1) * each)
    )


@jit
def _rotate(inputs: Residues, index: int, first: Residues, digits: Residues, key: Key, ring: Ring) -> None:
    """Compute (first, 0) + a / P, rotated, split and placed; prime by prime, so that little is between caches."""
    last, n = first.shape
    switched, rotated = np.empty((1, 2, last + 1, n), dtype=np.uint64), np.empty((2, n), dtype=np.uint64)
    _switched(switched, digits, key, ring, last)
    for half in range(2):
        ntt.inverse(switched[0, half, last : last + 1], ring.tables, last)
    for limb in range(last):
        _switched(switched, digits, key, ring, limb)
        for half in range(2):
            values, p = switched[0, half, limb], ring.tables.primes[limb]
            keyswitch.divide_values(values, switched[0, half, last], ring.tables, ring.division, limb)
            if half == 0:
                for i in range(n):
                    values[i] = sub_if_ge(values[i] + first[limb, i], p)
            for i in range(n):
                rotated[half, i] = values[key.order[i]]
            operands.split_words(rotated[half], ring.moduli.half[limb])
            operands.place_limb(inputs, index, half, rotated[half], limb)


@jit
def _add_rotated(total: Residues, values: Residues, key: Key, ring: Ring) -> None:
    """Add the rotated P first + a to the total, prime by prime; only a counts under P itself."""
    last, n = values.shape[1], values.shape[2]
    polynomial = values[1].copy()
    for limb in range(last):
        ntt.inverse(polynomial[limb : limb + 1], ring.tables, limb)
    digits = np.empty((last, last + 1, n), dtype=np.uint64)
    switched = np.empty((1, 2, last + 1, n), dtype=np.uint64)
    for limb in range(last + 1):
        keyswitch.decompose(digits, polynomial, values[1], ring.tables, limb)
        for digit in range(last):
            operands.split_words(digits[digit, limb], ring.moduli.half[limb])
        _switched(switched, digits, key, ring, limb)
        if limb < last:
            keyswitch.add_scaled(switched[0, 0, limb], values[0, limb], ring.division, limb)
        for half in range(2):
            keyswitch.add_permuted(total[half, limb], switched[0, half, limb], key.order, ring.tables.primes[limb])


@jit
def divided(residues: Residues, ring: Ring) -> Residues:
    """Return an extended ciphertext divided by P, and any other as it is, shape (2, L, n).

    Args:
        residues: in the kernel's order, shape (2, L + 1, n) or (2, L, n).
        ring: of all L + 1 primes.
    """
    last = ring.tables.primes.size - 1
    found = residues[:, :last].copy()
    if residues.shape[1] > last:
        for half in range(2):
            rest = residues[half, last:].copy()
            ntt.inverse(rest, ring.tables, last)
            for limb in range(last):
                keyswitch.divide_values(found[half, limb], rest[0], ring.tables, ring.division, limb)
    return found
