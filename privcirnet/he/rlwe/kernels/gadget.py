"""The gadget product, which every key switch is made of, and whole rotations: digits times key digits, divided by P.

Maths (Han and Ki, 2020; the gadget of Gentry, Halevi and Smart, 2012, in residues): the data primes are cut into D
digits with products Q_1, ..., Q_D, and P is the product of the special primes. Key digit d encrypts P s' under the
primes of digit d, and 0 under all others, special ones included:

    (-(a s + e) + [under primes of digit d: P s'], a).

Digit d of a polynomial x is x mod Q_d, lifted to all primes (:mod:`ring.kernels.base_conversion`). The sum of digits
times key digits encrypts P x s'; divided by P and rounded it encrypts x s'.

Automorphisms: rotation by g of (c0, c1) = g((c0, 0) + a / P), where a switches c1 from s to g^-1(s). The digits are
made once for all rotations of a ciphertext (hoisting, Halevi and Shoup, 2018), since g acts on values as a permutation;
it is moved to the end, so that the keys carry g^-1. Double hoisting (Bossuat et al., 2021): sums of rotations are added
before the division, as P (c0, 0) + a.

Rows: a row is one prime's. Data primes come first and special primes last, so that a ciphertext that has lost data
primes has the first rows. An *extended* polynomial has a row for each of its data primes and for every special prime.

Two ways: :mod:`rlwe.key_switching` works row by row, on all threads. :func:`hoist`, :func:`rotate` and
:func:`add_rotated` are whole steps in a call, for many rotations side by side, with what SEAL has: digits of one prime,
one special prime. A call lets go of Python's lock for as long as it works: taking it back costs more than a transform.

Cost of one switch with l data and k special primes: l + 2 k inverse transforms, D (l + k) - l + 2 l forward ones,
2 D (l + k) rows of products.
"""

import numpy as np

from privcirnet.he.ring.kernels import inner_products, ntt
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.base_conversion import BaseConversion, ModDownConstants, convert, lift
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.kernels.ntt import Tables, kernel_order
from privcirnet.he.ring.modular import Integers, Residues, bit_reversed
from privcirnet.he.rlwe.kernels.rns import RnsRing, add_multiple, to_values
from privcirnet.he.system.jit import jit

Hoisted = tuple[Residues, Residues]
"""A ciphertext in the kernel's order (2, L, n), and the digits of its second polynomial, split (L, L + 1, n)."""


def automorphism_index(element: int, n: int) -> Integers:
    """Return where each value of a polynomial a(X^g) comes from among those of a(X), in the kernel's order, shape (n,).

    Entry i, the value at psi^(2 brv(i) + 1), is the old one at g times that exponent.

    Args:
        element: g, odd, modulo 2n.
    """
    order, reversed_bits = kernel_order(n), bit_reversed(n)
    exponents = (2 * reversed_bits + 1) * element % (2 * n)
    return np.argsort(order)[reversed_bits[exponents // 2]][order]


@jit
def mod_up_limb(  # noqa: PLR0913, PLR0917
    target: Residues,
    scaled: Residues,
    multiples: Integers,
    constants: BaseConversion,
    tables: Tables,
    half: Word,
    limb: int,
) -> None:
    """Compute one digit's row under a prime that is not its own, transformed and split.

    Args:
        target: written, shape (1, n).
        scaled: scaled residues of the digit (:func:`ring.kernels.base_conversion.scale`), shape (S, n).
        multiples: multiples of the digit, shape (n,).
        constants: constants of the conversion to all primes.
        tables: NTT tables of all primes.
        half: bits of the lower half of a split word of the prime.
        limb: index of the prime.
    """
    convert(target[0], scaled, multiples, constants, limb)
    ntt.forward(target, tables, limb)
    inner_products.split_words(target[0], half)


@jit
def gadget_product_limb(
    switched: Residues, digits: Residues, key: Residues, moduli: Moduli, place: tuple[int, int, int]
) -> None:
    """Compute one row of the sum of digits times key digits.

    Args:
        switched: [0, :, row] is written, shape (1, 2, R, n); or (1, 2, 1, n) for this row alone.
        digits: split, shape (D', R, n) for D' <= D.
        key: D inputs of products, shape (chunks, D, 2, CHUNK).
        moduli: constants of all primes.
        place: (row, which of the primes it is under, row of the key).
    """
    row, limb, key_row = place
    size, none = key.shape[3], np.zeros(key.shape[3], dtype=np.uint64)
    chunks, terms = switched.shape[3] // size, inner_products.successive(0, digits.shape[0])
    for part in range(chunks):
        chunk = key[key_row * chunks + part]
        inner_products.accumulate_chunk(switched, chunk, digits, terms, moduli, (row, limb, part * size), none)


@jit
def mod_down_limb(
    target: Residues, scaled: Residues, multiples: Integers, division: ModDownConstants, tables: Tables, limb: int
) -> None:
    """Divide a row by P and round, in place: (x - (x mod P)) / P.

    Args:
        target: shape (n,).
        scaled: scaled residues of the rows of P (:func:`ring.kernels.base_conversion.scale`), shape (k, n).
        multiples: multiples of the rows of P, shape (n,); for one prime nothing reads them.
        division: constants of the division by P.
        tables: NTT tables of all primes.
        limb: index of the prime.
    """
    p, rest = tables.primes[limb], np.empty((1, target.size), dtype=np.uint64)
    factor, quotient = division.inverse[limb, 0], division.inverse[limb, 1]
    convert(rest[0], scaled, multiples, division.conversion, limb)
    ntt.forward(rest, tables, limb)
    for i in range(target.size):
        target[i] = reduce_4p(mul_shoup_lazy(target[i] + p - rest[0, i], factor, quotient, p), p)


@jit
def divide_coefficients(polynomial: Residues, division: ModDownConstants) -> None:
    """Divide a polynomial in coefficient form by the last of its primes and round, in place.

    Args:
        polynomial: shape (L, n); the quotient is in its first L - 1 rows.
        division: constants of the division by the last of L primes.
    """
    last, rest, targets = polynomial.shape[0] - 1, np.empty(polynomial.shape[1], dtype=np.uint64), division.conversion
    for limb in range(last):
        p, factor, quotient = targets.targets[limb], division.inverse[limb, 0], division.inverse[limb, 1]
        lift(rest, polynomial[last], targets.sources[0], targets.ones[limb], p)
        row, five = polynomial[limb], p + p + p + p + p
        for i in range(rest.size):
            row[i] = reduce_4p(mul_shoup_lazy(row[i] + five - rest[i], factor, quotient, p), p)


@jit
def rotate_row(target: Residues, switched: Residues, first: Residues, order: Integers, p: Word) -> None:
    """Compute a row of a rotated ciphertext, extended.

    Args:
        target: written, shape (2, n).
        switched: the row of what its second polynomial was switched to, shape (2, n).
        first: row of its first polynomial, times P, shape (n,).
        order: permutation of the automorphism (:func:`automorphism_index`), shape (n,).
        p: prime.
    """
    for i in range(order.size):
        target[0, i] = sub_if_ge(switched[0, order[i]] + first[order[i]], p)
        target[1, i] = switched[1, order[i]]


@jit
def hoist(values: Residues, digits: Residues, residues: Residues, ring: RnsRing) -> None:
    """Compute the digits that all rotations of a ciphertext share.

    Args:
        values: written, in the kernel's order, shape (2, L, n).
        digits: written, of the second polynomial, split, shape (L, L + 1, n).
        residues: the ciphertext in coefficient form, shape (2, L, n).
        ring: ring of all L + 1 primes.
    """
    values[:] = residues
    to_values(values, ring.tables)
    for limb in range(digits.shape[1]):
        _decompose(digits, residues[1], values[1], ring, limb)


@jit
def rotate(  # noqa: PLR0913, PLR0917
    inputs: Residues, index: int, values: Residues, digits: Residues, key: Residues, order: Integers, ring: RnsRing
) -> None:
    """Rotate a ciphertext and make it one of the inputs of products; prime by prime, so that little is between caches.

    Args:
        inputs: written, shape (chunks, inputs, 2, CHUNK).
        values: see :func:`hoist`.
        digits: see :func:`hoist`.
        key: L inputs of products.
        order: permutation of the automorphism.
        ring: ring of all L + 1 primes.
    """
    last, n = values.shape[1], values.shape[2]
    switched, rotated = np.empty((1, 2, last + 1, n), dtype=np.uint64), np.empty((2, n), dtype=np.uint64)
    none = np.empty(0, dtype=np.int64)
    gadget_product_limb(switched, digits, key, ring.moduli, (last, last, last))
    for half in range(2):
        ntt.inverse(switched[0, half, last:], ring.tables, last)
    for limb in range(last):
        gadget_product_limb(switched, digits, key, ring.moduli, (limb, limb, limb))
        for half in range(2):
            reduced, p = switched[0, half, limb], ring.tables.primes[limb]
            mod_down_limb(reduced, switched[0, half, last:], none, ring.division, ring.tables, limb)
            if half == 0:
                for i in range(n):
                    reduced[i] = sub_if_ge(reduced[i] + values[0, limb, i], p)
            for i in range(n):
                rotated[half, i] = reduced[order[i]]
            inner_products.split_words(rotated[half], ring.moduli.half[limb])
            inner_products.place_limb(inputs, index, half, rotated[half], limb)


@jit
def add_rotated(total: Residues, values: Residues, key: Residues, order: Integers, ring: RnsRing) -> None:
    """Add P times a rotated ciphertext to an extended total, in place; only what it is switched to counts under P.

    Args:
        total: in the kernel's order, shape (2, L + 1, n).
        values: the ciphertext in the kernel's order, shape (2, L, n).
        key: L inputs of products.
        order: permutation of the automorphism.
        ring: ring of all L + 1 primes.
    """
    last, n = values.shape[1], values.shape[2]
    polynomial, scale = values[1].copy(), ring.division.scale
    for limb in range(last):
        ntt.inverse(polynomial[limb : limb + 1], ring.tables, limb)
    digits = np.empty((last, last + 1, n), dtype=np.uint64)
    switched = np.empty((1, 2, last + 1, n), dtype=np.uint64)
    for limb in range(last + 1):
        p = ring.tables.primes[limb]
        _decompose(digits, polynomial, values[1], ring, limb)
        gadget_product_limb(switched, digits, key, ring.moduli, (limb, limb, limb))
        if limb < last:
            add_multiple(switched[0, 0, limb], values[0, limb], scale[limb, 0], scale[limb, 1], p)
        for half in range(2):
            source, target = switched[0, half, limb], total[half, limb]
            for i in range(n):
                target[i] = sub_if_ge(target[i] + source[order[i]], p)


@jit
def divided(residues: Residues, ring: RnsRing) -> Residues:
    """Return an extended ciphertext divided by P, and any other as it is, shape (2, L, n).

    Args:
        residues: in the kernel's order, shape (2, L + 1, n) or (2, L, n).
        ring: ring of all L + 1 primes.
    """
    last = ring.tables.primes.size - 1
    quotient, none = residues[:, :last].copy(), np.empty(0, dtype=np.int64)
    if residues.shape[1] > last:
        for half in range(2):
            rest = residues[half, last:].copy()
            ntt.inverse(rest, ring.tables, last)
            for limb in range(last):
                mod_down_limb(quotient[half, limb], rest, none, ring.division, ring.tables, limb)
    return quotient


@jit
def _decompose(digits: Residues, polynomial: Residues, values: Residues, ring: RnsRing, limb: int) -> None:
    """Write [:, limb]: all digits of a polynomial under one prime, from coefficients and from values (L, n)."""
    p, ratio, half = ring.tables.primes[limb], ring.tables.ones[limb], ring.moduli.half[limb]
    for digit in range(polynomial.shape[0]):
        row = digits[digit, limb : limb + 1]
        if digit == limb:
            row[0] = values[limb]
        else:
            lift(row[0], polynomial[digit], ring.tables.primes[digit], ratio, p)
            ntt.forward(row, ring.tables, limb)
        inner_products.split_words(row[0], half)
