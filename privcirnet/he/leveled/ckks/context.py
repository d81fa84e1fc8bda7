"""What client and server compute with for one set of parameters: tables of the primes, and steps on whole polynomials.

Rows are those of :mod:`engines.kernels.hybrid`: special primes first. A polynomial is in the kernel's NTT order unless
it is said otherwise. Rows are worked on by as many threads as :func:`ring.threads.use` said.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.engines.kernels import conversion, hybrid, keyswitch, ntt, operands
from privcirnet.he.engines.kernels.arithmetic import with_quotient
from privcirnet.he.engines.kernels.ring import Ring, ring
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
    def ring(self) -> Ring:
        """Of all primes, special ones first."""
        return ring(self.parameters.primes, self.parameters.ring_degree)

    @cached_property
    def special(self) -> int:
        """How many special primes there are, k."""
        return len(self.parameters.special_primes)

    def modulus(self, level: int | None = None) -> Modulus:
        """Return what decides the bytes of a polynomial of a level; of an extended one of the top level for None.

        Args:
            level: of the polynomial.
        """
        parameters = self.parameters
        primes = parameters.primes if level is None else parameters.data_primes[: level + 1]
        return Modulus(primes, parameters.ring_degree)

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
        return _order(self.element(step), self.parameters.ring_degree)

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

    def digits(self, polynomial: Residues) -> Residues:
        """Return the digits of a polynomial under all primes, split for products, shape (D', k + L', n).

        Args:
            polynomial: shape (L', n).
        """
        rows, n = polynomial.shape
        parts = self.parameters.digits(rows - 1)
        scaled, multiples = np.empty_like(polynomial), np.empty((len(parts), n), dtype=np.int64)
        found = np.empty((len(parts), self.special + rows, n), dtype=np.uint64)
        starts = [self.parameters.digit_primes * d for d in range(len(parts) + 1)]

        def scale(d: int) -> None:
            own = polynomial[starts[d] : starts[d + 1]].copy()
            for s in range(len(own)):
                ntt.inverse(own[s : s + 1], self.ring.tables, self.special + starts[d] + s)
            conversion.scale(scaled[starts[d] : starts[d + 1]], multiples[d], own, self._conversion(parts[d]))

        def row(task: tuple[int, int]) -> None:
            d, limb = task
            target, i = found[d, limb : limb + 1], limb - self.special
            if starts[d] <= i < starts[d + 1]:
                target[0] = polynomial[i]
                operands.split_words(target[0], self.ring.moduli.half[limb])
            else:
                own = scaled[starts[d] : starts[d + 1]]
                half, constants = self.ring.moduli.half[limb], self._conversion(parts[d])
                hybrid.digit_row(target, own, multiples[d], constants, self.ring.tables, half, limb)

        each(scale, range(len(parts)))
        each(row, [(d, limb) for limb in range(found.shape[1]) for d in range(len(parts))])
        return found

    def switched(self, digits: Residues, key: Residues) -> Residues:
        """Return P times what digits and a key encrypt, extended, shape (2, k + L', n).

        Args:
            digits: from :meth:`digits`.
            key: D inputs of products, shape (chunks, D, 2, CHUNK).
        """
        found = np.empty((1, 2, *digits.shape[1:]), dtype=np.uint64)
        each(lambda limb: hybrid.switch_row(found, digits, key, self.ring.moduli, limb), range(digits.shape[1]))
        return found[0]

    def lowered(self, extended: Residues) -> Residues:
        """Return polynomials divided by P and rounded, shape (polynomials, L', n).

        Args:
            extended: shape (polynomials, k + L', n); its rows are overwritten.
        """
        k, (count, rows, n) = self.special, extended.shape
        constants, inverses = self._conversion(self.parameters.special_primes), self._inverses
        scaled, multiples = np.empty((count, k, n), dtype=np.uint64), np.empty((count, n), dtype=np.int64)

        def scale(half: int) -> None:
            for limb in range(k):
                ntt.inverse(extended[half, limb : limb + 1], self.ring.tables, limb)
            conversion.scale(scaled[half], multiples[half], extended[half, :k], constants)

        def row(task: tuple[int, int]) -> None:
            half, limb = task
            target, division = extended[half, limb], inverses[limb]
            hybrid.lower_row(target, scaled[half], multiples[half], constants, division, self.ring.tables, limb)

        each(scale, range(count))
        each(row, [(half, limb) for limb in range(k, rows) for half in range(count)])
        return np.ascontiguousarray(extended[:, k:])

    def rescaled(self, polynomials: Residues) -> Residues:
        """Return polynomials divided by their last prime and rounded, shape (polynomials, L' - 1, n).

        Args:
            polynomials: shape (polynomials, L', n); their rows are overwritten.
        """
        count, rows, _ = polynomials.shape
        last = self.special + rows - 1
        division = _division(self.parameters.primes[: last + 1])
        for half in range(count):
            ntt.inverse(polynomials[half, rows - 1 :], self.ring.tables, last)

        def row(task: tuple[int, int]) -> None:
            half, i = task
            rest = polynomials[half, rows - 1]
            keyswitch.divide_values(polynomials[half, i], rest, self.ring.tables, division, self.special + i)

        each(row, [(half, i) for i in range(rows - 1) for half in range(count)])
        return np.ascontiguousarray(polynomials[:, :-1])

    def raised(self, polynomials: Residues) -> Residues:
        """Return polynomials mod q_0, taken in [-q_0/2, q_0/2), under all data primes, shape (polynomials, L + 1, n).

        Args:
            polynomials: shape (polynomials, 1, n); overwritten.
        """
        k, (count, _, n) = self.special, polynomials.shape
        constants = self._conversion(self.parameters.data_primes[:1])
        found = np.empty((count, len(self.parameters.data_primes), n), dtype=np.uint64)
        for half in range(count):
            scaled, multiples = np.empty((1, n), dtype=np.uint64), np.empty(n, dtype=np.int64)
            ntt.inverse(polynomials[half], self.ring.tables, k)
            conversion.scale(scaled, multiples, polynomials[half], constants)
            for i in range(found.shape[1]):
                conversion.convert(found[half, i], scaled, multiples, constants, k + i)
                ntt.forward(found[half, i : i + 1], self.ring.tables, k + i)
        return found

    def added(self, first: Residues, second: Residues) -> Residues:
        """Return the sum of polynomials under the same data primes.

        Args:
            first: shape (..., L', n).
            second: shape (..., L', n).
        """
        total = first + second
        return np.minimum(total, total - self._column(first.shape[-2]), out=total)

    def subtracted(self, first: Residues, second: Residues) -> Residues:
        """Return the difference of polynomials under the same data primes.

        Args:
            first: shape (..., L', n).
            second: shape (..., L', n).
        """
        return self.added(first, self._column(second.shape[-2]) - second)

    def _column(self, rows: int) -> Residues:
        return self.ring.tables.primes[self.special : self.special + rows, None]

    def _conversion(self, sources: tuple[int, ...]) -> conversion.Conversion:
        return conversion.conversion(sources, self.parameters.primes)

    @cached_property
    def _inverses(self) -> Residues:
        """1 / P mod each prime and its quotient; zeros for those of P."""
        p = prod(self.parameters.special_primes)
        own = [np.zeros(2, dtype=np.uint64)] * self.special
        return np.stack([*own, *(with_quotient(pow(p, -1, q), q) for q in self.parameters.data_primes)])


_order = lru_cache(maxsize=512)(keyswitch.automorphism)
_division = lru_cache(maxsize=64)(keyswitch.division)
