"""Cyclic transforms modulo t, in clear, of any length N that divides t - 1: what spectral layers are made of.

Maths: y[k] = sum_j x[j] w^(j k) mod t with w of order N, a product with a constant N x N matrix. The lengths of this
field are short and often odd (a circulant block, a padded image side), so nothing is gained from fast transforms of
powers of two. Products of transforms are transforms of cyclic convolutions (docs/mathematics.md, "Transform lengths").

Two implementations give the same residues:

* where Numba is installed, :mod:`engines.kernels.cyclic`: compiled, on integers; it also gathers the values of many
  cells in the same pass (:func:`cyclic_cells`);
* otherwise, as its oracle, and for so few values that loading Numba would take longer, products of float64 matrices,
  which are exact. With x = sum_i x_i 2^(v i) in d digits of v bits and A 2^(v i) mod t = sum_j A_ij 2^(v j), where A is
  the transform's matrix,

      y = sum_j 2^(v j) (sum_i A_ij x_i) mod t,

  one product of a (d N) x (d N) matrix whose sums stay under 2^53. Up to lengths of some dozens its time hardly depends
  on N: it goes into splitting the digits and putting them together again.
"""

import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from types import ModuleType

import numpy as np
import numpy.typing as npt

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues, SourceIndices
from privcirnet.he.ring.roots import cyclic_matrix
from privcirnet.he.ring.threads import one_thread

_EXACT_BITS = 53
"""Integers of up to that many bits are exact in float64, in whatever order they are added."""

_VALUES_AT_ONCE = 1 << 13
"""SourceIndices that one step works on: few enough for the cache, and for memory that is not given back in between."""

_COMPILED_FROM = 1 << 16
"""Values in a call for which Numba is loaded; fewer take the products some milliseconds."""


def cyclic(x: Residues, axis: int, t: int, *, inverse: bool = False) -> Residues:
    """Transform one axis.

    Args:
        x: residues, any shape; the axis has length N.
        axis: the axis to transform.
        t: prime modulus with t = 1 mod N.
        inverse: whether to do the inverse transform, 1/N included.

    Returns:
        residues of the same shape.

    Raises:
        RuleError: N does not divide t - 1.

    >>> cyclic(np.uint64([1, 0, 0]), 0, 7).tolist()
    [1, 1, 1]
    """
    axis, length = axis % x.ndim, x.shape[axis]
    if length == 1:
        return x
    columns = x.reshape(prod(x.shape[:axis]), length, prod(x.shape[axis + 1 :]))
    return _transform(columns, t, inverse).reshape(x.shape)


def cyclic_cells(
    source: Residues,
    numbers: SourceIndices,
    shape: tuple[int, ...],
    axes: Sequence[int],
    t: int,
    *,
    inverse: bool = False,
) -> Residues:
    """Gather cells from a source and transform some of their axes.

    Args:
        source: residues, any shape.
        numbers: places in the flat source, from 1, 0 for a zero, of each term of the cells' values: shape (terms,
            cells, values of a cell). A value is the sum of its terms.
        shape: of a cell.
        axes: of a cell's shape, to transform by :func:`cyclic`.
        t: prime modulus, 1 modulo the length of every transformed axis.
        inverse: whether to do the inverse transforms.

    Returns:
        residues, shape (cells, values of a cell).

    Raises:
        RuleError: the length of a transformed axis does not divide t - 1.
    """
    compiled = _compiled(numbers.size)
    if compiled and axes:
        forms = {axis: compiled.transform(shape[axis], t, inverse) for axis in axes}
        return compiled.transform_cells(source.reshape(-1), numbers, shape, forms)
    found = gather(source, numbers[0])
    for term in numbers[1:]:
        found = modular.add(found, gather(source, term), t)
    cells = found.reshape(-1, *shape)
    for axis in axes:
        cells = cyclic(cells, axis + 1, t, inverse=inverse)
    return cells.reshape(found.shape)


def gather(source: Residues, numbers: SourceIndices) -> Residues:
    """Return the values at some places of a source, and zeros at place 0.

    Args:
        source: residues, any shape.
        numbers: places in the flat source, counted from 1, any shape.
    """
    compiled = _compiled(numbers.size)
    if compiled:
        return compiled.gather(source.reshape(-1), numbers.reshape(-1)).reshape(numbers.shape)
    return np.concatenate([np.zeros(1, dtype=np.uint64), source.reshape(-1)])[numbers]


def _compiled(values: int) -> ModuleType | None:
    """Return the compiled transforms where Numba is installed, and loaded or worth loading for so many values."""
    if values < _COMPILED_FROM and "numba" not in sys.modules:
        return None
    try:
        from privcirnet.he.engines.kernels import cyclic
    except ModuleNotFoundError:
        return None
    return cyclic


def _transform(columns: Residues, t: int, inverse: bool) -> Residues:
    """Transform the middle axis of three: on compiled integers, or else on float64 products."""
    compiled = _compiled(columns.size)
    if not compiled:
        return _float_transform(columns, t, inverse)
    return compiled.transform_all(columns, compiled.transform(columns.shape[1], t, inverse))


def _float_transform(columns: Residues, t: int, inverse: bool) -> Residues:
    length, shape = columns.shape[1], (columns.shape[0], columns.shape[2])
    flat = columns.transpose(1, 0, 2).reshape(length, -1)
    result, product = np.empty_like(flat), _ExactProduct(length, t, inverse)
    with one_thread():
        for start in range(0, flat.shape[1], product.step):
            result[:, start : start + product.step] = product(flat[:, start : start + product.step])
    return np.ascontiguousarray(result.reshape(length, *shape).transpose(1, 0, 2))


class _ExactProduct:
    """A transform's matrix times up to ``step`` columns at a time, with work space that is taken once."""

    def __init__(self, length: int, t: int, inverse: bool) -> None:
        self._t, self._length = t, length
        self._width, self._limbs, self._matrix = _limb_matrix(length, t, inverse)
        self.step = max(1, _VALUES_AT_ONCE // self._length)
        self._digits, self._sums = np.empty((2, self._limbs * self._length * self.step))

    def __call__(self, columns: Residues) -> Residues:
        """(N, m) -> (N, m), m at most ``step``."""
        shape = self._limbs, *columns.shape
        digits, sums = (space[: prod(shape)].reshape(shape) for space in (self._digits, self._sums))
        for i in range(self._limbs):
            digits[i] = (columns >> np.uint64(self._width * i)) & np.uint64((1 << self._width) - 1)
        flat = self._limbs * self._length, columns.shape[1]
        np.matmul(self._matrix, digits.reshape(flat), out=sums.reshape(flat))
        return self._together(sums)

    def _together(self, sums: npt.NDArray[np.float64]) -> Residues:
        """Sum of 2^(v j) sums[j] mod t, each under 2^53."""
        total = sums[0].astype(np.uint64) % np.uint64(self._t)
        for j in range(1, self._limbs):
            weight = np.array([pow(2, self._width * j, self._t)], dtype=np.uint64)
            quotient = modular.constant_quotients(weight, self._t)
            term = modular.multiply_constant(sums[j].astype(np.uint64), weight, quotient, self._t)
            total = modular.add(total, term, self._t)
        return total


@lru_cache(maxsize=128)
def _limb_matrix(length: int, t: int, inverse: bool) -> tuple[int, int, npt.NDArray[np.float64]]:
    """(v, d, the matrix of all A_ij, (d N, d N)): digit i of value l to sum j of value k."""
    width, limbs = _digit_sizes(length, t)
    ordered = [int(power) for power in cyclic_matrix(length, t, inverse)[min(1, length - 1)]]
    matrix = np.zeros((limbs, length, limbs, length))
    for i in range(limbs):
        shifted = [(power << (width * i)) % t for power in ordered]
        for j in range(limbs):
            digits = np.array([(value >> (width * j)) & ((1 << width) - 1) for value in shifted], dtype=np.float64)
            matrix[j, :, i] = digits[np.outer(np.arange(length), np.arange(length)) % length]
    return width, limbs, matrix.reshape(limbs * length, limbs * length)


def _digit_sizes(length: int, t: int) -> tuple[int, int]:
    """(v, d): the fewest digits whose products can be summed exactly."""
    limbs, bits = 1, t.bit_length()
    while 2 * -(-bits // limbs) + (limbs * length - 1).bit_length() > _EXACT_BITS:
        limbs += 1
    return -(-bits // limbs), limbs
