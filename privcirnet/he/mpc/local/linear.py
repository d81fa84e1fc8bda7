"""Linear layers mod t in clear, exactly: the online work of a server whose encrypted work was done before."""

from typing import Protocol

from privcirnet.he.layers.integer import Values
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.mpc.local import whole
from privcirnet.he.ring.modular import Residues


def clear_linear(layer: Layer, rows: Values, t: int) -> "ClearLinear":
    """Return a layer that is ready to be applied to shares.

    Args:
        rows: integer weights, the first row of each circulant block row, shape (K/b, C/groups, R, R).
        t: prime under 2^61.

    Raises:
        RuleError: weights so large that no sum of products is exact.
    """
    return ClearLinear(layer.shape, layer.block_size, rows, t)


class ClearLinear:
    """A linear layer of integer weights on residues.

    Args:
        rows: the first row of each circulant block row, int64, shape (K/b, C/groups, R, R).
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
    if whole.fits(shape, block_size, rows, t):
        return whole.WholeSums(shape, rows, t)
    from privcirnet.he.mpc.local.matrix_products import MatrixProducts

    return MatrixProducts(shape, block_size, rows, t)


def _check_shape(what: str, values: Values | Residues, expected: tuple[int, ...]) -> None:
    if values.shape != expected:
        raise ValueError(f"{what} of shape {values.shape} where the layer takes {expected}")
