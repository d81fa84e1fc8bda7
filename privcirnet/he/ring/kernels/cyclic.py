"""The cyclic transforms of :mod:`ring.cyclic`, compiled: small matrices times many columns mod t, on integers.

A length N = N1 N2 of coprime factors is done as N1 x N2 (Good and Thomas): with j = N2 j1 + N1 j2 mod N and k = k1 mod
N1, k2 mod N2, w^(j k) = (w^N2)^(j1 k1) (w^N1)^(j2 k2). No factors stand between the two, and places change for nothing
as columns are loaded and stored.

Words are split in halves as in :mod:`ring.kernels.inner_products`, with the same sums and the same reduction.

Cost: N1 + N2 products for each number; 0.4 ns each where there are vector instructions.
"""

from collections.abc import Mapping
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels import inner_products
from privcirnet.he.ring.kernels.arithmetic import Word, sub_if_ge
from privcirnet.he.ring.kernels.inner_products import Moduli
from privcirnet.he.ring.modular import Integers, Residues, SourceIndices
from privcirnet.he.system.jit import inline, jit
from privcirnet.he.system.threads import each, ranges

_WIDTH = 512
"""Columns that are worked on together: their sums fit a first-level cache."""

_AT_ONCE = 1 << 17
"""Values of a task, at most: half a second-level cache with the work space."""

_HALF = np.uint64(32)


class Transform(NamedTuple):
    """A transform of length N = N1 N2.

    Attributes:
        first: matrix of the transform of length N1, split.
        second: matrix of the transform of length N2, split; N2 = 1 if N has no coprime factors.
        taken: order of reading: the value at j = N2 j1 + N1 j2 mod N goes to row N1 j2 + j1 of the work, (N,).
        given: order of writing: row N2 k1 + k2 of the result goes to k, (N,).
    """

    first: Residues
    second: Residues
    taken: Integers
    given: Integers
    moduli: Moduli


@lru_cache(maxsize=128)
def transform(length: int, t: int, inverse: bool) -> Transform:
    """Return the tables of :func:`ring.cyclic.cyclic` for a length.

    Args:
        length: N.
        t: prime modulus under 2^61 with t = 1 mod N.
        inverse: whether to do the inverse transform, 1/N included.

    Raises:
        RuleError: N does not divide t - 1.
    """
    root, scale = modular.cyclic_root(length, t, inverse)
    first = _factor(length)
    second, modulus = length // first, inner_products.moduli((t,))
    j1, j2 = np.arange(first), np.arange(second)
    place = (second * j1 + first * j2[:, None]) % length
    back = np.empty(length, dtype=np.int64)
    for k in range(length):
        back[second * (k % first) + k % second] = k
    matrices = (
        modular.dft_matrix(pow(root, second, t), first, scale, t),
        modular.dft_matrix(pow(root, first, t), second, 1, t),
    )
    one_split, two_split = (_split(matrix, modulus) for matrix in matrices)
    return Transform(one_split, two_split, place.reshape(-1), back, modulus)


def _factor(length: int) -> int:
    """Return the factor N1 for which N1 + N2 is least, N1 and N2 coprime; N if there is none."""
    pairs = [n for n in range(2, length) if length % n == 0 and gcd(n, length // n) == 1]
    return min(pairs, key=lambda n: (n + length // n, n), default=length)


def _split(matrix: Residues, modulus: Moduli) -> Residues:
    words = np.ascontiguousarray(matrix[:, None])
    inner_products.split(words, modulus)
    return words[:, 0].copy()


def transform_all(columns: Residues, form: Transform) -> Residues:
    """Transform the middle axis of an array, on all threads.

    Args:
        columns: residues, shape (outer, N, inner).

    Returns:
        residues of the same shape.
    """
    contiguous, result = np.ascontiguousarray(columns), np.empty(columns.shape, dtype=np.uint64)
    parts = ranges(len(contiguous), max(1, _AT_ONCE // max(1, prod(contiguous.shape[1:]))))
    each(lambda part: _transform(result[part.start : part.stop], contiguous[part.start : part.stop], form), parts)
    return result


def transform_cells(
    source: Residues, numbers: SourceIndices, shape: tuple[int, ...], forms: Mapping[int, Transform]
) -> Residues:
    """Gather cells from a source, sum their terms and transform some axes, on all threads.

    Args:
        numbers: places in the source of each term, from 1, 0 for a zero: shape (terms, cells, values of a cell).
        forms: transform of each axis of a cell that has one, at least one.

    Returns:
        residues, shape (cells, values of a cell).
    """
    axes = tuple((prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])) for axis in forms)
    cells, tables = np.empty(numbers.shape[1:], dtype=np.uint64), tuple(forms.values())

    def some(part: range) -> None:
        _transform_cells(cells[part.start : part.stop], source, numbers[:, part.start : part.stop], axes, tables)

    each(some, ranges(len(cells), max(1, _AT_ONCE // prod(shape))))
    return cells


@jit
def gather(source: Residues, numbers: SourceIndices) -> Residues:
    """Return the values at some places of a source, and zeros at place 0, shape (m,).

    Args:
        numbers: places in the source, counted from 1, shape (m,).
    """
    values = np.empty(numbers.size, dtype=np.uint64)
    for i in range(numbers.size):
        values[i] = source[numbers[i] - 1] if numbers[i] else np.uint64(0)
    return values


@jit
def _transform_cells(
    cells: Residues,
    source: Residues,
    numbers: SourceIndices,
    axes: tuple[tuple[int, int, int], ...],
    forms: tuple[Transform, ...],
) -> None:
    """Run :func:`transform_cells`; axes: (outer, N, inner) of each transform for one cell."""
    p = forms[0].moduli.primes[0]
    for cell in range(cells.shape[0]):
        for term in range(numbers.shape[0]):
            values, places = cells[cell], numbers[term, cell]
            for i in range(values.size):
                value = source[places[i] - 1] if places[i] else np.uint64(0)
                values[i] = value if term == 0 else sub_if_ge(values[i] + value, p)
    for number in range(len(forms)):
        outer, length, inner = axes[number]
        columns = cells.copy().reshape(cells.shape[0] * outer, length, inner)
        _transform(cells.reshape(columns.shape), columns, forms[number])


@jit
def _transform(result: Residues, columns: Residues, form: Transform) -> None:
    """Transform the middle axis of columns (outer, N, inner)."""
    n1, n2, half = form.first.shape[0], form.second.shape[0], form.moduli.half[0]
    work = np.empty((2, n1 * n2, _WIDTH), dtype=np.uint64)
    room, middle = work[0], work[1]
    total = np.empty(_WIDTH, dtype=np.uint64)
    count = columns.shape[0] * columns.shape[2]
    for start in range(0, count, _WIDTH):
        width = min(_WIDTH, count - start)
        _load(room, columns, form.taken, start, width, half)
        for j in range(n2):
            for k in range(n1):
                _row(total, form.first[k], room[n1 * j : n1 * (j + 1)], form.moduli)
                if n2 == 1:
                    _store(result, total, form.given[k], start, width)
                else:
                    _split_row(middle[n2 * k + j], total, half)
        if n2 > 1:
            for k in range(n1):
                for j in range(n2):
                    _row(total, form.second[j], middle[n2 * k : n2 * (k + 1)], form.moduli)
                    _store(result, total, form.given[n2 * k + j], start, width)


@jit
def _load(room: Residues, columns: Residues, order: Integers, start: int, width: int, half: Word) -> None:
    """Copy columns start to start + width, split, side by side."""
    length, inner = columns.shape[1], columns.shape[2]
    for row in range(order.size):
        if inner == 1:
            _split_row(room[row, :width], columns.reshape(-1)[start * length + order[row] :: length][:width], half)
        else:
            done = 0
            while done < width:
                outer, first = divmod(start + done, inner)
                run = columns[outer, order[row], first : first + width - done]
                _split_row(room[row, done : done + run.size], run, half)
                done += run.size


@jit
def _store(result: Residues, total: Residues, k: int, start: int, width: int) -> None:
    """Write row k of the columns start to start + width."""
    length, inner = result.shape[1], result.shape[2]
    if inner == 1:
        target = result.reshape(-1)[start * length + k :: length]
        for c in range(width):
            target[c] = total[c]
    else:
        done = 0
        while done < width:
            outer, first = divmod(start + done, inner)
            run = result[outer, k, first : first + width - done]
            run[:] = total[done : done + run.size]
            done += run.size


@jit
def _split_row(target: Residues, words: Residues, half: Word) -> None:
    """Split words in halves."""
    mask = (np.uint64(1) << half) - np.uint64(1)
    for i in range(words.size):
        target[i] = (words[i] >> half) << _HALF | (words[i] & mask)


@jit
def _row(total: Residues, factors: Residues, rows: Residues, moduli: Moduli) -> None:
    """Compute the sum of a work's rows, each times its factor, reduced."""
    total.fill(0)
    step = min(moduli.terms[0], inner_products.AT_ONCE)
    for first in range(0, rows.shape[0], step):
        _add_rows(total, factors[first : first + step], rows[first : first + step], moduli)


@inline
def _add_rows(total: Residues, w: Residues, x: Residues, moduli: Moduli) -> None:
    """Add up to eight rows to the total, each times its factor, reduced; missing rows have the factor zero."""
    powers, half, p, last = moduli.powers[0], moduli.half[0], moduli.primes[0], x.shape[0] - 1
    ratio, power, quotient, zero = powers[0], powers[1], powers[2], np.uint64(0)
    xa, xb, xc, xd = x[0], x[min(1, last)], x[min(2, last)], x[min(3, last)]
    wa, wb, wc, wd = w[0], w[1] if last > 0 else zero, w[2] if last > 1 else zero, w[3] if last > 2 else zero
    if last < inner_products.AT_ONCE // 2:
        for i in range(_WIDTH):
            low, middle, high = inner_products.four_products(xa[i], xb[i], xc[i], xd[i], wa, wb, wc, wd)
            total[i] = sub_if_ge(
                total[i] + inner_products.joined(low, middle, high, ratio, power, quotient, half, p), p
            )
    else:
        xe, xf, xg, xh = x[4], x[min(5, last)], x[min(6, last)], x[min(7, last)]
        we, wf, wg, wh = w[4], w[5] if last > 4 else zero, w[6] if last > 5 else zero, w[7] if last > 6 else zero
        for i in range(_WIDTH):
            low, middle, high = inner_products.four_products(xa[i], xb[i], xc[i], xd[i], wa, wb, wc, wd)
            more = inner_products.four_products(xe[i], xf[i], xg[i], xh[i], we, wf, wg, wh)
            low, middle, high = low + more[0], middle + more[1], high + more[2]
            total[i] = sub_if_ge(
                total[i] + inner_products.joined(low, middle, high, ratio, power, quotient, half, p), p
            )
