"""What client and server compute with for one set of parameters, beyond the chain of primes (:mod:`engines.chain`).

Rows are those of :mod:`engines.kernels.hybrid`: special primes first. A polynomial is in the kernel's NTT order unless
it is said otherwise.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.engines.chain import Chain
from privcirnet.he.engines.kernels import conversion, hybrid, ntt
from privcirnet.he.engines.kernels.ring import Ring
from privcirnet.he.engines.wire_bytes import Modulus
from privcirnet.he.leveled.ckks.embedding import to_coefficients
from privcirnet.he.leveled.ckks.parameters import CkksParameters
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.ring.threads import each

_MOST = 62
"""Bits of a plaintext's coefficients, at most."""
CONJUGATION = 0
"""The rotation step that stands for the conjugation of all slots."""


@dataclass(frozen=True)
class Context:
    """Tables for one set of parameters.

    Attributes:
        parameters: CKKS.
    """

    parameters: CkksParameters

    @cached_property
    def chain(self) -> Chain:
        """Of all primes. What is a level there is the number of its data primes, one more than here."""
        own = self.parameters
        return Chain(own.ring_degree, own.special_primes, own.data_primes, own.digit_primes)

    @property
    def ring(self) -> Ring:
        """Of all primes, special ones first."""
        return self.chain.ring

    @property
    def special(self) -> int:
        """How many special primes there are, k."""
        return self.chain.special

    def modulus(self, level: int) -> Modulus:
        """Return what decides the bytes of a polynomial of a level.

        Args:
            level: of the polynomial.
        """
        return Modulus(self.parameters.data_primes[: level + 1], self.parameters.ring_degree)

    def element(self, step: int) -> int:
        """Return the Galois element of a rotation to the left, 5^step mod 2n, or of the conjugation.

        Args:
            step: slots, or :data:`CONJUGATION`.
        """
        n = self.parameters.ring_degree
        return 2 * n - 1 if step == CONJUGATION else pow(5, step % (n // 2), 2 * n)

    def order(self, step: int) -> Integers:
        """Return where each value of a rotated polynomial comes from, shape (n,).

        Args:
            step: slots, or :data:`CONJUGATION`.
        """
        return self.chain.order(self.element(step))

    def integers(self, slots: npt.ArrayLike, scale: float) -> Integers:
        """Return slots encoded: the rounded coefficients of scale times their polynomial, shape (n,).

        Args:
            slots: shape (n / 2,), real or complex, or one number for all.
            scale: of the plaintext.

        Raises:
            RuleError: there are more or fewer slots, or the coefficients are over 62 bits or not finite.
        """
        values = np.asarray(slots, dtype=np.complex128)
        if values.shape not in {(), (self.parameters.slots,)}:
            rule = f"a plaintext must have {self.parameters.slots} slots"
            raise RuleError(rule, got=f"shape {values.shape}", remedy="pad it with zeros")
        scaled = to_coefficients(np.broadcast_to(values, (self.parameters.slots,))) * scale
        if not np.abs(scaled).max(initial=0) < 2.0**_MOST:
            rule = f"a plaintext's coefficients must be under 2^{_MOST}"
            raise RuleError(rule, got=f"{np.abs(scaled).max():.3g}", remedy="use a smaller scale or smaller values")
        return np.rint(scaled).astype(np.int64)

    def polynomial(self, integers: Integers, level: int) -> Residues:
        """Return a plaintext under the primes of a level, shape (level + 1, n).

        Args:
            integers: coefficients, shape (n,).
            level: of the ciphertext that it meets.
        """
        found = np.empty((level + 1, integers.size), dtype=np.uint64)

        def row(i: int) -> None:
            hybrid.transformed(found[i : i + 1], integers, self.ring.tables, self.special + i)

        each(row, range(level + 1))
        return found

    def raised(self, polynomials: Residues) -> Residues:
        """Return polynomials mod q_0, taken in [-q_0/2, q_0/2), under all data primes, shape (polynomials, L + 1, n).

        Args:
            polynomials: shape (polynomials, 1, n); overwritten.
        """
        k, (count, _, n) = self.special, polynomials.shape
        constants = conversion.conversion(self.parameters.data_primes[:1], self.parameters.primes)
        found = np.empty((count, len(self.parameters.data_primes), n), dtype=np.uint64)
        for half in range(count):
            scaled, multiples = np.empty((1, n), dtype=np.uint64), np.empty(n, dtype=np.int64)
            ntt.inverse(polynomials[half], self.ring.tables, k)
            conversion.scale(scaled, multiples, polynomials[half], constants)
            for i in range(found.shape[1]):
                conversion.convert(found[half, i], scaled, multiples, constants, k + i)
                ntt.forward(found[half, i : i + 1], self.ring.tables, k + i)
        return found

    def subtracted(self, first: Residues, second: Residues) -> Residues:
        """Return the difference of polynomials under the same data primes.

        Args:
            first: shape (..., L', n).
            second: shape (..., L', n).
        """
        primes = self.ring.tables.primes[self.special : self.special + second.shape[-2], None]
        return self.chain.added(first, primes - second)
