"""Cyclic transforms modulo t, in clear, of any length N that divides t - 1: the base of spectral layers.

Maths: y[k] = sum_j x[j] w^(j k) mod t with w of order N, a product with a constant N x N matrix. The lengths of this
field are short and often odd (a circulant block, a padded image side), so nothing is gained from fast transforms of
powers of two. Products of transforms are transforms of cyclic convolutions (docs/mathematics.md, "Transform lengths").

The compiled :mod:`ring.kernels.cyclic` does the work, on integers; it also gathers the values of many cells in the
same pass (:func:`cyclic_cells`). Numba is loaded at the first call.
"""

from collections.abc import Sequence
from math import prod
from types import ModuleType

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues, SourceIndices


def cyclic(x: Residues, axis: int, t: int, *, inverse: bool = False) -> Residues:
    """Transform one axis.

    Args:
        x: residues, any shape; the axis has length N.
        t: prime modulus with t = 1 mod N.
        inverse: whether to do the inverse transform, 1/N included.

    Returns:
        residues of the same shape.

    Raises:
        RuleError: N does not divide t - 1.

    >>> import numpy as np
    >>> cyclic(np.uint64([1, 0, 0]), 0, 7).tolist()
    [1, 1, 1]
    """
    axis, length = axis % x.ndim, x.shape[axis]
    if length == 1:
        return x
    columns = x.reshape(prod(x.shape[:axis]), length, prod(x.shape[axis + 1 :]))
    kernels = _kernels()
    return kernels.transform_all(columns, kernels.transform(length, t, inverse)).reshape(x.shape)


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
        axes: axes of a cell's shape to transform by :func:`cyclic`.
        t: prime modulus, 1 modulo the length of every transformed axis.

    Returns:
        residues, shape (cells, values of a cell).

    Raises:
        RuleError: the length of a transformed axis does not divide t - 1.
    """
    if axes:
        forms = {axis: _kernels().transform(shape[axis], t, inverse) for axis in axes}
        return _kernels().transform_cells(source.reshape(-1), numbers, shape, forms)
    sums = gather(source, numbers[0])
    for term in numbers[1:]:
        sums = modular.add(sums, gather(source, term), t)
    return sums


def gather(source: Residues, numbers: SourceIndices) -> Residues:
    """Return the values at some places of a source, and zeros at place 0.

    Args:
        source: residues, any shape.
        numbers: places in the flat source, counted from 1, any shape.
    """
    return _kernels().gather(source.reshape(-1), numbers.reshape(-1)).reshape(numbers.shape)


def _kernels() -> ModuleType:
    """Return the compiled transforms; Numba takes a quarter of a second to import."""
    from privcirnet.he.ring.kernels import cyclic

    return cyclic
