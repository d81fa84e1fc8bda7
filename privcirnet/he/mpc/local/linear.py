"""Linear layers mod t in clear, exactly: the online work of a server whose encrypted work was done before.

Layers whose sums of products of whole residues fit into 64 bits, depthwise ones and dense ones of each position, are a
pass over the residues without digits (:class:`WholeSums`); where the sums of all inputs do not fit, they are reduced
after as many inputs as do. That is five to seven times as fast as matrix products where every channel is a group, and
twice as fast where a position has few inputs or outputs. All others are :mod:`mpc.local.matrix_products`.
"""

from functools import cache
from itertools import pairwise, product
from typing import Protocol

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

_POSITIONS = 512
"""Most positions of a task: its operands and results for four outputs stay in a core's first cache."""
_FOUR = 4
_PASSES = 3
"""Most passes over a depthwise layer's input: digits take as long as five."""
_WORD_BITS = 64
_NO_BIAS: Residues = np.empty((0, 0, 0), dtype=np.uint64)


def clear_linear(layer: Layer, rows: Values, t: int) -> "ClearLinear":
    """Return a layer that is ready to be applied to shares.

    Args:
        rows: integer weights, the first row of each circulant block row, shape (K/b, C/groups, R, S).
        t: prime under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """
    return ClearLinear(layer.shape, layer.block_size, rows, t)


class ClearLinear:
    """A linear layer of integer weights on residues.

    Args:
        rows: the first row of each circulant block row, int64, shape (K/b, C/groups, R, S).
        t: prime modulus under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """

    def __init__(self, shape: LinearShape, block_size: int, rows: Values, t: int) -> None:
        _check_shape("weights", rows, shape.weight_shape(block_size))
        self.shape = shape
        self._evaluate = _evaluation(shape, block_size, rows, t)

    @property
    def bytes(self) -> int:
        """Bytes of the weights in memory."""
        return self._evaluate.bytes

    def apply(self, share: Residues, bias: Residues | None = None) -> Residues:
        """Return the layer's result, mod t: residues, shape (K, H', W').

        Args:
            share: residues, shape (C, H, W).
            bias: added to the result, residues of its shape.
        """
        _check_shape("a share", share, self.shape.input_shape)
        if bias is not None:
            _check_shape("a bias", bias, self.shape.output_shape)
        return self._evaluate(share, bias)


class _Evaluation(Protocol):
    @property
    def bytes(self) -> int: ...

    def __call__(self, share: Residues, bias: Residues | None) -> Residues: ...


def _evaluation(shape: LinearShape, block_size: int, rows: Values, t: int) -> _Evaluation:
    if fits(shape, block_size, rows, t):
        return WholeSums(shape, rows, t)
    from privcirnet.he.mpc.local.matrix_products import MatrixProducts

    return MatrixProducts(shape, block_size, rows, t)


def _check_shape(what: str, values: Values | Residues, expected: tuple[int, ...]) -> None:
    if values.shape != expected:
        raise ValueError(f"{what} of shape {values.shape} where the layer takes {expected}")


def fits(shape: LinearShape, block_size: int, rows: Values, t: int) -> bool:
    """Return whether a layer can be computed so, and should be.

    Args:
        rows: weights, shape (K/b, C/groups, R, S).
        t: prime modulus under 2^61.
    """
    if shape.kind == "depthwise":
        return 0 < len(_ends(rows.reshape(len(rows), -1), _most(t), 1)) <= _PASSES
    dense = shape.kind == "gemm" and block_size == 1 and multiplies_words()
    return dense and len(_ends(_in_fours(rows), _most(t), _FOUR)) > 0


@cache
def multiplies_words() -> bool:
    """Return whether vector units multiply 64-bit words; without, two digits of them are faster."""
    from privcirnet.he.system.jit import features  # it loads Numba

    return "avx512dq" in features()


def _most(t: int) -> int:
    """Return the most of a sum of absolute weights: with an offset, a bias and a sum before, sums are under 2^64."""
    return ((1 << _WORD_BITS - 1) - 1 - 3 * t) // (t // 2 + 1)


def _in_fours(rows: Values) -> Values:
    """Return the weights as a matrix, with zeros up to multiples of four."""
    flat = rows.reshape(len(rows), -1).astype(np.int64)
    return np.ascontiguousarray(np.pad(flat, [(0, -count % _FOUR) for count in flat.shape]))


def _ends(weight: Values, limit: int, step: int) -> list[int]:
    """Return the ends of inputs whose sums fit: as many as possible, in steps; empty if those of a step do not."""
    sums = np.abs(weight).reshape(len(weight), -1, step).sum(axis=2)
    if sums.max() > limit:
        return []
    ends, total = list[int](), np.zeros(len(weight), dtype=np.int64)
    for number, column in enumerate(sums.T):
        if (total + column).max() > limit:
            ends.append(number * step)
            total[:] = 0
        total += column
    return [*ends, weight.shape[1]]


class WholeSums:
    """A layer that :func:`fits`.

    Args:
        rows: weights, shape (K, C/groups, R, S).
        t: prime modulus.
    """

    def __init__(self, shape: LinearShape, rows: Values, t: int) -> None:
        from privcirnet.he.mpc.kernels.residues import SlidingWindow, Whole

        self._shape, self._depthwise = shape, shape.kind == "depthwise"
        self._window = SlidingWindow(shape.kernels, shape.strides, *(window.ends for window in shape.windows))
        self._weight = rows.reshape(len(rows), -1).astype(np.int64) if self._depthwise else _in_fours(rows)
        self._ends = np.array(_ends(self._weight, _most(t), 1 if self._depthwise else _FOUR), dtype=np.int64)
        places = np.arange(self._weight.shape[1])
        edges = pairwise((0, *self._ends.tolist())) if self._depthwise else ()
        self._passes = [self._weight * ((first <= places) & (places < end)) for first, end in edges]
        offset = -(-_most(t) * (t // 2 + 1) // t) * t
        self._whole = Whole(np.uint64(t), np.uint64((1 << _WORD_BITS) // t), np.uint64(offset))
        self.bytes = self._weight.nbytes

    def __call__(self, share: Residues, bias: Residues | None = None) -> Residues:
        """Return the layer's result, see :meth:`ClearLinear.apply`.

        Args:
            share: residues, shape (C, H, W).
            bias: residues of the result's shape.
        """
        result = np.empty(self._shape.output_shape, dtype=np.uint64)
        x, constants = np.ascontiguousarray(share), _NO_BIAS if bias is None else np.ascontiguousarray(bias)
        (self._channels if self._depthwise else self._positions)(result, x, constants)
        return result

    def _channels(self, result: Residues, x: Residues, bias: Residues) -> None:
        from privcirnet.he.mpc.kernels import residues

        def some(first: int, end: int) -> None:
            part = slice(first // size, end // size)
            before = bias[part]
            for weight in self._passes[:-1]:
                partial = np.empty_like(result[part])
                residues.depthwise(partial, x[part], weight[part], before, self._window, self._whole)
                before = partial
            residues.depthwise(result[part], x[part], self._passes[-1][part], before, self._window, self._whole)

        size = x[0].size
        passes.in_parts(some, x.size, size)

    def _positions(self, result: Residues, x: Residues, bias: Residues) -> None:
        from privcirnet.he.mpc.kernels import residues

        maps, count = len(result), result[0].size
        flat, inputs, constants = (
            result.reshape(maps, count),
            x.reshape(len(x), count),
            bias.reshape(len(bias), count if bias.size else 0),
        )

        def some(task: tuple[tuple[int, int], tuple[int, int]]) -> None:
            part = *task[0], *task[1]
            residues.positions(flat, inputs, self._weight, constants, self._ends, part, self._whole)

        columns = _edges(count, -(-count // _POSITIONS), 1)
        rows = _edges(maps, -(-threads.count() // len(columns)), _FOUR)
        threads.each(some, product(columns, rows))


def _edges(count: int, parts: int, step: int) -> list[tuple[int, int]]:
    """Return the first and the end of ranges of like size that begin with multiples of a step."""
    steps = -(-count // step)
    edges = [min(steps * part // parts * step, count) for part in range(parts + 1)]
    return [edge for edge in pairwise(edges) if edge[0] < edge[1]]
