"""Arithmetic of programs: linear layers, squares and products, which take a message each way, and what is local.

Local operations each party applies to its share alone: sums, multiples, constants, pools, truncations; and the image.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from privcirnet.he.layers.layer import Layer, Stack
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.program.limits import MAX_PIXEL
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
    spread,
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


MAX_SHIFT = 60
"""Limit that the bits of a truncation or of a factor are under."""


@dataclass(frozen=True)
class Input(Operation):
    """The image as integers in [low, high].

    Attributes:
        low: the least value of a pixel.
        high: the largest value of a pixel.
        exponents: log2 of each channel's step as a share of the node's, 0 or less, (C,): real value = integer x
            2^(log_step + exponent). The weights behind know of it, the program does not. None: 0 for all.
    """

    kind: ClassVar[str] = "input"

    low: int
    high: int
    exponents: tuple[int, ...] | None = None

    @property
    def arity(self) -> int:
        """None: it begins a program."""
        return 0

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.image(self.low, self.high)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        if self.exponents is not None and (len(self.exponents) != node.shape[0] or not _all_shifts(self.exponents)):
            return f"{len(self.exponents)} steps of {node.shape[0]} channels"
        return "" if -MAX_PIXEL <= self.low <= self.high <= MAX_PIXEL else f"pixels in [{self.low}, {self.high}]"


def _all_shifts(exponents: Sequence[int]) -> bool:
    return all(-MAX_SHIFT < exponent <= 0 for exponent in exponents)


@dataclass(frozen=True)
class Truncate(Operation):
    """Division by 2^bits, rounded: the fixed-point rescale.

    Attributes:
        bits: number of bits, 1 to 59.
    """

    kind: ClassVar[str] = "truncate"

    bits: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.truncate(arguments[0], self.bits)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        return "" if 1 <= self.bits < MAX_SHIFT else f"a truncation by {self.bits} bits, not 1 to 59"


@dataclass(frozen=True)
class Scale(Operation):
    """x * 2^bits, which brings a summand to the finer step of another.

    Attributes:
        bits: number of bits, 1 to 59.
    """

    kind: ClassVar[str] = "scale"

    bits: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.times(arguments[0], 1 << self.bits)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = 1 <= self.bits < MAX_SHIFT and node.log_step == sources[0].log_step - self.bits
        return "" if fits else f"a factor of 2^{self.bits} from step 2^{sources[0].log_step} to 2^{node.log_step}"


@dataclass(frozen=True)
class MulConstant(Operation):
    """x * factor, in whatever step its node says.

    Attributes:
        factor: public, of at most 59 bits.
    """

    kind: ClassVar[str] = "times"

    factor: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.times(arguments[0], self.factor)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        return "" if abs(self.factor) < 1 << MAX_SHIFT - 1 else f"a factor of {self.factor.bit_length()} bits"


@dataclass(frozen=True)
class AssertRange(Operation):
    """x itself, with the bounds of a composite operation, where its pieces alone say less.

    Attributes:
        low: least value.
        high: largest value.
    """

    kind: ClassVar[str] = "within"

    low: int
    high: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.within(arguments[0], self.low, self.high)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = -(1 << MAX_SHIFT) < self.low <= self.high < 1 << MAX_SHIFT
        return "" if fits else f"values in [{self.low}, {self.high}]"


@dataclass(frozen=True)
class Plus(Operation):
    """x + constants of channels, which the server alone knows."""

    kind: ClassVar[str] = "plus"

    needs_share = True

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.plus(arguments[0], spread(require_weights(weights).bias))

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"bias": shape[:1]}


@dataclass(frozen=True)
class Add(Operation):
    """Sum of two nodes with the same step."""

    kind: ClassVar[str] = "add"

    @property
    def arity(self) -> int:
        """Two summands."""
        return 2

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.add(*arguments)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        alike = len({(source.shape, source.log_step) for source in sources}) == 1
        return "" if alike else "summands differ in shape or step"


@dataclass(frozen=True)
class Concat(Operation):
    """Channels of several values with the same step, one after the other: (C_i, H, W) to (sum of C_i, H, W).

    Attributes:
        count: number of values, 2 or more.
    """

    kind: ClassVar[str] = "concat"

    needs_share = True

    count: int

    @property
    def arity(self) -> int:
        """Number of values that are joined."""
        return self.count

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.move(lambda *values: np.concatenate(values), *arguments)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return sum(shape[0] for shape in shapes), *shapes[0][1:]

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        alike = len({(source.shape[1:], source.log_step) for source in sources}) == 1
        return "" if alike and self.count >= 2 else "parts differ in size or step"


@dataclass(frozen=True)
class SumChannels(Operation):
    """Sums over the channels of each group, and constants: (g k, H, W) to (g, H, W).

    Attributes:
        groups: g.
        count: k.
    """

    kind: ClassVar[str] = "sumchannels"

    needs_share = True

    groups: int
    count: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.plus(_sum(on, arguments[0], self.groups, self.count), spread(require_weights(weights).bias))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return self.groups, *shapes[0][1:]

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = self.groups >= 1 and sources[0].shape[0] == self.groups * self.count
        return "" if fits else f"sums of {self.count} of {sources[0].shape[0]} channels"

    def tensors(self, shape: Shape) -> Mapping[str, tuple[int, ...]]:
        return {"bias": shape[:1]}


@dataclass(frozen=True)
class Center(Operation):
    """C x - sum(x) over the C channels of each place, in a step that is finer by the bits of C - 1.

    Attributes:
        count: C.
    """

    kind: ClassVar[str] = "center"

    count: int

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        (x,), count = arguments, self.count

        def repeated(total: np.ndarray) -> np.ndarray:
            return np.repeat(total, count, axis=0)

        total = on.move(repeated, _sum(on, x, 1, count))
        return on.add(on.times(x, count), on.times(total, -1))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = (
            sources[0].shape[0] == self.count and node.log_step == sources[0].log_step - (self.count - 1).bit_length()
        )
        return "" if fits else f"centering of {self.count} of {sources[0].shape[0]} channels"


def _sum(on: Domain[V], x: V, groups: int, count: int) -> V:
    """Return sums over so many channels of each group, halves added until one is left."""
    if count == 1:
        return x
    half = count // 2
    total = on.add(_part(on, x, groups, 0, half), _part(on, x, groups, half, half))
    total = _sum(on, total, groups, half)
    return on.add(total, _part(on, x, groups, count - 1, 1)) if count % 2 else total


def _part(on: Domain[V], x: V, groups: int, first: int, count: int) -> V:
    """Return some channels of each group."""

    def places(values: np.ndarray) -> np.ndarray:
        grouped = values.reshape(groups, -1, *values.shape[1:])[:, first : first + count]
        return grouped.reshape(-1, *values.shape[1:])

    return on.move(places, x)


@dataclass(frozen=True)
class SumPool(Operation):
    """Sum over non-overlapping windows (average pooling whose division went into ``log_step``).

    Values left over at the right and below are dropped.

    Attributes:
        kernel: rows of a window.
        columns: columns of a window; None if as many as rows.
    """

    kind: ClassVar[str] = "sumpool"

    kernel: int
    columns: int | None = None

    @property
    def window(self) -> tuple[int, int]:
        """Rows and columns of a window."""
        return self.kernel, self.kernel if self.columns is None else self.columns

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.pool(arguments[0], self.window)

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        (channels, height, width), (rows, columns) = shapes[0], self.window
        return channels, height // rows, width // columns

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        return "" if min(self.window) >= 1 else f"a window of {min(self.window)}"
