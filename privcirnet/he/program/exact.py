"""Steps that are exact on shares, by two-party computation (:mod:`mpc.floor`); they cost messages, ahead and online."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Self

import numpy as np

from privcirnet.he.layers.integer import Values, round_shift
from privcirnet.he.program.bounds import Interval
from privcirnet.he.program.local import MulConstant, Truncate
from privcirnet.he.program.operation import C_co, CostModel, Domain, Node, Operation, Shape, V, Weights

MOST_BITS = 19
"""Bits that go: those of four digits, but for one (:class:`mpc.floor.ExactFloor`)."""
MOST_HIGH_BITS = 40
"""Bits of a plain modulus that a ReLU compares beyond those that go and one more: eight digits."""


@dataclass(frozen=True)
class ExactStep(Operation):
    """Rounding to a step 2^bits coarser, to nearest, ties up, for every value and mask, and perhaps more.

    Attributes:
        bits: number of bits that go.
        bound: bound of |x| and of the rounding's addend; 0: not known yet.
        title: name in tables.
        online_bytes: bytes of a value, message by message, about.
        ahead: transfers of a value, and bytes beside those of silent ones, for t of 25 bits, about.
    """

    local = False
    masks = True
    needs_share = True
    title: ClassVar[str]
    online_bytes: ClassVar[tuple[int, ...]]
    ahead: ClassVar[tuple[int, int]]

    bits: int
    bound: int = 0

    @property
    def rectifies(self) -> bool:
        """True if negative values become zero."""
        return False

    @property
    def top(self) -> int:
        """Value of larger results, where negative values become zero; 0: they are kept."""
        return 0

    @property
    def least_modulus(self) -> int:
        """Number that the plain modulus must exceed."""
        return 2 * self.bound + 2 if self.rectifies else 8 * self.bound

    def bounded(self, low: int, high: int) -> Self:
        """Return it for values of this range, of which three bits are public."""
        largest = max(1, -low, high) + (1 << self.bits >> 1)
        return replace(self, bound=coarse(largest, 1 if self.rectifies else 1 << self.bits))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = (not self.rectifies) <= self.bits <= MOST_BITS and self.bound >= 0
        fits = fits and (self.rectifies or self.bound % (1 << self.bits) == 0)
        return "" if fits else f"an {self.title} by {self.bits} bits of values under {self.bound}"

    def unfit(self, t: int) -> str:
        """Return why a plain modulus does not carry it, "" if it does."""
        if not self.bound:
            return f"an {self.title} of values without a bound"
        if t % (2 << self.bits) != 1:
            return f"a plain modulus that is not 1 mod 2^{self.bits + 1}"
        if self.rectifies and ((t >> self.bits + 1) + 1).bit_length() > MOST_HIGH_BITS:
            return f"a plain modulus of {t.bit_length()} bits for an {self.title} by {self.bits}"
        return "" if t > self.least_modulus else f"a plain modulus of {t} where {self.least_modulus} is exceeded"

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        values, (transfers, ahead) = prod(shape), self.ahead
        sizes = (size * values for size in self.online_bytes)
        return prices.messages(*sizes, ahead=ahead * values, transfers=transfers * values)


@dataclass(frozen=True)
class ExactTruncate(ExactStep):
    """Division by 2^bits, 1 or more; the bound is a multiple of 2^bits."""

    kind: ClassVar[str] = "exact_truncate"

    title, online_bytes, ahead = "exact truncation", (3, 2, 1, 4), (20, 25)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.truncate(arguments[0], self.bits)


@dataclass(frozen=True)
class ExactReLU(ExactStep):
    """max(0, x / 2^bits), rounded: a ReLU and the truncation before it, or with 0 bits a ReLU alone; or clipped, too.

    Attributes:
        most: value of larger results; 0: they are kept.
    """

    kind: ClassVar[str] = "exact_relu"

    title, online_bytes, ahead = "exact ReLU", (5, 2, 5, 4), (51, 63)

    most: int = 0

    @property
    def rectifies(self) -> bool:
        return True

    @property
    def top(self) -> int:
        return self.most

    def bounded(self, low: int, high: int) -> Self:
        if self.most and round_shift(np.array(high), self.bits) <= self.most:
            return replace(self, most=0).bounded(low, high)
        return super().bounded(low - (self.most << self.bits), high)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = self.most == 0 or 0 < self.most << self.bits <= (self.bound or self.most << self.bits)
        return super().problem(node, sources) or ("" if fits else f"an {self.title} clipped at {self.most}")

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        if not self.most:
            return super().cost(prices, shape)
        values = prod(shape)
        sizes = (size * values for size in (7, 3, 5, 3))
        return prices.messages(*sizes, ahead=105 * values, transfers=69 * values)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])

    def values(self, x: Values) -> Values:
        """Return its values."""
        return round_shift(x, self.bits).clip(0, self.most or None)

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest value on [low, high], position by position."""
        return self.values(low), self.values(high)


def coarse(number: int, unit: int = 1) -> int:
    """Return the least multiple of a power of two that is not under a number, and has three bits or is that of a unit.

    >>> coarse(9), coarse(40), coarse(41), coarse(41, 64)
    (10, 40, 48, 64)
    """
    step = max(unit, 1 << max(0, number.bit_length() - 3))
    return -(-number // step) * step


def exact(nodes: Iterable[Node], intervals: Mapping[str, Interval]) -> tuple[Node, ...]:
    """Return nodes whose truncations are exact, and whose exact steps have bounds; one that leaves nothing is times 0.

    Args:
        intervals: bounds of each node's values.
    """

    def of(node: Node) -> Operation:
        operation = node.operation
        step = ExactTruncate(operation.bits) if isinstance(operation, Truncate) else operation
        if not isinstance(step, ExactStep):
            return step
        below, above = intervals[node.inputs[0]]
        low, high = int(below.min()), int(above.max())
        if isinstance(step, ExactTruncate) and not round_shift(np.array([low, high]), step.bits).any():
            return MulConstant(0)
        return step.bounded(low, high)

    return tuple(replace(node, operation=of(node)) for node in nodes)


def exact_steps(nodes: Iterable[Node]) -> list[ExactStep]:
    """Return the exact steps of a program's nodes."""
    return [node.operation for node in nodes if isinstance(node.operation, ExactStep)]
