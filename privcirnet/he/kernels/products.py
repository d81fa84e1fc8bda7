"""Products and sums in the NTT domain: the bulk of the work of a layer, bound by how fast the weights can be read.

Words of up to 61 bits are cut in halves of s bits, x = x1 2^s + x0, so that products fit 64 bits:

    sum of x w = sum of x0 w0 + 2^s sum of (x0 w1 + x1 w0) + 2^2s sum of x1 w1,

three plain sums without any reduction for up to 2^(62 - 2 s) terms (:func:`terms_at_once`), reduced once at their end.
Both factors come cut already (:func:`cut`), as x1 2^32 + x0: vector units multiply the lower halves of words.

Blocking: both polynomials of every input are cut in chunks of :data:`CHUNK` words, (chunks, inputs, 2, CHUNK), so that
a chunk of all inputs stays in a cache while the weights of all sums stream by once.

Cost: a word of weight is read from memory once, for 8 multiplications of 32-bit halves and 8 sums.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from privcirnet.he.kernels.arithmetic import Word, folded, once, reduced, times
from privcirnet.he.kernels.jit import jit
from privcirnet.he.modular import Integers, Residues, constant_quotients

CHUNK = 1024
"""Words of a chunk: 24 inputs' chunks fit the smallest second-level caches of today (512 KB)."""

Rows = tuple[Residues, Residues, Residues, Residues]
"""Four rows of words, (words,) each."""

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


class Moduli(NamedTuple):
    """Constants of the reduction for some primes.

    Attributes:
        primes: (L,).
        powers: floor(2^64 / p), 2^2s mod p and its quotient, (L, 3).
        half: s, (L,).
        terms: products that may be added before a reduction, a multiple of 4, (L,).
    """

    primes: Residues
    powers: Residues
    half: Residues
    terms: Integers


class Terms(NamedTuple):
    """Which products make which sum.

    Attributes:
        pairs: (input, weight) of each product, (products, 2).
        first: the products of sum s are [first[s], first[s + 1]), (sums + 1,).
    """

    pairs: Integers
    first: Integers


def moduli(primes: Sequence[int]) -> Moduli:
    """Constants for primes under 2^61."""
    assert max(primes) < 1 << 61
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
    """Products of words of 2 s bits whose sums fit 64 bits, with room for a carry: they grow by under 2^(2 s + 1) each.

    >>> terms_at_once(28), terms_at_once(30), terms_at_once(31)
    (64, 4, 1)
    """
    return 1 << (62 - 2 * half)


@jit
def cut(polynomials: Residues, moduli: Moduli) -> None:
    """Cut every word of (count, L, n) in place: x1 2^s + x0 to x1 2^32 + x0."""
    for index in range(polynomials.shape[0]):
        for limb in range(polynomials.shape[1]):
            cut_words(polynomials[index, limb], moduli.half[limb])


@jit
def cut_words(words: Residues, half: Word) -> None:
    """:func:`cut` for one polynomial under one prime, (n,)."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    for j in range(words.size):
        words[j] = (words[j] >> half) << _HALF | (words[j] & mask)


@jit
def place(inputs: Residues, index: int, polynomials: Residues) -> None:
    """Write (2, L, n) as number ``index`` of (chunks, inputs, 2, CHUNK)."""
    for i in range(2):
        for limb in range(polynomials.shape[1]):
            place_limb(inputs, index, i, polynomials[i, limb], limb)


@jit
def place_limb(inputs: Residues, index: int, i: int, words: Residues, limb: int) -> None:
    """:func:`place` for polynomial i under one prime, (n,)."""
    size = inputs.shape[3]
    parts = words.size // size
    for part in range(parts):
        inputs[limb * parts + part, index, i] = words[part * size : (part + 1) * size]


@jit
def multiply_accumulate(
    sums: Residues, inputs: Residues, weights: Residues, terms: Terms, moduli: Moduli, chunks: tuple[int, int]
) -> None:
    """Every sum's words of some chunks: sum of inputs[i] * weights[w] mod p over its pairs (i, w), reduced.

    Args:
        sums: written, (sums, 2, L, n).
        inputs: cut, (chunks, inputs, 2, CHUNK).
        weights: cut, (weights, L, n).
        terms: of the sums.
        moduli: of the L primes.
        chunks: (first, end); those of prime 0 come first.
    """
    size, n = inputs.shape[3], weights.shape[2]
    partial, total = np.empty((2, 3, size), dtype=np.uint64), np.empty((2, size), dtype=np.uint64)
    for chunk in range(chunks[0], chunks[1]):
        limb, start = chunk // (n // size), chunk % (n // size) * size
        for number in range(terms.first.size - 1):
            begin, last = terms.first[number], terms.first[number + 1]
            if last - begin <= min(moduli.terms[limb], 4):
                _few(total, inputs[chunk], weights, terms.pairs[begin:last], (limb, start), moduli)
                begin = last
            else:
                total.fill(0)
            while begin < last:
                end = min(begin + moduli.terms[limb], last)
                _add_all(partial, inputs[chunk], weights, terms.pairs[begin:end], limb, start)
                for i in range(2):
                    reduce_sums(total[i], partial[i], moduli.powers[limb], moduli.half[limb], moduli.primes[limb])
                begin = end
            for i in range(2):
                sums[number, i, limb, start : start + size] = total[i]


@jit
def _few(
    total: Residues, x: Residues, weights: Residues, pairs: Integers, place: tuple[int, int], moduli: Moduli
) -> None:
    """The whole sum of up to four products: nothing goes through memory (twice as fast as the general way)."""
    size, none = total.shape[1], np.zeros(total.shape[1], dtype=np.uint64)
    limb, start = place
    w = [none, none, none, none]
    for i in range(2):
        a = [none, none, none, none]
        for k in range(pairs.shape[0]):
            a[k], w[k] = x[pairs[k, 0], i], weights[pairs[k, 1], limb, start : start + size]
        x_rows, w_rows = (a[0], a[1], a[2], a[3]), (w[0], w[1], w[2], w[3])
        _four_products(total[i], x_rows, w_rows, moduli.powers[limb], moduli.half[limb], moduli.primes[limb])


@jit
def _four_products(total: Residues, x: Rows, w: Rows, powers: Residues, half: Word, p: Word) -> None:
    """The sum of four products of rows, reduced, see :func:`reduce_sums`."""
    (xa, xb, xc, xd), (wa, wb, wc, wd) = x, w
    mask, one, power, quotient = (np.uint64(1) << half) - np.uint64(1), powers[0], powers[1], powers[2]
    for j in range(total.size):
        a0, a1, b0, b1 = wa[j] & _LOW, wa[j] >> _HALF, wb[j] & _LOW, wb[j] >> _HALF
        c0, c1, d0, d1 = wc[j] & _LOW, wc[j] >> _HALF, wd[j] & _LOW, wd[j] >> _HALF
        p0, p1, q0, q1 = xa[j] & _LOW, xa[j] >> _HALF, xb[j] & _LOW, xb[j] >> _HALF
        r0, r1, s0, s1 = xc[j] & _LOW, xc[j] >> _HALF, xd[j] & _LOW, xd[j] >> _HALF
        low = p0 * a0 + q0 * b0 + r0 * c0 + s0 * d0
        middle = p0 * a1 + p1 * a0 + q0 * b1 + q1 * b0 + r0 * c1 + r1 * c0 + s0 * d1 + s1 * d0
        high = p1 * a1 + q1 * b1 + r1 * c1 + s1 * d1
        high = times(high + (middle >> half), power, quotient, p)
        total[j] = reduced(folded(low + ((middle & mask) << half) + high, one, p), p)


@jit
def _add_all(partial: Residues, x: Residues, weights: Residues, pairs: Integers, limb: int, start: int) -> None:
    """Some products into the three sums of both polynomials, which begin at zero."""
    partial.fill(0)
    k, end = 0, pairs.shape[0]
    while k + 4 <= end:
        _add_four(partial, x, weights, pairs[k : k + 4], limb, start)
        k += 4
    if k + 2 <= end:
        _add_two(partial, x, weights, pairs[k : k + 2], limb, start)
        k += 2
    if k < end:
        _add_one(partial, x[pairs[k, 0]], weights[pairs[k, 1], limb, start : start + partial.shape[2]])


@jit
def add(total: Residues, terms: Residues, moduli: Moduli) -> None:
    """Total + terms, (2, L, n), reduced."""
    for i in range(total.shape[0]):
        for limb in range(total.shape[1]):
            for j in range(total.shape[2]):
                total[i, limb, j] = once(total[i, limb, j] + terms[i, limb, j], moduli.primes[limb])


@jit
def inner_product(inputs: Residues, start: int, weights: Residues, moduli: Moduli) -> Residues:
    """Sum of inputs[start + k] * weights[k] over all k, reduced, (2, L, n).

    Args:
        inputs: cut, (chunks, inputs, 2, CHUNK).
        start: the first that is used.
        weights: cut, (K, L, n).
        moduli: of the L primes.
    """
    sums = np.empty((1, 2, weights.shape[1], weights.shape[2]), dtype=np.uint64)
    multiply_accumulate(sums, inputs, weights, successive(start, weights.shape[0]), moduli, (0, inputs.shape[0]))
    return sums[0]


@jit
def successive(start: int, count: int) -> Terms:
    """One sum of ``count`` products: inputs from ``start`` on, weights from 0 on."""
    pairs = np.empty((count, 2), dtype=np.int64)
    for k in range(count):
        pairs[k, 0], pairs[k, 1] = start + k, k
    return Terms(pairs, np.array([0, count]))


@jit
def _add_one(partial: Residues, x: Residues, weight: Residues) -> None:
    """One product, see :func:`_add_four`."""
    for j in range(weight.size):
        a0, a1 = weight[j] & _LOW, weight[j] >> _HALF
        for i in range(2):
            p0, p1 = x[i, j] & _LOW, x[i, j] >> _HALF
            partial[i, 0, j] += p0 * a0
            partial[i, 1, j] += p0 * a1 + p1 * a0
            partial[i, 2, j] += p1 * a1


@jit
def _add_two(partial: Residues, x: Residues, weights: Residues, terms: Integers, limb: int, start: int) -> None:
    """Two products at a time, see :func:`_add_four`."""
    size = partial.shape[2]
    xa, xb = x[terms[0, 0]], x[terms[1, 0]]
    wa, wb = weights[terms[0, 1], limb, start : start + size], weights[terms[1, 1], limb, start : start + size]
    for j in range(size):
        a0, a1, b0, b1 = wa[j] & _LOW, wa[j] >> _HALF, wb[j] & _LOW, wb[j] >> _HALF
        for i in range(2):
            p0, p1, q0, q1 = xa[i, j] & _LOW, xa[i, j] >> _HALF, xb[i, j] & _LOW, xb[i, j] >> _HALF
            partial[i, 0, j] += p0 * a0 + q0 * b0
            partial[i, 1, j] += p0 * a1 + p1 * a0 + q0 * b1 + q1 * b0
            partial[i, 2, j] += p1 * a1 + q1 * b1


@jit
def _add_four(partial: Residues, x: Residues, weights: Residues, terms: Integers, limb: int, start: int) -> None:
    """Four products at a time: the sums stay in registers between them (1.5 times as fast as one by one)."""
    size = partial.shape[2]
    xa, xb, xc, xd = x[terms[0, 0]], x[terms[1, 0]], x[terms[2, 0]], x[terms[3, 0]]
    wa, wb = weights[terms[0, 1], limb, start : start + size], weights[terms[1, 1], limb, start : start + size]
    wc, wd = weights[terms[2, 1], limb, start : start + size], weights[terms[3, 1], limb, start : start + size]
    for j in range(size):
        a0, a1, b0, b1 = wa[j] & _LOW, wa[j] >> _HALF, wb[j] & _LOW, wb[j] >> _HALF
        c0, c1, d0, d1 = wc[j] & _LOW, wc[j] >> _HALF, wd[j] & _LOW, wd[j] >> _HALF
        for i in range(2):
            p0, p1, q0, q1 = xa[i, j] & _LOW, xa[i, j] >> _HALF, xb[i, j] & _LOW, xb[i, j] >> _HALF
            r0, r1, s0, s1 = xc[i, j] & _LOW, xc[i, j] >> _HALF, xd[i, j] & _LOW, xd[i, j] >> _HALF
            partial[i, 0, j] += p0 * a0 + q0 * b0 + r0 * c0 + s0 * d0
            partial[i, 1, j] += p0 * a1 + p1 * a0 + q0 * b1 + q1 * b0 + r0 * c1 + r1 * c0 + s0 * d1 + s1 * d0
            partial[i, 2, j] += p1 * a1 + q1 * b1 + r1 * c1 + s1 * d1


@jit
def reduce_sums(total: Residues, partial: Residues, powers: Residues, half: Word, p: Word) -> None:
    """Total + low + 2^s middle + 2^2s high mod p, for the three sums in ``partial``.

    The middle one is cut in two and added to its neighbours: low + 2^s (middle mod 2^s) + 2^2s (high + middle / 2^s),
    where the first two are under 2^63 and the last, reduced, is under 4 p <= 2^63.
    """
    mask, one, power, quotient = (np.uint64(1) << half) - np.uint64(1), powers[0], powers[1], powers[2]
    for j in range(total.size):
        low = partial[0, j] + ((partial[1, j] & mask) << half)
        high = times(partial[2, j] + (partial[1, j] >> half), power, quotient, p)
        total[j] = reduced(once(folded(low + high, one, p) + total[j], p + p + p + p), p)
