"""Ciphertexts of both schemes, divided by the special primes' product P as late as can be."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.chain import ModulusChain
from privcirnet.he.rlwe.kernels.rows import multiply_rows


@dataclass(frozen=True)
class Ciphertext:
    """Two polynomials in the kernel's order: as they are, or *extended*, times P and under the special primes, too.

    A rotation is extended. Sums of rotations are divided once, and a rotation of one divides its second polynomial
    alone.

    Attributes:
        chain: chain of its primes.
        made: (2, l, n), or extended (2, l + k, n).
        primes: data primes that are left, l.
    """

    chain: ModulusChain
    made: Residues
    primes: int

    @property
    def level(self) -> int:
        """Rescalings that are left, l - 1: what CKKS counts by; all else counts primes."""
        return self.primes - 1

    @property
    def is_extended(self) -> bool:
        """True if a division by P is still to be done."""
        return self.made.shape[1] > self.primes

    @cached_property
    def second(self) -> Residues:
        """The second polynomial, (l, n)."""
        return self.chain.lowered(self.made[1:].copy())[0] if self.is_extended else self.made[1]

    @cached_property
    def residues(self) -> Residues:
        """Both polynomials, (2, l, n)."""
        if not self.is_extended:
            return self.made
        return np.stack([self.chain.lowered(self.made[:1].copy())[0], self.second])

    @cached_property
    def extended(self) -> Residues:
        """Both polynomials times P, (2, l + k, n)."""
        return self.made if self.is_extended else self.chain.multiplied(self.made)

    @cached_property
    def digits(self) -> Residues:
        """Digits of the second polynomial, computed once for all rotations."""
        return self.chain.digits(self.second)

    def turned(self, element: int, key: Residues) -> "Ciphertext":
        """Return it after an automorphism, extended.

        Args:
            element: Galois element of the automorphism.
            key: switching key of that name (:mod:`rlwe.switch_keys`), for as many data primes or more.
        """
        return Ciphertext(self.chain, self.chain.rotated(self.made, self.digits, key, element), self.primes)

    def plus(self, addend: "Ciphertext") -> "Ciphertext":
        """Return the sum, extended if one of both is.

        Args:
            addend: ciphertext with as many data primes.
        """
        if self.is_extended or addend.is_extended:
            return Ciphertext(self.chain, self.chain.added_extended(self.extended, addend.extended), self.primes)
        return Ciphertext(self.chain, self.chain.added(self.made, addend.made), self.primes)

    def times(self, factor: int) -> "Ciphertext":
        """Return an integer times it, not extended."""
        product, primes = self.residues.copy(), self.chain.parameters.data_primes[: self.primes]
        factors = np.stack([with_quotient(factor % prime, prime) for prime in primes])
        multiply_rows(product, factors, self.chain.ring.tables.primes[: self.primes])
        return Ciphertext(self.chain, product, self.primes)

    def plus_plain(self, plaintext: Residues) -> "Ciphertext":
        """Return the sum with a plaintext, not extended.

        Args:
            plaintext: shape (l, n), or (l, 1) if all values are the same.
        """
        residues = np.stack([self.chain.added(self.residues[0], plaintext), self.residues[1]])
        return Ciphertext(self.chain, residues, self.primes)

    def reduced(self, primes: int) -> "Ciphertext":
        """Return it divided by its last data primes, and by P if that is still to be done.

        Args:
            primes: data primes that are left.
        """
        if self.is_extended:
            return Ciphertext(self.chain, self.chain.lowered(self.made.copy(), self.primes - primes), primes)
        return Ciphertext(self.chain, self.chain.reduced(self.made, primes), primes)
