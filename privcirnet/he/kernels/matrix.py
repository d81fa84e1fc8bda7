"""A small matrix times many columns mod t: the cyclic transforms of layers, of any length, on plain integers.

Words are cut in halves as in :mod:`privcirnet.he.kernels.products`, with the same sums and the same reduction.

Cost: N^2 products for each column; 0.4 ns each where there are vector instructions.
"""

from functools import lru_cache

import numpy as np

from privcirnet.he.kernels import products
from privcirnet.he.kernels.arithmetic import Word
from privcirnet.he.kernels.jit import jit
from privcirnet.he.kernels.products import Moduli
from privcirnet.he.modular import Residues
from privcirnet.he.threads import each, ranges

_WIDTH = 512
"""Columns that are worked on together: their sums fit a first-level cache."""

_AT_ONCE = 1 << 12
"""Columns of a task."""

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def multiply_all(matrix: Residues, columns: Residues, t: int) -> Residues:
    """Matrix (K, N) times columns (outer, N, inner) mod t < 2^60, all reduced, on all threads: (outer, K, inner)."""
    modulus, cut = _cut(matrix.tobytes(), matrix.shape, t)
    outer, _, inner = columns.shape
    result, given = np.empty((outer, matrix.shape[0], inner), dtype=np.uint64), np.ascontiguousarray(columns)

    def some(part: range) -> None:
        multiply(result, cut, given, modulus, (part.start, part.stop))

    each(some, ranges(outer * inner, _AT_ONCE))
    return result


@lru_cache(maxsize=128)
def _cut(matrix: bytes, shape: tuple[int, int], t: int) -> tuple[Moduli, Residues]:
    modulus, words = products.moduli((t,)), np.frombuffer(matrix, dtype=np.uint64).reshape(shape[0], 1, shape[1]).copy()
    products.cut(words, modulus)
    return modulus, words.reshape(shape)


@jit
def multiply(result: Residues, matrix: Residues, columns: Residues, moduli: Moduli, span: tuple[int, int]) -> None:
    """Some columns of result (outer, K, inner) = matrix (K, N) times columns (outer, N, inner), reduced.

    Args:
        result: written.
        matrix: cut.
        columns: reduced.
        moduli: of t alone.
        span: (first, end) of the columns, counted over (outer, inner).
    """
    length, half, most = matrix.shape[1], moduli.half[0], moduli.terms[0]
    room = np.empty((length, _WIDTH), dtype=np.uint64)
    partial, total = np.empty((3, _WIDTH), dtype=np.uint64), np.empty(_WIDTH, dtype=np.uint64)
    for start in range(span[0], span[1], _WIDTH):
        width = min(_WIDTH, span[1] - start)
        _load(room, columns, start, width, half)
        for k in range(matrix.shape[0]):
            total.fill(0)
            for first in range(0, length, most):
                partial.fill(0)
                _add_rows(partial, matrix[k], room, first, min(first + most, length))
                products.reduce_sums(total, partial, moduli.powers[0], half, moduli.primes[0])
            _store(result, total, k, start, width)


@jit
def _load(room: Residues, columns: Residues, start: int, width: int, half: Word) -> None:
    """Columns start to start + width, cut, side by side."""
    inner, mask = columns.shape[2], (np.uint64(1) << half) - np.uint64(1)
    for j in range(columns.shape[1]):
        o, i = start // inner, start % inner
        for c in range(width):
            word = columns[o, j, i]
            room[j, c] = (word >> half) << _HALF | (word & mask)
            i += 1
            if i == inner:
                o, i = o + 1, 0


@jit
def _store(result: Residues, total: Residues, k: int, start: int, width: int) -> None:
    """Row k of the columns start to start + width."""
    inner = result.shape[2]
    o, i = start // inner, start % inner
    for c in range(width):
        result[o, k, i] = total[c]
        i += 1
        if i == inner:
            o, i = o + 1, 0


@jit
def _add_rows(partial: Residues, factors: Residues, room: Residues, first: int, end: int) -> None:
    """Rows first to end, each times its factor, into the three sums; two at a time."""
    j = first
    while j + 2 <= end:
        a0, a1, b0, b1 = factors[j] & _LOW, factors[j] >> _HALF, factors[j + 1] & _LOW, factors[j + 1] >> _HALF
        upper, lower = room[j], room[j + 1]
        for i in range(_WIDTH):
            p0, p1, q0, q1 = upper[i] & _LOW, upper[i] >> _HALF, lower[i] & _LOW, lower[i] >> _HALF
            partial[0, i] += p0 * a0 + q0 * b0
            partial[1, i] += p0 * a1 + p1 * a0 + q0 * b1 + q1 * b0
            partial[2, i] += p1 * a1 + q1 * b1
        j += 2
    if j < end:
        a0, a1, upper = factors[j] & _LOW, factors[j] >> _HALF, room[j]
        for i in range(_WIDTH):
            p0, p1 = upper[i] & _LOW, upper[i] >> _HALF
            partial[0, i] += p0 * a0
            partial[1, i] += p0 * a1 + p1 * a0
            partial[2, i] += p1 * a1
