"""Passes around the matrix products of a linear layer: residues to digits, windows to columns, sums to residues.

A task is a rectangle of outputs. Its rows are in the order of :mod:`mpc.local.matrix_products`: for each piece of a
circulant block, for each block, the channels of the piece. The last two do the same around a product of two matrices of
residues.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline, jit

Floats = npt.NDArray[np.float64]

OFFSET_BITS = 53
"""Sums of digits are at most 2^53 in absolute value."""


class Digits(NamedTuple):
    """The split of a residue in (-t/2, t/2] into signed digits: x = sum of x_l 2^(width l).

    Attributes:
        width: bits of all digits but the last.
    """

    t: Word
    width: int
    number: int


class CirculantSplit(NamedTuple):
    """The split of circulant blocks, see :mod:`mpc.local.matrix_products`.

    Attributes:
        size: b.
    """

    size: int
    least: int


@inline
def place(blocks: int, number: int, offset: int, smallest: int) -> int:
    """Return the row of a channel."""
    start, size = 0, smallest
    while offset >= start + size:
        start += size
        size = start
    return start * blocks + number * size + offset - start


@inline
def split_into(planes: Floats, column: int, word: Word, digits: Digits) -> None:
    """Write the digits of a residue; ``planes``: written in one column, shape (L, columns)."""
    rest = np.int64(word)
    if rest > np.int64(digits.t) >> 1:
        rest -= np.int64(digits.t)
    half = np.int64(1) << (digits.width - 1)
    for digit in range(digits.number - 1):
        low = ((rest + half) & (2 * half - 1)) - half
        planes[digit, column] = low
        rest = (rest - low) >> digits.width
    planes[digits.number - 1, column] = rest


@jit
def spread(
    planes: Floats, x: Residues, block: CirculantSplit, digits: Digits, corner: tuple[int, int], step: tuple[int, int]
) -> None:
    """Write the digits of a rectangle of the input, blocks split.

    Args:
        planes: zeros, written where the input is, shape (C, L, rows, columns).
        x: residues, shape (C, H, W).
        corner: the row and the column of the input that come first; under 0 in the padding.
        step: distances of rows and of columns that are taken.
    """
    (top, left), (down, right) = corner, step
    _, _, rows, columns = planes.shape
    first = 0 if left >= 0 else (right - 1 - left) // right
    last = min(columns, (x.shape[2] - left + right - 1) // right)
    buffer = np.empty((block.size, columns), dtype=np.uint64)
    for number in range(x.shape[0] // block.size):
        for i in range(rows):
            row = top + i * down
            if row < 0 or row >= x.shape[1]:
                continue
            for k in range(block.size):
                source = x[number * block.size + k, row]
                for j in range(first, last):
                    buffer[k, j] = source[left + j * right]
            _divide(buffer, block, first, last, digits.t)
            for k in range(block.size):
                target = planes[place(x.shape[0] // block.size, number, k, block.least), :, i]
                for j in range(first, last):
                    split_into(target, j, buffer[k, j], digits)


@inline
def _divide(values: Residues, block: CirculantSplit, first: int, last: int, t: Word) -> None:
    """Split a block mod X^m - 1 into one mod X^(m/2) - 1, in front, and one mod X^(m/2) + 1, while m is not least."""
    half = block.size
    while half > block.least:
        half //= 2
        for k in range(half):
            for j in range(first, last):
                x, y = values[k, j], values[half + k, j]
                values[k, j], values[half + k, j] = sub_if_ge(x + y, t), sub_if_ge(x + (t - y), t)


@inline
def _join(values: Residues, block: CirculantSplit, t: Word) -> None:
    """Undo :func:`_divide`, up to factors that the values have already."""
    half = block.least
    while half < block.size:
        for k in range(half):
            for j in range(values.shape[1]):
                x, y = values[k, j], values[half + k, j]
                values[k, j], values[half + k, j] = sub_if_ge(x + y, t), sub_if_ge(x + (t - y), t)
        half *= 2


@jit
def windows(columns: Floats, planes: Floats, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
    """Write the window of each output.

    Args:
        columns: written, shape (C R S, L, rows of outputs, columns of outputs).
        planes: result of :func:`spread` at step 1, shape (C, L, rows, columns).
        kernel: (R, S).
        stride: of rows and of columns.
    """
    _, digits, height, width = columns.shape
    (tall, wide), (down, right) = kernel, stride
    for number in range(columns.shape[0]):
        channel, r, s = number // (tall * wide), number // wide % tall, number % wide
        for digit in range(digits):
            for i in range(height):
                source, target = planes[channel, digit, i * down + r, s:], columns[number, digit, i]
                if right == 1:
                    for j in range(width):
                        target[j] = source[j]
                else:
                    for j in range(width):
                        target[j] = source[j * right]


@jit
def depthwise(sums: Floats, planes: Floats, weight: Floats, kernel: tuple[int, int], stride: tuple[int, int]) -> None:
    """Write the sums of a layer in which every channel is a group, straight from the digits.

    Args:
        sums: written, shape (C, L, rows of outputs, columns of outputs).
        planes: result of :func:`spread` at step 1, shape (C, L, rows, columns).
        weight: shape (C, R S).
        kernel: (R, S).
        stride: of rows and of columns.
    """
    channels, digits, height, width = sums.shape
    (tall, wide), (down, right) = kernel, stride
    for channel in range(channels):
        for digit in range(digits):
            for i in range(height):
                target = sums[channel, digit, i]
                target[:] = 0
                for tap in range(tall * wide):
                    factor = weight[channel, tap]
                    source = planes[channel, digit, i * down + tap // wide, tap % wide :]
                    if right == 1:
                        for j in range(width):
                            target[j] += factor * source[j]
                    else:
                        for j in range(width):
                            target[j] += factor * source[j * right]


@jit
def collect(result: Residues, sums: Floats, bias: Residues, block: CirculantSplit, powers: Residues, t: Word) -> None:
    """Write a rectangle of outputs from sums of digits, blocks joined.

    Args:
        result: written, shape (K, rows, columns).
        sums: integers of up to 2^53, shape (K, L, rows * columns).
        bias: added, of the result's shape, or empty.
        powers: weights of digits and their quotients for each piece of a block, from the smallest, and
            last the constant that takes 2^53 off each of them, shape (pieces, L + 1, 2).
    """
    maps, height, width = result.shape
    blocks, offset = maps // block.size, np.int64(1) << OFFSET_BITS
    buffer = np.empty((block.size, height * width), dtype=np.uint64)
    for number in range(blocks):
        for k in range(block.size):
            piece, end = 0, block.least
            while k >= end:
                piece, end = piece + 1, 2 * end
            row, target, factors = sums[place(blocks, number, k, block.least)], buffer[k], powers[piece]
            constant = factors[-1, 0]
            for j in range(target.size):
                target[j] = constant
            for digit in range(row.shape[0]):
                power, quotient, digits = factors[digit, 0], factors[digit, 1], row[digit]
                for j in range(target.size):
                    word = np.uint64(np.int64(digits[j]) + offset)
                    target[j] = sub_if_ge(target[j] + reduce_4p(mul_shoup_lazy(word, power, quotient, t), t), t)
        _join(buffer, block, t)
        for k in range(block.size):
            _add(result[number * block.size + k], buffer[k], bias, number * block.size + k, t)


@inline
def _add(result: Residues, values: Residues, bias: Residues, channel: int, t: Word) -> None:
    """Write values (rows * columns), plus the bias of a channel if there is one."""
    height, width = result.shape
    for i in range(height):
        if bias.size:
            for j in range(width):
                result[i, j] = sub_if_ge(values[i * width + j] + bias[channel, i, j], t)
        else:
            for j in range(width):
                result[i, j] = values[i * width + j]


@jit
def limbs_of(planes: Floats, x: Residues, digits: Digits) -> None:
    """Write the digits of a matrix.

    Args:
        planes: written, shape (rows, L, columns).
        x: residues, shape (rows, columns).
    """
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            split_into(planes[i], j, x[i, j], digits)


@jit
def together(result: Residues, sums: Floats, plus: Residues, powers: Residues, t: Word) -> None:
    """Write the products from those of digits, plus a summand.

    Args:
        result: written, shape (rows, columns).
        sums: products of digits, shape (rows, L, L, columns); those of the same power add up to 2^53 at most.
        plus: added, shape (rows, columns).
        powers: factor of a digit's product of each power, and its quotient; last what takes 2^53 from each of them:
            shape (2 L, 2).
    """
    rows, digits, _, columns = sums.shape
    offset, constant = np.int64(1) << OFFSET_BITS, powers[-1, 0]
    total = np.empty(columns, dtype=np.float64)
    for i in range(rows):
        target = result[i]
        for j in range(columns):
            target[j] = sub_if_ge(plus[i, j] + constant, t)
        for power in range(2 * digits - 1):
            total[:] = 0
            for a in range(max(0, power - digits + 1), min(digits, power + 1)):
                term = sums[i, a, power - a]
                for j in range(columns):
                    total[j] += term[j]
            factor, quotient = powers[power, 0], powers[power, 1]
            for j in range(columns):
                word = np.uint64(np.int64(total[j]) + offset)
                target[j] = sub_if_ge(target[j] + reduce_4p(mul_shoup_lazy(word, factor, quotient, t), t), t)
