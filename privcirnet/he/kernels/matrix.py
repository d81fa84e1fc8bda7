"""A small matrix times many columns mod t: the cyclic transforms of layers, of any length, on plain integers.

Words are cut in halves as in :mod:`privcirnet.he.kernels.products`, with the same sums and the same reduction.

Cost: N^2 products for each column; 0.4 ns each where there are vector instructions.
"""

from functools import lru_cache

import numpy as np

from privcirnet.he.kernels import products
from privcirnet.he.kernels.jit import jit
from privcirnet.he.kernels.products import Moduli
from privcirnet.he.modular import Residues
from privcirnet.he.threads import each, ranges

_WIDTH = 512
"""Columns that are worked on together: their sums fit a first-level cache."""

_AT_ONCE = 1 << 13
"""Columns of a task."""

_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)


def multiply_all(result: Residues, matrix: Residues, columns: Residues, t: int) -> None:
    """Result (K, m) = matrix (K, N) times columns (N, m) mod t < 2^60, all reduced, on all threads."""
    modulus, cut = _cut(matrix.tobytes(), matrix.shape, t)

    def some(part: range) -> None:
        multiply(result, cut, columns, modulus, (part.start, part.stop))

    each(some, ranges(columns.shape[1], _AT_ONCE))


@lru_cache(maxsize=128)
def _cut(matrix: bytes, shape: tuple[int, int], t: int) -> tuple[Moduli, Residues]:
    modulus, words = products.moduli((t,)), np.frombuffer(matrix, dtype=np.uint64).reshape(shape[0], 1, shape[1]).copy()
    products.cut(words, modulus)
    return modulus, words.reshape(shape)


@jit
def multiply(result: Residues, matrix: Residues, columns: Residues, moduli: Moduli, span: tuple[int, int]) -> None:
    """Some columns of result (K, m) = matrix (K, N) times columns (N, m), reduced.

    Args:
        result: written.
        matrix: cut.
        columns: reduced.
        moduli: of t alone.
        span: (first, end) of the columns.
    """
    rows, length = matrix.shape
    room = np.empty((length, _WIDTH), dtype=np.uint64)
    partial, total = np.empty((3, _WIDTH), dtype=np.uint64), np.empty(_WIDTH, dtype=np.uint64)
    half, most = moduli.half[0], moduli.terms[0]
    mask = (np.uint64(1) << half) - np.uint64(1)
    for start in range(span[0], span[1], _WIDTH):
        width = min(_WIDTH, span[1] - start)
        for j in range(length):
            for i in range(width):
                room[j, i] = (columns[j, start + i] >> half) << _HALF | (columns[j, start + i] & mask)
        for k in range(rows):
            total.fill(0)
            for first in range(0, length, most):
                partial.fill(0)
                _add_rows(partial, matrix[k], room, first, min(first + most, length))
                products.reduce_sums(total, partial, moduli.powers[0], half, moduli.primes[0])
            for i in range(width):
                result[k, start + i] = total[i]


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
