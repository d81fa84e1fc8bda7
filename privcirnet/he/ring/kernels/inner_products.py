"""Products and sums in the NTT domain: the bulk of the work of a layer, bound by how fast the weights can be read.

Words of up to 61 bits are split in halves of s bits, x = x1 2^s + x0, so that products fit 64 bits:

    sum of x w = sum of x0 w0 + 2^s sum of (x0 w1 + x1 w0) + 2^2s sum of x1 w1,

three plain sums without any reduction for up to 2^(62 - 2 s) terms (:func:`terms_at_once`), of which up to
:data:`AT_ONCE` are made in registers and reduced there (:func:`joined`). Both factors come split already
(:func:`split`), as x1 2^32 + x0: vector units multiply the lower halves of words.

Blocking: each input's polynomials are cut into pieces of :data:`CHUNK` words, (chunks, inputs, 2, CHUNK), so that the
same words of all inputs are neighbours; the chunks of prime 0 come first (:func:`place`). A chunk of all inputs stays
in a cache while the weights of all sums stream by once.

Cost: a word of weight is read from memory once, for 8 multiplications of 32-bit halves and 8 sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Integers, Residues, constant_quotients
from privcirnet.he.system.jit import inline, jit

AT_ONCE = 8
"""Products of a pass over the words: their 16 rows and the sum stay in registers. More of them read as much."""

Rows = tuple[Residues, ...]
"""Rows of words, (words,) each."""

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class Moduli(NamedTuple):
    """Constants of the reduction for some primes.

    Attributes:
        primes: (L,).
        powers: floor(2^64 / p), 2^2s mod p and its quotient, (L, 3).
        half: s, (L,).
        terms: products that may be added before a reduction, (L,).
    """

    primes: Residues
    powers: Residues
    half: Residues
    terms: Integers


class Terms(NamedTuple):
    """Indices of the products of each sum.

    Attributes:
        pairs: (input, weight) of each product, (products, 2).
        first: the products of sum s are [first[s], first[s + 1]), (sums + 1,).
    """

    pairs: Integers
    first: Integers


def moduli(primes: Sequence[int]) -> Moduli:
    """Return the constants of the reduction for some primes; ``primes``: under 2^61."""
    if max(primes) >= 1 << 61:
        raise ValueError(f"primes must be under 2^61: got {max(primes)}")
    halves = [-(-p.bit_length() // 2) for p in primes]
    high = [np.array([pow(2, 2 * s, p)], dtype=np.uint64) for s, p in zip(halves, primes, strict=True)]
    powers = [[(1 << 64) // p, int(x[0]), int(constant_quotients(x, p)[0])] for x, p in zip(high, primes, strict=True)]
    terms = [terms_at_once(s) for s in halves]
    return Moduli(
        np.array(primes, dtype=np.uint64),
        np.array(powers, dtype=np.uint64),
        np.array(halves, dtype=np.uint64),
        np.array(terms),
    )


def terms_at_once(half: int) -> int:
    """Return the number of products of split words that can be added in 64 bits, with room for a carry.

    A sum grows by under 2^(2 s + 1) with each product of words of 2 s bits.

    Args:
        half: s.

    >>> terms_at_once(28), terms_at_once(30), terms_at_once(31)
    (64, 4, 1)
    """
    return 1 << (62 - 2 * half)


@jit
def multiply_accumulate(
    sums: Residues, inputs: Residues, weights: Residues, terms: Terms, moduli: Moduli, chunks: tuple[int, int]
) -> None:
    """Compute every sum's words in some chunks: the sum of inputs[i] * weights[w] mod p over its pairs (i, w), reduced.

    Args:
        sums: written, shape (sums, 2, L, n).
        inputs: split, shape (chunks, inputs, 2, CHUNK).
        weights: split, shape (weights, L, n).
        moduli: constants of the L primes.
        chunks: (first, end); those of prime 0 come first.
    """
    size, n = inputs.shape[3], weights.shape[2]
    none = np.zeros(size, dtype=np.uint64)
    for chunk in range(chunks[0], chunks[1]):
        limb, start = chunk // (n // size), chunk % (n // size) * size
        accumulate_chunk(sums, inputs[chunk], weights, terms, moduli, (limb, limb, start), none)


@jit
def accumulate_chunk(  # noqa: PLR0913, PLR0917
    sums: Residues,
    inputs: Residues,
    weights: Residues,
    terms: Terms,
    moduli: Moduli,
    place: tuple[int, int, int],
    none: Residues,
) -> None:
    """Compute every sum's words in one chunk; see :func:`multiply_accumulate`.

    Args:
        sums: written, shape (sums, 2, R, n), or (sums, 2, 1, n) for this row alone.
        inputs: the chunk of each, split, shape (inputs, 2, CHUNK).
        weights: split, shape (weights, R, n).
        place: (row of sums and weights, which of the primes it is under, first word).
        none: zeros, shape (CHUNK,).
    """
    row, limb, start = place
    size, step, target_row = inputs.shape[2], min(moduli.terms[limb], AT_ONCE), row if sums.shape[2] > 1 else 0
    for number in range(terms.first.size - 1):
        last = terms.first[number + 1]
        for i in range(2):
            sums[number, i, target_row, start : start + size] = 0
        for first in range(terms.first[number], last, step):
            pairs = terms.pairs[first : min(first + step, last)]
            w = rows_of(weights, pairs, 1, row, start, none)
            for i in range(2):
                x = rows_of(inputs, pairs, 0, i, 0, none)
                add_products(sums[number, i, target_row, start : start + size], x, w, len(pairs), moduli, limb)


@inline
def rows_of(x: Residues, pairs: Integers, side: int, i: int, start: int, none: Residues) -> Rows:
    """Return parts of the rows x[., i] of up to 8 products, filled up with zeros.

    Args:
        x: shape (inputs or weights, rows, words).
        pairs: (input, weight) of each product.
        side: 0 for inputs, 1 for weights.
        start: first word.
        none: zeros, as many as the words of a part.
    """
    end, count = start + none.size, pairs.shape[0]
    return (
        x[pairs[0, side], i, start:end],
        x[pairs[1, side], i, start:end] if count > 1 else none,
        x[pairs[2, side], i, start:end] if count > 2 else none,
        x[pairs[3, side], i, start:end] if count > 3 else none,
        x[pairs[4, side], i, start:end] if count > 4 else none,
        x[pairs[5, side], i, start:end] if count > 5 else none,
        x[pairs[6, side], i, start:end] if count > 6 else none,
        x[pairs[7, side], i, start:end] if count > 7 else none,
    )


@inline
def add_products(total: Residues, x: Rows, w: Rows, count: int, moduli: Moduli, limb: int) -> None:
    """Add the first two, the first four or all eight products to the total, reduced.

    Args:
        total: reduced, shape (words,).
        x: rows of inputs, split.
        w: rows of weights, split.
    """
    (xa, xb, xc, xd, xe, xf, xg, xh), (wa, wb, wc, wd, we, wf, wg, wh) = x, w
    powers, half, p = moduli.powers[limb], moduli.half[limb], moduli.primes[limb]
    ratio, power, quotient = powers[0], powers[1], powers[2]
    if count <= AT_ONCE // 4:
        for j in range(total.size):
            low, middle, high = two_products(xa[j], xb[j], wa[j], wb[j])
            total[j] = sub_if_ge(total[j] + joined(low, middle, high, ratio, power, quotient, half, p), p)
    elif count <= AT_ONCE // 2:
        for j in range(total.size):
            low, middle, high = four_products(xa[j], xb[j], xc[j], xd[j], wa[j], wb[j], wc[j], wd[j])
            total[j] = sub_if_ge(total[j] + joined(low, middle, high, ratio, power, quotient, half, p), p)
    else:
        for j in range(total.size):
            low, middle, high = four_products(xa[j], xb[j], xc[j], xd[j], wa[j], wb[j], wc[j], wd[j])
            more = four_products(xe[j], xf[j], xg[j], xh[j], we[j], wf[j], wg[j], wh[j])
            low, middle, high = low + more[0], middle + more[1], high + more[2]
            total[j] = sub_if_ge(total[j] + joined(low, middle, high, ratio, power, quotient, half, p), p)


@inline
def four_products(  # noqa: PLR0913, PLR0917
    xa: Word, xb: Word, xc: Word, xd: Word, wa: Word, wb: Word, wc: Word, wd: Word
) -> tuple[Word, Word, Word]:
    """Return the three sums (low, middle, high) of four products of split words.

    Args:
        wa: weight of ``xa``.
        wb: weight of ``xb``.
        wc: weight of ``xc``.
        wd: weight of ``xd``.
    """
    low, middle, high = two_products(xa, xb, wa, wb)
    more = two_products(xc, xd, wc, wd)
    return low + more[0], middle + more[1], high + more[2]


@inline
def two_products(xa: Word, xb: Word, wa: Word, wb: Word) -> tuple[Word, Word, Word]:
    """Return the three sums (low, middle, high) of two products of split words.

    Args:
        wa: weight of ``xa``.
        wb: weight of ``xb``.
    """
    a0, a1, b0, b1 = wa & _LOW, wa >> _HALF, wb & _LOW, wb >> _HALF
    p0, p1, q0, q1 = xa & _LOW, xa >> _HALF, xb & _LOW, xb >> _HALF
    return p0 * a0 + q0 * b0, p0 * a1 + p1 * a0 + q0 * b1 + q1 * b0, p1 * a1 + q1 * b1


@inline
def joined(  # noqa: PLR0913, PLR0917
    low: Word, middle: Word, high: Word, ratio: Word, power: Word, quotient: Word, half: Word, p: Word
) -> Word:
    """Return low + 2^s middle + 2^2s high mod p, reduced.

    The middle sum is split in two and added to its neighbours: low + 2^s (middle mod 2^s) + 2^2s (high + middle / 2^s),
    where the first two are under 2^63 and the last, reduced, is under 4 p <= 2^63.

    Args:
        middle: sum of products of a lower and an upper half.
        ratio: floor(2^64 / p).
        power: 2^2s mod p.
        quotient: floor(power 2^64 / p).
        half: s.
    """
    mask = (np.uint64(1) << half) - np.uint64(1)
    upper = mul_shoup_lazy(high + (middle >> half), power, quotient, p)
    return reduce_4p(barrett_lazy(low + ((middle & mask) << half) + upper, ratio, p), p)


@jit
def add(total: Residues, terms: Residues, primes: Residues) -> None:
    """Add terms to a total in place, reduced.

    Args:
        total: residues, shape (polynomials, L, n).
        terms: residues, shape (polynomials, L, n).
        primes: moduli of the L rows.
    """
    for i in range(total.shape[0]):
        for limb in range(total.shape[1]):
            for j in range(total.shape[2]):
                total[i, limb, j] = sub_if_ge(total[i, limb, j] + terms[i, limb, j], primes[limb])


@jit
def inner_product(inputs: Residues, start: int, weights: Residues, moduli: Moduli) -> Residues:
    """Return the sum of inputs[start + k] * weights[k] over all k, reduced, shape (2, L, n).

    Args:
        inputs: split, shape (chunks, inputs, 2, CHUNK).
        weights: split, shape (K, L, n).
        moduli: constants of the L primes.
    """
    sums = np.empty((1, 2, weights.shape[1], weights.shape[2]), dtype=np.uint64)
    multiply_accumulate(sums, inputs, weights, successive(start, weights.shape[0]), moduli, (0, inputs.shape[0]))
    return sums[0]


@jit
def successive(start: int, count: int) -> Terms:
    """Return the terms of one sum: successive inputs times successive weights, from weight 0 on."""
    pairs = np.empty((count, 2), dtype=np.int64)
    for k in range(count):
        pairs[k, 0], pairs[k, 1] = start + k, k
    return Terms(pairs, np.array([0, count]))


CHUNK = 2048
"""Words of a chunk: 32 inputs' chunks fit a second-level cache of 1 MB; shorter ones cost a tenth more."""


@jit
def split(polynomials: Residues, moduli: Moduli) -> None:
    """Cut every word in halves in place: x1 2^s + x0 to x1 2^32 + x0.

    Args:
        polynomials: reduced, shape (count, L, n).
        moduli: constants of the L primes.
    """
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            split_words(polynomials[index, limb], moduli.half[limb])


@jit
def split_words(words: Residues, half: Word) -> None:
    """Cut the words of one polynomial in halves in place; see :func:`split`.

    Args:
        words: reduced, shape (n,).
        half: s of the prime.
    """
    mask = (np.uint64(1) << half) - np.uint64(1)
    for j in range(words.size):
        words[j] = (words[j] >> half) << _HALF | (words[j] & mask)


@jit
def place(inputs: Residues, index: int, polynomials: Residues, halves: Residues) -> None:
    """Write a ciphertext as one of the inputs of products.

    Args:
        inputs: written, shape (chunks, inputs, 2, CHUNK).
        polynomials: reduced, shape (2, L, n).
        halves: s of each prime.
    """
    size = inputs.shape[3]
    parts = polynomials.shape[2] // size
    for i in range(2):
        for limb in range(polynomials.shape[1]):
            for part in range(parts):
                target = inputs[limb * parts + part, index, i]
                target[:] = polynomials[i, limb, part * size : (part + 1) * size]
                split_words(target, halves[limb])


@jit
def place_limb(inputs: Residues, index: int, i: int, words: Residues, limb: int) -> None:
    """Write one polynomial under one prime as :func:`place` does.

    Args:
        inputs: written, shape (chunks, inputs, 2, CHUNK).
        words: split, shape (n,).
    """
    size = inputs.shape[3]
    parts = words.size // size
    for part in range(parts):
        inputs[limb * parts + part, index, i] = words[part * size : (part + 1) * size]
