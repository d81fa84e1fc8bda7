"""Operations that take a round of messages: linear layers, squares, products of two values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.stacking import Stack
from privcirnet.he.program.operation import (
    C_co,
    CostModel,
    Domain,
    Node,
    Operation,
    Planner,
    Shape,
    V,
    Weights,
    require_weights,
)


@dataclass(frozen=True)
class Linear(Operation):
    """Convolution or GEMM with bias, on (C, H, W).

    Attributes:
        layer: shape, and plan under encryption.
        stack: images that offline work takes together; None: one after the other.
    """

    kind: ClassVar[str] = "linear"

    local = False
    masks = True

    layer: Layer
    stack: Stack | None = None

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layer alone."""
        return (self.layer,)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.linear(self.layer, arguments[0], require_weights(weights))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return self.layer.shape.output_shape

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        expected = self.layer.shape.input_shape
        return "" if expected == sources[0].shape else f"takes {expected}, gets {sources[0].shape}"

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"rows": self.layer.shape.weight_shape(self.layer.block_size), "bias": shape[:1]}

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        return prices.linear(self.layer)

    def planned(self, planner: Planner) -> "Linear":
        return Linear(planner.layer(self.layer.shape, self.layer.block_size))


@dataclass(frozen=True)
class Square(Operation):
    """x * x, element by element."""

    kind: ClassVar[str] = "square"

    local = False
    masks = True
    needs_share = True

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.square(arguments[0])

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        return prices.square(prod(shape))


@dataclass(frozen=True)
class MatMul(Operation):
    """Product of two values, group by group: (g k, A, 1) and (g k, B, 1) to (g B, A, 1), with a bias.

    y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j]. With a head of attention as a group these are the
    scores of queries and keys. With scores and transposed values, they are what attention gathers.

    Attributes:
        left: a linear layer from the left value whose weights are the right one, (g B, k).
        right: a linear layer from the right value whose weights are the left one, (g A, k); its result is transposed.
    """

    kind: ClassVar[str] = "product"

    local = False
    masks = True
    needs_share = True

    left: SpectralLayer
    right: SpectralLayer

    @property
    def arity(self) -> int:
        """Two factors."""
        return 2

    @property
    def layers(self) -> tuple[Layer, ...]:
        """Two."""
        return self.left, self.right

    @property
    def groups(self) -> int:
        """The number g of channel groups."""
        return self.left.shape.groups

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        left, right = arguments
        return on.product(self, left, right, require_weights(weights))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return self.left.shape.output_shape

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        left, right = (source.shape for source in sources)
        if left[0] != right[0] or left[0] % self.groups or (left[2], right[2]) != (1, 1):
            return f"a product of {left} and {right} in {self.groups} groups"
        expected = LinearShape.product(left, right, self.groups), LinearShape.product(right, left, self.groups)
        if tuple(layer.shape for layer in self.layers) != expected or any(
            layer.block_size != 1 for layer in self.layers
        ):
            return f"layers that do not multiply {left} and {right}"
        return ""

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"bias": shape[:1]}

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        return prices.product(self.left, self.right)

    def planned(self, planner: Planner) -> "MatMul":
        return MatMul(planner.factor(self.left.shape), planner.factor(self.right.shape))
