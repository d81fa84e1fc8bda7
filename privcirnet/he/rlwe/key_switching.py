"""Ciphertexts under a chain of primes: key switching with digits of several primes, and shorter moduli.

Rows are those of :mod:`rlwe.kernels.gadget`: a polynomial has a row for each of its data primes, the first l of all, in
the kernel's NTT order; an *extended* one has the rows of the special primes behind them. Rows are worked on by as many
threads as :func:`system.threads.use` said. A :class:`Ciphertext`, of either scheme, is divided by the special primes'
product P as late as can be.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from privcirnet.he.ring.kernels import base_conversion as conversion
from privcirnet.he.ring.kernels import inner_products, ntt
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.rlwe.kernels import gadget
from privcirnet.he.rlwe.kernels.rns import RnsRing, add_multiple, multiply_rows, ring
from privcirnet.he.rlwe.parameters import RlweParameters
from privcirnet.he.system.threads import each


@dataclass(frozen=True)
class ModulusChain:
    """Operations on polynomials under the primes of some parameters."""

    parameters: RlweParameters

    @cached_property
    def ring(self) -> RnsRing:
        """The ring of all primes."""
        return ring(self.parameters.primes, self.parameters.ring_degree, self.special)

    @cached_property
    def special(self) -> int:
        """The number k of special primes."""
        return len(self.parameters.special_primes)

    def limb(self, row: int, rows: int) -> int:
        """Return the index, among all primes, of an extended polynomial's row.

        Args:
            rows: number of the polynomial's rows, l + k.
        """
        return row if row < rows - self.special else row - rows + len(self.parameters.primes)

    def limbs(self, rows: int) -> Integers:
        """Return which of all primes the rows of an extended polynomial are under, shape (l + k,)."""
        return np.array([self.limb(row, rows) for row in range(rows)])

    def order(self, element: int) -> Integers:
        """Return where each value of a polynomial comes from after an automorphism, shape (n,)."""
        n = self.parameters.ring_degree
        return _order(element % (2 * n), n)

    def coefficients(self, polynomials: Residues) -> Residues:
        """Return polynomials in coefficient form, a copy.

        Args:
            polynomials: shape (polynomials, l, n).
        """
        coefficients = polynomials.copy()
        rows = [(half, i) for half in range(coefficients.shape[0]) for i in range(coefficients.shape[1])]
        each(lambda row: ntt.inverse(coefficients[row][None], self.ring.tables, row[1]), rows)
        return coefficients

    def place(self, inputs: Residues, index: int, residues: Residues) -> None:
        """Make a digit of a key one of the inputs of products.

        Args:
            inputs: written, shape (chunks, digits, 2, CHUNK).
            residues: extended, shape (2, l + k, n).
        """
        inner_products.place(inputs, index, residues, self.ring.moduli.half[self.limbs(residues.shape[1])])

    def digits(self, polynomial: Residues) -> Residues:
        """Return the digits of a polynomial under all primes, split for products, shape (D, l + k, n).

        Args:
            polynomial: shape (l, n).
        """
        count, n = polynomial.shape
        parts, coefficients = self.parameters.digits(count), self.coefficients(polynomial[None])[0]
        constants = [self._from_digit(part) for part in parts]
        scaled, multiples = np.empty_like(coefficients), np.empty((len(parts), n), dtype=np.int64)
        digits = np.empty((len(parts), count + self.special, n), dtype=np.uint64)

        def scale(d: int) -> None:
            part = slice(parts[d].start, parts[d].stop)
            conversion.scale(scaled[part], multiples[d], coefficients[part], constants[d])

        def row(task: tuple[int, int]) -> None:
            d, number = task
            target, part = digits[d, number : number + 1], scaled[parts[d].start : parts[d].stop]
            limb = self.limb(number, digits.shape[1])
            half = self.ring.moduli.half[limb]
            if number in parts[d]:
                target[0] = polynomial[number]
                inner_products.split_words(target[0], half)
            else:
                gadget.mod_up_limb(target, part, multiples[d], constants[d], self.ring.tables, half, limb)

        each(scale, range(len(parts)))
        each(row, [(d, number) for number in range(digits.shape[1]) for d in range(len(parts))])
        return digits

    def switch_row(self, switched: Residues, digits: Residues, key: Residues, row: int) -> None:
        """Compute one row of the sum of digits times key digits.

        Args:
            switched: [0, :, row] is written, shape (1, 2, l + k, n); or (1, 2, 1, n) for this row alone.
            digits: result of :meth:`digits`.
            key: D inputs of products for these data primes or more, shape (chunks, D, 2, CHUNK).
        """
        rows, key_rows = digits.shape[1], key.shape[0] * key.shape[3] // digits.shape[2]
        limb, key_row = self.limb(row, rows), row if row < rows - self.special else row - rows + key_rows
        gadget.gadget_product_limb(switched, digits, key, self.ring.moduli, (row, limb, key_row))

    def switched(self, digits: Residues, key: Residues) -> Residues:
        """Return the ciphertext of digits and a key, divided by P, shape (2, l, n).

        Args:
            digits: result of :meth:`digits`.
            key: see :meth:`switch_row`.
        """
        return self.lowered(self.extended(digits, key))

    def relinearized(self, product: Residues, key: Residues) -> Residues:
        """Return P times a product of two ciphertexts with two polynomials, extended, shape (2, l + k, n).

        A division by P and the last prime at once (:meth:`lowered`) takes 2 (l - 1) transforms less than in two steps.

        Args:
            product: (a0 b0, a0 b1 + a1 b0, a1 b1), shape (3, l, n).
            key: key that switches the square of the secret key to it; see :meth:`switch_row`.
        """
        count, digits = product.shape[1], self.digits(product[2])
        switched = np.empty((1, 2, *digits.shape[1:]), dtype=np.uint64)
        scales, primes = self.ring.division.scale, self.ring.tables.primes

        def row(number: int) -> None:
            self.switch_row(switched, digits, key, number)
            factor, quotient = scales[number]
            for half in range(2 if number < count else 0):
                add_multiple(switched[0, half, number], product[half, number], factor, quotient, primes[number])

        each(row, range(digits.shape[1]))
        return switched[0]

    def extended(self, digits: Residues, key: Residues) -> Residues:
        """Return P times the ciphertext of digits and a key, extended, shape (2, l + k, n).

        Args:
            digits: result of :meth:`digits`.
            key: see :meth:`switch_row`.
        """
        switched = np.empty((1, 2, *digits.shape[1:]), dtype=np.uint64)
        each(lambda row: self.switch_row(switched, digits, key, row), range(digits.shape[1]))
        return switched[0]

    def lowered(self, extended: Residues, dropped: int = 0) -> Residues:
        """Return polynomials divided by P and their last primes, and rounded once, shape (polynomials, l - dropped, n).

        Args:
            extended: shape (polynomials, l + k, n); overwritten.
            dropped: data primes that are divided by.
        """
        rows = extended.shape[1]
        return self._divided(extended, [self.limb(row, rows) for row in range(rows - self.special - dropped, rows)])

    def reduced(self, polynomials: Residues, count: int) -> Residues:
        """Return polynomials divided by their last primes and rounded, shape (polynomials, count, n).

        Args:
            polynomials: shape (polynomials, l, n).
            count: data primes that are left.
        """
        return self._divided(polynomials.copy(), range(count, polynomials.shape[1]))

    def rotated(self, values: Residues, digits: Residues, key: Residues, element: int) -> Residues:
        """Return P times a ciphertext after an automorphism, extended, shape (2, l + k, n).

        Args:
            values: the ciphertext, shape (2, l, n), or P times it, extended.
            digits: digits of its second polynomial.
            key: key that switches the secret key to its image under the inverse automorphism.
        """
        rows, order, primes = digits.shape[1], self.order(element), self.ring.tables.primes
        first = values[0] if values.shape[1] == rows else self.multiplied(values[:1])[0]
        rotated = np.empty((2, rows, self.ring.degree), dtype=np.uint64)

        def row(number: int) -> None:
            switched = np.empty((1, 2, 1, self.ring.degree), dtype=np.uint64)
            self.switch_row(switched, digits, key, number)
            prime = primes[self.limb(number, rows)]
            gadget.rotate_row(rotated[:, number], switched[0, :, 0], first[number], order, prime)

        each(row, range(rows))
        return rotated

    def multiplied(self, polynomials: Residues) -> Residues:
        """Return P times polynomials, extended, shape (polynomials, l + k, n).

        Args:
            polynomials: shape (polynomials, l, n).
        """
        halves, count, n = polynomials.shape
        extended = np.zeros((halves, count + self.special, n), dtype=np.uint64)
        extended[:, :count] = polynomials
        multiply_rows(extended, self.ring.division.scale, self.ring.tables.primes[:count])
        return extended

    def added(self, first: Residues, second: Residues) -> Residues:
        """Return the sum of polynomials under the same data primes.

        Args:
            first: shape (..., l, n).
            second: polynomials of the same shape, or of one that broadcasts to it.
        """
        return self._sum(first, second, self.ring.tables.primes)

    def added_extended(self, first: Residues, second: Residues) -> Residues:
        """Return the sum of extended polynomials under the same primes.

        Args:
            first: shape (..., l + k, n).
            second: polynomials of the same shape.
        """
        return self._sum(first, second, self.ring.tables.primes[self.limbs(first.shape[-2])])

    @staticmethod
    def _sum(first: Residues, second: Residues, primes: Residues) -> Residues:
        total, shape = first.copy(), (-1, *first.shape[-2:])
        inner_products.add(total.reshape(shape), np.broadcast_to(second, first.shape).reshape(shape), primes)
        return total

    def _divided(self, polynomials: Residues, dropped: Sequence[int]) -> Residues:
        """Divide by the primes of the last rows and round; the others are left. All rows are overwritten."""
        count, rows, n = polynomials.shape
        remaining, tables = rows - len(dropped), self.ring.tables
        primes = self.parameters.primes
        division = conversion.mod_down_constants(tuple(primes[limb] for limb in dropped), primes)
        scaled, multiples = np.empty((count, len(dropped), n), dtype=np.uint64), np.empty((count, n), dtype=np.int64)

        def coefficients(task: tuple[int, int]) -> None:
            half, number = task
            row = remaining + number
            ntt.inverse(polynomials[half, row : row + 1], tables, dropped[number])

        def scale(half: int) -> None:
            conversion.scale(scaled[half], multiples[half], polynomials[half, remaining:], division.conversion)

        def row(task: tuple[int, int]) -> None:
            half, limb = task
            gadget.mod_down_limb(polynomials[half, limb], scaled[half], multiples[half], division, tables, limb)

        each(coefficients, [(half, number) for number in range(len(dropped)) for half in range(count)])
        each(scale, range(count))
        each(row, [(half, limb) for limb in range(remaining) for half in range(count)])
        return np.ascontiguousarray(polynomials[:, :remaining])

    def _from_digit(self, rows: range) -> conversion.BaseConversion:
        return conversion.base_conversion(self.parameters.data_primes[rows.start : rows.stop], self.parameters.primes)


_order = lru_cache(maxsize=1024)(gadget.automorphism_index)


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
