"""Linear layers mod t in clear, exactly: the online work of a server whose encrypted work was done before."""

from typing import Protocol

import numpy as np

from privcirnet.he.clear import compiled
from privcirnet.he.clear.limbs import split
from privcirnet.he.encodings.integer import Values, convolve, dense_weight
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


def clear_linear(layer: Layer, rows: Values, t: int) -> "ClearLinear":
    """Return a layer that is ready to be applied to shares.

    Args:
        layer: its dimensions and block size.
        rows: integer weights, the first row of each circulant block row, shape (K/b, C/groups, R, R).
        t: prime under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """
    return ClearLinear(layer.shape, layer.block_size, rows, t)


class ClearLinear:
    """A linear layer of integer weights on residues.

    Args:
        shape: its dimensions.
        block_size: b.
        rows: the first row of each circulant block row, int64, shape (K/b, C/groups, R, R).
        t: prime modulus under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """

    def __init__(self, shape: LinearShape, block_size: int, rows: Values, t: int) -> None:
        assert rows.shape == shape.weight_shape(block_size)
        self.shape = shape
        self._evaluate = _evaluation(shape, block_size, rows, t)

    @property
    def bytes(self) -> int:
        """Of the weights as they are held."""
        return self._evaluate.bytes

    def apply(self, share: Residues, bias: Residues | None = None) -> Residues:
        """Return the layer's result, mod t.

        Args:
            share: residues, shape (C, H, W).
            bias: added to the result, residues of its shape.

        Returns:
            residues, shape (K, H', W').
        """
        assert share.shape == self.shape.input_shape
        assert bias is None or bias.shape == self.shape.output_shape
        return self._evaluate(share, bias)


class _Evaluation(Protocol):
    @property
    def bytes(self) -> int: ...

    def __call__(self, share: Residues, bias: Residues | None) -> Residues: ...


def _evaluation(shape: LinearShape, block_size: int, rows: Values, t: int) -> _Evaluation:
    if not compiled.installed():
        return _Expanded(shape, block_size, rows, t)
    from privcirnet.he.clear import whole
    from privcirnet.he.clear.matrix_products import MatrixProducts

    if whole.fits(shape, block_size, rows, t):
        return whole.WholeSums(shape, rows, t)
    return MatrixProducts(shape, block_size, rows, t)


class _Expanded:
    """What is done without Numba: the expanded weights times one limb after the other."""

    def __init__(self, shape: LinearShape, block_size: int, rows: Values, t: int) -> None:
        self._shape, self._t, self._weight = shape, t, dense_weight(rows, shape, block_size)
        self._split = split(t, int(np.abs(self._weight).sum(axis=(1, 2, 3)).max()))
        self.bytes = self._weight.nbytes

    def __call__(self, share: Residues, bias: Residues | None) -> Residues:
        t, rest = self._t, modular.centered(share, self._t)
        total = np.zeros(1, dtype=np.uint64) if bias is None else bias
        for limb in range(self._split.count):
            low, rest = self._split.cut(rest, limb)
            sums = modular.residues(convolve(low, self._weight, self._shape), t)
            power = np.array([self._split.power(limb)], dtype=np.uint64)
            term = modular.multiply_constant(sums, power, modular.constant_quotients(power, t), t)
            total = modular.add(total, term, t)
        return total
