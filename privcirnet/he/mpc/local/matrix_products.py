"""A linear layer mod t as products of float64 matrices that never round.

Residues are split into digits (:class:`mpc.local.products.Split`), two for weights of 8 bits; circulant blocks into
pieces. A task makes a rectangle of outputs, from residues to residues, so that what lies between stays in a core's
cache. Tasks are shared out among threads; a matrix product runs on one.

Circulant blocks, with integers alone: a product with 22 of 64 multiplications for b = 8, 86 of 256 for 16. A block is a
product of polynomials mod X^b - 1. With m = b / 2, X^b - 1 = (X^m - 1) (X^m + 1): from the sum and the difference of
the halves of both factors come y+ mod X^m - 1 and y- mod X^m + 1, and the halves of the product are (y+ + y-) / 2 and
(y+ - y-) / 2. The first is split again, and again while the size is even and above the least. A piece mod X^m + 1 stays
as it is, an m x m matrix; inputs and results are added and subtracted mod t. Order of a split block: the smallest
piece, mod X^least - 1, then those mod X^least + 1, X^(2 least) + 1 and so on.
"""

from dataclasses import dataclass, replace
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.kernels import convolution
from privcirnet.he.mpc.kernels.convolution import CirculantSplit, Digits
from privcirnet.he.mpc.local.products import EXACT_BITS, Split, split
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


def matrices(rows: Values, block_size: int, smallest: int, groups: int) -> list[Values]:
    """Return the matrix of each piece, the smallest first.

    Args:
        rows: the first row of each block row, shape (K/b, C/groups, R, S).
        smallest: size of the smallest pieces, b / 2^i.

    Returns:
        for pieces of size m, (groups, K/groups/b m, C/groups/b m R S) each.
    """
    maps, channels, *kernel = rows.shape
    blocks = rows.reshape(maps, channels // block_size, block_size, *kernel)
    polynomial = np.roll(blocks[:, :, ::-1], 1, axis=2)  # y_i = sum_j row_(j - i) x_j = sum_j polynomial_(i - j) x_j
    pieces: list[Values] = []
    while (half := polynomial.shape[2] // 2) >= smallest:
        low, high = polynomial[:, :, :half], polynomial[:, :, half:]
        pieces.append(_matrix(low - high, -1, groups))
        polynomial = low + high
    return [_matrix(polynomial, 1, groups), *reversed(pieces)]


def _matrix(polynomial: Values, sign: int, groups: int) -> Values:
    """Return products with polynomials (K/b, C/groups/b, m, R, S) mod X^m - sign as a matrix."""
    maps, blocks, m, *kernel = polynomial.shape
    i, j = np.indices((m, m))
    signs = np.where(i < j, sign, 1)[:, :, None, None]
    square = polynomial[:, :, (i - j) % m] * signs  # (K/b, C/groups/b, m, m, R, S)
    return square.transpose(0, 2, 1, 3, 4, 5).reshape(groups, maps // groups * m, blocks * m * kernel[0] * kernel[1])


Floats = npt.NDArray[np.float64]

_VALUES_AT_ONCE = 1 << 17
"""Columns or results of a task at most, times positions and digits: a megabyte, which a core's second cache holds."""
_LEAST_POSITIONS = 64
_NO_BIAS: Residues = np.empty((0, 0, 0), dtype=np.uint64)


@dataclass(frozen=True)
class _Task:
    """Rows and columns of outputs, and the block rows of each group that they are made for."""

    rows: range
    columns: range
    blocks: range


class MatrixProducts:
    """A layer's weights as float64 matrices, and its computation with them.

    Args:
        rows: the first row of each circulant block row, shape (K/b, C/groups, R, S).
        t: prime modulus under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """

    def __init__(self, shape: LinearShape, block_size: int, rows: Values, t: int) -> None:
        smallest = block_size // (block_size & -block_size)
        pieces = matrices(rows, block_size, smallest, shape.groups)
        self._split = split(t, max(int(np.abs(piece).sum(axis=2).max()) for piece in pieces))
        self._shape, self._block = _flat(shape.padded(block_size)), CirculantSplit(block_size, smallest)
        self._result_shape, self._weights = shape.output_shape, [piece.astype(np.float64) for piece in pieces]
        self._digits = Digits(np.uint64(t), self._split.width, self._split.count)
        self._powers = _powers(self._split, len(pieces))
        self.bytes = sum(weight.nbytes for weight in self._weights)
        self._depthwise = shape.kind == "depthwise" and shape.taps > 1

    def __call__(self, share: Residues, bias: Residues | None = None) -> Residues:
        """Return the layer's result, see :meth:`ClearLinear.apply`.

        Args:
            share: residues, shape (C, H, W).
            bias: residues of the result's shape.
        """
        x = _with_channels(share, self._shape.input_shape)
        result = np.empty(self._shape.output_shape, dtype=np.uint64)
        constants = _NO_BIAS if bias is None else _with_channels(bias, result.shape)
        with threads.one_thread():
            threads.each(lambda task: self._rectangle(result, x, constants, task), self._tasks())
        return result[: self._result_shape[0]].reshape(self._result_shape)

    def _tasks(self) -> list[_Task]:
        """Return rectangles of outputs; where they are too few for all threads, for a part of the maps each."""
        shape, (_, height, width) = self._shape, self._shape.output_shape
        inputs = shape.in_channels * (1 if self._depthwise else shape.taps)
        depth = self._split.count * max(inputs, shape.out_channels)
        positions = max(_LEAST_POSITIONS, _VALUES_AT_ONCE // depth)
        columns = _ranges(width, positions)
        rows = _ranges(height, max(1, positions // len(columns[0])))
        blocks = shape.out_channels // shape.groups // self._block.size
        parts = -(-threads.count() // (len(rows) * len(columns))) if shape.groups == 1 else 1
        return [_Task(*part) for part in product(rows, columns, _ranges(blocks, -(-blocks // parts)))]

    def _rectangle(self, result: Residues, x: Residues, bias: Residues, task: _Task) -> None:
        """Write one rectangle of the result (K, H', W')."""
        sums = self._sums(self._planes(x, task), task)
        first = task.blocks.start * self._block.size
        where = slice(first, first + len(sums)), _slice(task.rows), _slice(task.columns)
        constants = bias[where] if bias.size else bias
        convolution.collect(result[where], sums, constants, self._block, self._powers, self._digits.t)

    def _planes(self, x: Residues, task: _Task) -> Floats:
        """Return the digits of all inputs that the outputs of a rectangle see, (C, L, rows, columns)."""
        windows, parts = self._shape.windows, (task.rows, task.columns)
        steps = self._shape.strides if self._shape.taps == 1 else (1, 1)
        corner = [part.start * window.stride - window.padding for part, window in zip(parts, windows, strict=True)]
        sizes = [
            (len(part) - 1) * window.stride // step + window.kernel
            for part, window, step in zip(parts, windows, steps, strict=True)
        ]
        planes = np.zeros((len(x), self._split.count, *sizes))
        convolution.spread(planes, x, self._block, self._digits, (corner[0], corner[1]), steps)
        return planes

    def _sums(self, planes: Floats, task: _Task) -> Floats:
        """Return the sums of digits' products, rows in the order of pieces, (maps of the task, L, rows columns)."""
        shape, size = self._shape, self._block.size
        maps, digits = shape.groups * len(task.blocks) * size, self._split.count
        sums = np.empty((maps, digits, len(task.rows), len(task.columns)))
        if self._depthwise:
            convolution.depthwise(sums, planes, self._weights[0][:, 0], shape.kernels, shape.strides)
            return sums.reshape(maps, digits, -1)
        columns, flat = self._columns(planes, task).reshape(-1, digits * sums[0, 0].size), sums.reshape(maps, -1)
        row = column = 0
        for weight in self._weights:
            piece = weight.shape[1] * size * shape.groups // shape.out_channels
            part = weight[:, task.blocks.start * piece : task.blocks.stop * piece]
            rows, terms = part.shape[0] * part.shape[1], part.shape[0] * part.shape[2]
            operand = columns[column : column + terms].reshape(len(part), -1, columns.shape[1])
            np.matmul(part, operand, out=flat[row : row + rows].reshape(*part.shape[:2], -1))
            row, column = row + rows, column + terms
        return sums.reshape(maps, digits, -1)

    def _columns(self, planes: Floats, task: _Task) -> Floats:
        """Return the window of each output of a rectangle, (C R S, L, rows, columns)."""
        if self._shape.taps == 1:
            return planes
        shape = len(planes) * self._shape.taps, self._split.count, len(task.rows), len(task.columns)
        columns = np.empty(shape)
        convolution.windows(columns, planes, self._shape.kernels, self._shape.strides)
        return columns


def _with_channels(values: Residues, shape: tuple[int, int, int]) -> Residues:
    """Return maps in another shape of their places, with zero channels for those of whole blocks that they lack."""
    maps = np.ascontiguousarray(values).reshape(len(values), *shape[1:])
    missing = shape[0] - len(maps)
    return np.concatenate([maps, np.zeros((missing, *shape[1:]), dtype=np.uint64)]) if missing else maps


def _flat(shape: LinearShape) -> LinearShape:
    """Return the same layer with all positions in one row, where it computes each position by itself."""
    if shape.pointwise:
        return replace(shape, height=1, width=shape.height * shape.width)
    return shape


def _ranges(count: int, limit: int) -> list[range]:
    """Return the numbers under a count in the fewest ranges of like size."""
    parts = -(-count // limit)
    edges = [count * part // parts for part in range(parts + 1)]
    return [range(*edge) for edge in pairwise(edges)]


def _slice(part: range) -> slice:
    return slice(part.start, part.stop)


def _powers(digits: Split, pieces: int) -> Residues:
    """Return the powers of ``convolution.collect``: a piece of level i is halved i times when blocks are joined."""
    t = digits.t
    powers: list[list[tuple[int, int]]] = []
    for piece in range(pieces):
        scale = pow(pow(2, -1, t), min(pieces - piece, pieces - 1), t)
        factors = [scale * digits.power(digit) % t for digit in range(digits.count)]
        constant = -(sum(factors) << EXACT_BITS) % t
        powers.append([*((factor, (factor << 64) // t) for factor in factors), (constant, 0)])
    return np.array(powers, dtype=np.uint64)
