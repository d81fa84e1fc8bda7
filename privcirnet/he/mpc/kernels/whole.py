"""Linear layers on whole residues: sums of products that fit into 64 bits are taken as integers and reduced once.

A residue in (-t/2, t/2] has some 50 bits and a weight 8, so that a few thousand products fit. There are no digits to
split and to collect; vector units multiply 64-bit words as fast as they do two digits.
"""

from typing import Any, NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, reduce_4p
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.jit import inline, jit

Integer = Any
"""A signed word, ``numpy.int64``: checkers take an element of an array of them for an array."""
_ZERO = np.uint64(0)


class Whole(NamedTuple):
    """Constants for the reduction of a sum.

    Attributes:
        one: floor(2^64 / t).
        offset: a multiple of t that no sum is under the negative of; with a sum and a residue more it is under 2^64.
    """

    t: Word
    one: Word
    offset: Word


class Window(NamedTuple):
    """The window that an output sees.

    Attributes:
        kernel: R.
        padding: zeros on each side.
    """

    kernel: int
    stride: int
    padding: int


@inline
def centered(word: Word, t: Word) -> Integer:
    """Return a residue as an integer in (-t/2, t/2]."""
    signed = np.int64(word)
    return signed - (np.int64(t) if signed > np.int64(t) >> 1 else 0)


@inline
def reduced(total: Integer, bias: Word, whole: Whole) -> Word:
    """Return a sum and a residue mod t."""
    word = np.uint64(total) + whole.offset + bias
    return reduce_4p(barrett_lazy(word, whole.one, whole.t), whole.t)


@jit
def depthwise(result: Residues, x: Residues, weight: Integers, bias: Residues, window: Window, whole: Whole) -> None:
    """Write a layer in which every channel is a group.

    With stride 1 all rows of a channel are one long row, whose sums between two rows of outputs nobody looks at.

    Args:
        result: written, shape (C, H', W').
        x: residues, shape (C, H, W).
        weight: shape (C, R R).
        bias: added, of the result's shape, or empty.
    """
    channels, height, width = x.shape
    _, rows, columns = result.shape
    kernel, stride, padding = window
    across = width + 2 * padding
    padded = np.zeros((height + 2 * padding) * across + kernel, dtype=np.int64)
    sums = np.empty(rows * across, dtype=np.int64)
    length = rows * across - kernel + 1 if stride == 1 else (columns - 1) * stride + 1
    for channel in range(channels):
        for i in range(height):
            source, target = x[channel, i], padded[(i + padding) * across + padding :]
            for j in range(width):
                target[j] = centered(source[j], whole.t)
        factors = weight[channel]
        for i in range(1 if stride == 1 else rows):
            _slide(sums[i * across :], padded[i * stride * across :], factors, kernel, across, length)
        for i in range(rows):
            row = sums[i * across :]
            if stride > 1:
                for j in range(columns):
                    row[j] = row[j * stride]
            _finish(result[channel, i], row, bias[channel, i] if bias.size else result[channel, i, :0], whole)


@inline
def _finish(result: Residues, sums: Integers, bias: Residues, whole: Whole) -> None:
    """Write a row of results, with a bias unless it is empty."""
    if bias.size:
        for j in range(result.size):
            result[j] = reduced(sums[j], bias[j], whole)
    else:
        for j in range(result.size):
            result[j] = reduced(sums[j], _ZERO, whole)


@inline
def _slide(sums: Integers, inputs: Integers, factors: Integers, kernel: int, across: int, length: int) -> None:
    """Write the sums of a row of windows, one beside the other."""
    if kernel == 3:
        a, b, c, d, e, f, g, h, k = factors
        first, second, third = inputs, inputs[across:], inputs[2 * across :]
        for j in range(length):
            sums[j] = (
                (a * first[j] + b * first[j + 1] + c * first[j + 2])
                + (d * second[j] + e * second[j + 1] + f * second[j + 2])
                + (g * third[j] + h * third[j + 1] + k * third[j + 2])
            )
        return
    for j in range(length):
        sums[j] = 0
    for tap in range(kernel * kernel):
        source, factor = inputs[tap // kernel * across + tap % kernel :], factors[tap]
        for j in range(length):
            sums[j] += factor * source[j]


@jit
def positions(  # noqa: PLR0913, PLR0917
    result: Residues,
    x: Residues,
    weight: Integers,
    bias: Residues,
    ends: Integers,
    part: tuple[int, int, int, int],
    whole: Whole,
) -> None:
    """Write a layer that computes every position by itself, for some positions and outputs.

    Four outputs and four inputs at a time stay in registers: 16 products for 4 sums that are read and written.

    Args:
        result: written, shape (K, positions).
        x: residues, shape (C, positions).
        weight: shape (K, C), with zeros up to multiples of 4.
        bias: added, of the result's shape, or empty.
        ends: inputs after which sums are reduced, multiples of 4; the last one is their number.
        part: the first position and the end of those that are written, and the same of outputs. The first output is a
            multiple of 4.
    """
    first, end, top, bottom = part
    channels, count = weight.shape[1], end - first
    inputs, sums = np.empty((channels, count), dtype=np.int64), np.empty((4, count), dtype=np.int64)
    inputs[x.shape[0] :] = 0
    for channel in range(x.shape[0]):
        source, target = x[channel, first:end], inputs[channel]
        for j in range(count):
            target[j] = centered(source[j], whole.t)
    for k in range(top, bottom, 4):
        sums[:] = 0
        start = 0
        for last in ends:
            if start:
                _reduce(sums.reshape(-1), whole)
            for c in range(start, last, 4):
                _tile(sums, inputs[c : c + 4], weight[k : k + 4, c : c + 4])
            start = last
        for i in range(min(4, bottom - k)):
            row = result[k + i, first:end]
            _finish(row, sums[i], bias[k + i, first:end] if bias.size else row[:0], whole)


@inline
def _reduce(sums: Integers, whole: Whole) -> None:
    """Make residues of sums in place."""
    for j in range(sums.size):
        sums[j] = np.int64(reduced(sums[j], _ZERO, whole))


@inline
def _tile(sums: Integers, inputs: Integers, weight: Integers) -> None:
    """Add the products of four inputs to four outputs."""
    p, q, r, s = inputs
    a, b, c, d = sums
    a0, a1, a2, a3 = weight[0]
    b0, b1, b2, b3 = weight[1]
    c0, c1, c2, c3 = weight[2]
    d0, d1, d2, d3 = weight[3]
    for j in range(p.size):
        w, x, y, z = p[j], q[j], r[j], s[j]
        a[j] += (a0 * w + a1 * x) + (a2 * y + a3 * z)
        b[j] += (b0 * w + b1 * x) + (b2 * y + b3 * z)
        c[j] += (c0 * w + c1 * x) + (c2 * y + c3 * z)
        d[j] += (d0 * w + d1 * x) + (d2 * y + d3 * z)
