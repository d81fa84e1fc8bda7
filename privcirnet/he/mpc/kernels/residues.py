"""Passes over whole residues: linear layers whose sums fit into 64 bits, and passes over shares.

Sums of products that fit into 64 bits are taken as integers and reduced once. A residue in (-t/2, t/2] has some 50 bits
and a weight 8, so that a few thousand products fit. There are no digits to split and to collect; vector units multiply
64-bit words as fast as they do two digits.

Passes over shares each read and write every value once. All their shapes are (values,), all values under t.
"""

from typing import Any, NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.kernels.inner_products import Moduli, joined
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


class SlidingWindow(NamedTuple):
    """The window that an output sees.

    Attributes:
        kernel: rows and columns, (R, S).
        stride: rows and columns to the next window.
        rows: rows of zeros above the map, and below.
        columns: columns of zeros beside it, on the left and on the right.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]


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
def depthwise(
    result: Residues, x: Residues, weight: Integers, bias: Residues, window: SlidingWindow, whole: Whole
) -> None:
    """Write a layer in which every channel is a group.

    With stride 1 all rows of a channel are one long row, whose sums between two rows of outputs nobody looks at.

    Args:
        result: written, shape (C, H', W').
        x: residues, shape (C, H, W).
        weight: shape (C, R S).
        bias: added, of the result's shape, or empty.
    """
    channels, height, width = x.shape
    _, rows, columns = result.shape
    kernel, (down, right), above, beside = window
    across, whole_map = width + beside[0] + beside[1], down == right == 1
    padded = np.zeros((height + above[0] + above[1]) * across + kernel[1], dtype=np.int64)
    sums = np.empty(rows * across, dtype=np.int64)
    length = rows * across - kernel[1] + 1 if whole_map else (columns - 1) * right + 1
    for channel in range(channels):
        for i in range(height):
            source, target = x[channel, i], padded[(i + above[0]) * across + beside[0] :]
            for j in range(width):
                target[j] = centered(source[j], whole.t)
        factors = weight[channel]
        for i in range(1 if whole_map else rows):
            _slide(sums[i * across :], padded[i * down * across :], factors, kernel, across, length)
        for i in range(rows):
            row = sums[i * across :]
            if right > 1:
                for j in range(columns):
                    row[j] = row[j * right]
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
def _slide(
    sums: Integers, inputs: Integers, factors: Integers, kernel: tuple[int, int], across: int, length: int
) -> None:
    """Write the sums of a row of windows, one beside the other."""
    if kernel == (3, 3):
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
    for tap in range(kernel[0] * kernel[1]):
        source, factor = inputs[tap // kernel[1] * across + tap % kernel[1] :], factors[tap]
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


@inline
def product(x: Word, y: Word, moduli: Moduli) -> Word:
    """Return x y mod t, reduced, by products of halves; ``x``: under t; ``y``: under t."""
    powers, half, t = moduli.powers[0], moduli.half[0], moduli.primes[0]
    mask = (np.uint64(1) << half) - np.uint64(1)
    x0, x1, y0, y1 = x & mask, x >> half, y & mask, y >> half
    return joined(x0 * y0, x0 * y1 + x1 * y0, x1 * y1, powers[0], powers[1], powers[2], half, t)


@jit
def square_answer(e: Residues, z: Residues, d: Residues, terms: Residues, moduli: Moduli) -> None:
    """Write e = 2 z d + terms.

    Args:
        e: written.
        z: the client's share.
        d: message of the server.
    """
    t = moduli.primes[0]
    for i in range(e.size):
        e[i] = sub_if_ge(product(z[i], sub_if_ge(d[i] + d[i], t), moduli) + terms[i], t)


@jit
def square_finish(square: Residues, z: Residues, e: Residues, terms: Residues, moduli: Moduli) -> None:
    """Write z^2 + e + terms.

    Args:
        square: written.
        z: the server's share.
        e: message of the client.
    """
    t = moduli.primes[0]
    for i in range(square.size):
        square[i] = reduce_4p(product(z[i], z[i], moduli) + e[i] + terms[i], t)


@jit
def add(total: Residues, x: Residues, y: Residues, t: Word) -> None:
    """Write x + y; ``total``: written."""
    for i in range(total.size):
        total[i] = sub_if_ge(x[i] + y[i], t)


@jit
def subtract(difference: Residues, x: Residues, y: Residues, t: Word) -> None:
    """Write x - y; ``difference``: written."""
    for i in range(difference.size):
        difference[i] = sub_if_ge(x[i] + (t - y[i]), t)


@jit
def scale(result: Residues, share: Residues, factor: Residues, t: Word) -> None:
    """Write a constant times a share; ``result``: written."""
    constant, quotient = factor[0], factor[1]
    for i in range(result.size):
        result[i] = reduce_4p(mul_shoup_lazy(share[i], constant, quotient, t), t)


@jit
def truncate_client(quotient: Residues, share: Residues, bits: Word, t: Word) -> None:
    """Write -floor((t - share) / 2^bits); ``quotient``: written; ``bits``: f."""
    for i in range(quotient.size):
        quotient[i] = sub_if_ge(t - ((t - share[i]) >> bits), t)


@jit
def truncate_server(quotient: Residues, share: Residues, bits: Word) -> None:
    """Write floor(share / 2^bits); ``quotient``: written; ``bits``: f."""
    for i in range(quotient.size):
        quotient[i] = share[i] >> bits
