"""Whole polynomials under a chain of primes: key switching with digits of several primes, and shorter moduli.

Rows are those of :mod:`rlwe.kernels.hybrid`: special primes first, then the data primes of a *level*, the first l of
them. A polynomial has a row for each of its data primes, in the kernel's NTT order; an extended one has the special
rows before them. Rows are worked on by as many threads as :func:`system.threads.use` said.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from privcirnet.he.ring.kernels import conversion, ntt, operands
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import hybrid, keyswitch
from privcirnet.he.rlwe.kernels.modulus import Ring, ring
from privcirnet.he.rlwe.wire_bytes import Modulus
from privcirnet.he.system.threads import each


@dataclass(frozen=True)
class Chain:
    """The primes that ciphertexts and keys live under.

    Attributes:
        special_primes: whose product P is about as large as that of any digit, or larger.
        data_primes: of ciphertexts; those that are dropped first stand last.
    """

    ring_degree: int
    special_primes: tuple[int, ...]
    data_primes: tuple[int, ...]
    digit_primes: int

    @cached_property
    def ring(self) -> Ring:
        """Of all primes, special ones first."""
        return ring(self.special_primes + self.data_primes, self.ring_degree)

    @property
    def special(self) -> int:
        """How many special primes there are, k."""
        return len(self.special_primes)

    def key_modulus(self, level: int) -> Modulus:
        """Return what decides the bytes of a key's polynomials.

        Args:
            level: data primes of what is switched with it.
        """
        return Modulus(self.special_primes + self.data_primes[:level], self.ring_degree)

    def digit_rows(self, level: int) -> list[range]:
        """Return the data primes of each digit, by their numbers; the last digit may have fewer.

        Args:
            level: data primes of what is switched.
        """
        a = self.digit_primes
        return [range(first, min(first + a, level)) for first in range(0, level, a)]

    def order(self, element: int) -> Integers:
        """Return where each value of a polynomial comes from after an automorphism, shape (n,)."""
        return _order(element % (2 * self.ring_degree), self.ring_degree)

    def coefficients(self, polynomials: Residues) -> Residues:
        """Return polynomials in coefficient form, a copy.

        Args:
            polynomials: shape (polynomials, l, n).
        """
        found = polynomials.copy()
        rows = [(half, i) for half in range(found.shape[0]) for i in range(found.shape[1])]
        each(lambda row: ntt.inverse(found[row][None], self.ring.tables, self.special + row[1]), rows)
        return found

    def digits(self, polynomial: Residues) -> Residues:
        """Return the digits of a polynomial under all primes, split for products, shape (D, k + l, n).

        Args:
            polynomial: shape (l, n).
        """
        level, n = polynomial.shape
        rows, own = self.digit_rows(level), self.coefficients(polynomial[None])[0]
        scaled, multiples = np.empty_like(own), np.empty((len(rows), n), dtype=np.int64)
        found = np.empty((len(rows), self.special + level, n), dtype=np.uint64)

        def scale(d: int) -> None:
            part = slice(rows[d].start, rows[d].stop)
            conversion.scale(scaled[part], multiples[d], own[part], self._from_digit(rows[d]))

        def row(task: tuple[int, int]) -> None:
            d, limb = task
            target, part = found[d, limb : limb + 1], scaled[rows[d].start : rows[d].stop]
            if limb - self.special in rows[d]:
                target[0] = polynomial[limb - self.special]
                operands.split_words(target[0], self.ring.moduli.half[limb])
            else:
                own_digit, half = self._from_digit(rows[d]), self.ring.moduli.half[limb]
                hybrid.digit_row(target, part, multiples[d], own_digit, self.ring.tables, half, limb)

        each(scale, range(len(rows)))
        each(row, [(d, limb) for limb in range(found.shape[1]) for d in range(len(rows))])
        return found

    def switched(self, digits: Residues, key: Residues) -> Residues:
        """Return what digits and a key encrypt, divided by P, shape (2, l, n).

        Args:
            digits: from :meth:`digits`.
            key: D inputs of products for this level or a higher one, shape (chunks, D, 2, CHUNK).
        """
        return self.lowered(self.extended(digits, key))

    def relinearized(self, product: Residues, key: Residues) -> Residues:
        """Return a product of two ciphertexts with two polynomials, divided by its last prime, shape (2, l - 1, n).

        One division by P and the prime, of P times the first two and what the third is switched to, takes 2 (l - 1)
        transforms less than two divisions, and rounds once.

        Args:
            product: (a0 b0, a0 b1 + a1 b0, a1 b1), shape (3, l, n).
            key: that switches the square of the secret key to it; see :meth:`switched`.
        """
        k, rows = self.special, self.special + product.shape[1]
        digits, found = self.digits(product[2]), np.empty((1, 2, rows, self.ring_degree), dtype=np.uint64)
        factors, primes = _multiples(self.special_primes, self.ring.primes), self.ring.tables.primes

        def row(limb: int) -> None:
            hybrid.switch_row(found, digits, key, self.ring.moduli, limb)
            if limb >= k:
                factor, quotient = factors[limb]
                hybrid.add_multiple(found[0, :, limb], product[:2, limb - k], factor, quotient, primes[limb])

        each(row, range(rows))
        return self.lowered_and_reduced(found[0])

    def extended(self, digits: Residues, key: Residues) -> Residues:
        """Return P times what digits and a key encrypt, extended, shape (2, k + l, n).

        Args:
            digits: from :meth:`digits`.
            key: see :meth:`switched`.
        """
        found = np.empty((1, 2, *digits.shape[1:]), dtype=np.uint64)
        each(lambda limb: hybrid.switch_row(found, digits, key, self.ring.moduli, limb), range(digits.shape[1]))
        return found[0]

    def lowered(self, extended: Residues) -> Residues:
        """Return polynomials divided by P and rounded, shape (polynomials, l, n).

        Args:
            extended: shape (polynomials, k + l, n); overwritten.
        """
        return self._divided(extended, range(self.special), range(self.special, extended.shape[1]))

    def lowered_and_reduced(self, extended: Residues) -> Residues:
        """Return polynomials divided by P and by their last prime, and rounded once, shape (polynomials, l - 1, n).

        Args:
            extended: shape (polynomials, k + l, n); overwritten.
        """
        k, rows = self.special, extended.shape[1]
        return self._divided(extended, [*range(k), rows - 1], range(k, rows - 1))

    def reduced(self, polynomials: Residues, level: int) -> Residues:
        """Return polynomials divided by their last primes and rounded, shape (polynomials, level, n).

        Args:
            polynomials: shape (polynomials, l, n).
            level: data primes that are left.
        """
        k, before = self.special, polynomials.shape[1]
        extended = np.concatenate([np.empty((len(polynomials), k, self.ring_degree), np.uint64), polynomials], axis=1)
        return self._divided(extended, range(k + level, k + before), range(k, k + level))

    def rotated(self, values: Residues, digits: Residues, key: Residues, element: int) -> Residues:
        """Return a ciphertext after an automorphism, shape (2, l, n).

        Args:
            values: the ciphertext, shape (2, l, n).
            digits: of its second polynomial.
            key: that switches the secret key to its image under the inverse automorphism.
        """
        found, order = self.switched(digits, key), self.order(element)
        found[0] = self.added(found[0], values[0])
        turned = np.empty_like(found)
        each(lambda half: hybrid.permute(turned[half], found[half], order), range(2))
        return turned

    def added(self, first: Residues, second: Residues) -> Residues:
        """Return the sum of polynomials of one level.

        Args:
            first: shape (..., l, n).
            second: shape (..., l, n).
        """
        total = first + second
        primes = self.ring.tables.primes[self.special : self.special + first.shape[-2], None]
        return np.minimum(total, total - primes, out=total)

    def _divided(self, extended: Residues, dropped: range | list[int], kept: range) -> Residues:
        """Divide by the primes of some rows, which are overwritten, and round; the others are left."""
        count, n = len(extended), self.ring_degree
        own = tuple(self.ring.primes[limb] for limb in dropped)
        constants, inverses = conversion.conversion(own, self.ring.primes), _inverses(own, self.ring.primes)
        scaled, multiples = np.empty((count, len(own), n), dtype=np.uint64), np.empty((count, n), dtype=np.int64)
        rows = slice(dropped.start, dropped.stop) if isinstance(dropped, range) else dropped  # the latter are copied

        def coefficients(task: tuple[int, int]) -> None:
            half, limb = task
            ntt.inverse(extended[half, limb : limb + 1], self.ring.tables, limb)

        def scale(half: int) -> None:
            conversion.scale(scaled[half], multiples[half], extended[half, rows], constants)

        def row(task: tuple[int, int]) -> None:
            half, limb = task
            target, division = extended[half, limb], inverses[limb]
            hybrid.lower_row(target, scaled[half], multiples[half], constants, division, self.ring.tables, limb)

        each(coefficients, [(half, limb) for limb in dropped for half in range(count)])
        each(scale, range(count))
        each(row, [(half, limb) for limb in kept for half in range(count)])
        return np.ascontiguousarray(extended[:, kept.start : kept.stop])

    def _from_digit(self, rows: range) -> conversion.Conversion:
        return conversion.conversion(self.data_primes[rows.start : rows.stop], self.ring.primes)


_order = lru_cache(maxsize=512)(keyswitch.automorphism)


@lru_cache(maxsize=64)
def _multiples(factors: tuple[int, ...], primes: tuple[int, ...]) -> list[Residues]:
    """The factors' product mod each prime and its quotient."""
    return [with_quotient(prod(factors) % p, p) for p in primes]


@lru_cache(maxsize=64)
def _inverses(divisors: tuple[int, ...], primes: tuple[int, ...]) -> Residues:
    """1 / (the divisors' product) mod each prime and its quotient; zeros for the divisors."""
    product = prod(divisors)
    zero = np.zeros(2, dtype=np.uint64)
    return np.stack([zero if p in divisors else with_quotient(pow(product, -1, p), p) for p in primes])
