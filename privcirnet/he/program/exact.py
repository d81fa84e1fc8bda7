"""Steps that are exact on shares, by two-party computation (:mod:`mpc.rectifier`); they cost messages in both phases.

Maxima, their places and distances from them come to exact ReLUs with sums and moves.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import ClassVar, Self

import numpy as np

from privcirnet.he.layers.integer import Values, round_shift
from privcirnet.he.program.arithmetic import AssertRange, MulConstant, Truncate
from privcirnet.he.program.operation import C_co, CostModel, Domain, Interval, Node, Operation, Shape, V, Weights
from privcirnet.he.program.rearrangement import AsStrided, Sampled, SliceChannels

MOST_DIGIT, MOST_RANGE = 5, 4
"""Bits of a digit, whose table has 2^bits entries; and of a digit with a threshold, which has six results: a transfer
hides 64 bits (:mod:`mpc.circuit`)."""
MOST_BITS = 4 * MOST_DIGIT - 1
"""Bits that go: those of four digits, but for one (:class:`mpc.truncation.Floor`)."""
MOST_BEYOND, MOST_ODD = 2 * MOST_DIGIT - 1, (1 << MOST_RANGE) - 1
"""Bits of a clipped value beyond those of the most, with the sign, and the largest odd part of the number from which it
is clipped."""


@dataclass(frozen=True)
class ExactStep(Operation):
    """Rounding to a step 2^bits coarser, to nearest, ties up, for every value and mask, and perhaps more.

    Attributes:
        bits: number of bits that go.
        bound: bound of |x| and of the rounding's addend, a power of two where negative values become zero; 0: not known
            yet.
        title: name in tables.
    """

    local = False
    masks = True
    needs_share = True
    title: ClassVar[str]

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
    def bound_fits(self) -> bool:
        """True if the bound is not known, or a number that a bound may be."""
        if self.bound <= 0 or not self.rectifies:
            return self.bound >= 0 and self.bound % (1 << self.bits) == 0
        return self.bound & (self.bound - 1) == 0 and self.bound >> self.bits > 1

    @property
    def modulus(self) -> int:
        """Modulus of the rounded values' shares; 0: the plain modulus."""
        return 0

    @property
    def integer_bits(self) -> int:
        """Bits k of the rounded values with their sign, where negative ones become zero."""
        return (self.bound >> self.bits).bit_length()

    @property
    def least_modulus(self) -> int:
        """Number that the plain modulus must exceed."""
        return 2 * self.bound + 2 if self.rectifies else 8 * self.bound

    @property
    def divisor(self) -> int:
        """Power of two that must divide the plain modulus less one."""
        return max(2 << self.bits, self.best_divisor if self.top else 0)

    @property
    def best_divisor(self) -> int:
        """Power of two with which a sign is read from the low bits, and no more: others take more transfers."""
        return 4 * self.bound if self.rectifies else 2 << self.bits

    def bounded(self, low: int, high: int) -> Self:
        """Return it for values of this range, of which the length is public, or three bits for rounding alone."""
        largest = max(1, -low, high) + (1 << self.bits >> 1)
        if self.rectifies:
            return replace(self, bound=1 << max(largest.bit_length(), self.bits + 1))
        return replace(self, bound=coarse(largest, 1 << self.bits))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = (not self.rectifies) <= self.bits <= MOST_BITS and self.bound_fits
        return "" if fits else f"an {self.title} by {self.bits} bits of values under {self.bound}"

    def unfit(self, t: int) -> str:
        """Return why a plain modulus does not carry it, "" if it does."""
        if not self.bound:
            return f"an {self.title} of values without a bound"
        if t % self.divisor != 1:
            return f"a plain modulus that is not 1 mod 2^{self.divisor.bit_length() - 1}"
        limit, beyond = self.bound >> self.bits, self.integer_bits - (self.top - 1).bit_length()
        odd = threshold(self.top) // (threshold(self.top) & -threshold(self.top)) if self.top else 0
        if self.top and (self.top >= limit or beyond > MOST_BEYOND or odd > MOST_ODD):
            return f"an {self.title} to {self.top} of values up to {limit}"
        return "" if t > self.least_modulus else f"a plain modulus of {t} where {self.least_modulus} is exceeded"

    def cost(self, prices: CostModel[C_co], shape: Shape) -> C_co:
        return prices.exact(self, prod(shape))


@dataclass(frozen=True)
class ExactTruncate(ExactStep):
    """Division by 2^bits, 1 or more; the bound is a multiple of 2^bits."""

    kind: ClassVar[str] = "exact_truncate"

    title = "exact truncation"

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.truncate(arguments[0], self.bits)


@dataclass(frozen=True)
class ExactReLU(ExactStep):
    """max(0, x / 2^bits), rounded: a ReLU and the truncation before it, or with 0 bits a ReLU alone; or clipped, too.

    Attributes:
        most: value of larger results; 0: they are kept.
    """

    kind: ClassVar[str] = "exact_relu"

    title = "exact ReLU"

    most: int = 0

    @property
    def rectifies(self) -> bool:
        return True

    @property
    def top(self) -> int:
        return self.most

    def bounded(self, low: int, high: int) -> Self:
        clips = self.most and round_shift(np.array(high), self.bits) > self.most
        return super(ExactReLU, self if clips else replace(self, most=0)).bounded(low, high)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        return super().problem(node, sources) or ("" if self.most >= 0 else f"an {self.title} clipped at {self.most}")

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])

    def values(self, x: Values) -> Values:
        """Return its values."""
        return round_shift(x, self.bits).clip(0, self.most or None)

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest value on [low, high], position by position."""
        return self.values(low), self.values(high)


def threshold(ceiling: int) -> int:
    """Return the number from which values are clipped to a ceiling: it, or the next if that has more factors of two.

    >>> threshold(192), threshold(255)
    (192, 256)
    """
    return max(ceiling, ceiling + 1, key=lambda number: number & -number)


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


class Composite(Operation):
    """A composite operation of one value."""

    local = False
    needs_share = True
    composite = True

    def values(self, x: Values) -> Values:
        """Return its result; ``x``: (C, H, W)."""
        raise NotImplementedError

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest result on [low, high]; here of what falls nowhere as its values rise."""
        return self.values(low), self.values(high)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])


@dataclass(frozen=True)
class MaxPool(Composite):
    """The largest value of each window: columns, then rows, in pairs, max(a, b) = b + R(a - b) with an exact ReLU R.

    A window may reach over the edges, where there is nothing, but begins at most half of itself outside.

    Attributes:
        kernel: rows and columns of a window; ``stride`` too.
        padding: rows and columns at each edge.
        size: rows and columns of the result.
    """

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    size: tuple[int, int]

    def values(self, x: Values) -> Values:
        (rows, columns), (down, right) = (self._numbers(axis, x.shape[1 + axis]) for axis in (0, 1)), self.kernel
        windows = x[:, rows[:, None], columns].reshape(len(x), self.size[0], down, self.size[1], right)
        return windows.max(axis=(2, 4))

    def _numbers(self, axis: int, size: int) -> np.ndarray:
        """Return the rows of all windows, one window after the other; one outside is the one at the edge."""
        starts = self.stride[axis] * np.arange(self.size[axis]) - self.padding[axis]
        return (starts[:, None] + np.arange(self.kernel[axis])).clip(0, size - 1).reshape(-1)

    def pieces(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        (windows,) = arguments
        for axis in (1, 0):
            stride, size, begin = self.stride[axis], self.size[axis], -self.padding[axis]
            starts = range(begin, begin + self.kernel[axis])
            sides: list[V] = [on.step(Sampled(axis + 1, start, stride, size), windows) for start in starts]
            while len(sides) > 1:
                pairs = zip(sides[::2], sides[1::2], strict=False)
                sides = [*(_larger(on, *pair) for pair in pairs), *sides[len(sides) // 2 * 2 :]]
            (windows,) = sides
        return windows

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0][0], *self.size

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        axes = zip(self.kernel, self.stride, self.padding, sources[0].shape[1:], self.size, strict=True)
        fits = all(0 <= 2 * p <= k and s >= 1 and 1 <= (n - 1) * s + 1 <= w + p for k, s, p, w, n in axes)
        return "" if fits else f"windows of {self.kernel}, {self.stride} apart, {self.padding} outside"


@dataclass(frozen=True)
class Top1(Composite):
    """The place of the largest of some values (C, 1, 1), the first of equal ones: a tournament of exact ReLUs.

    Each value takes its place with it, in bits below its own. An exact truncation drops those of the winner.

    Attributes:
        count: number of values, 2 or more.
        low: the least that a value may be.
        high: the largest.
    """

    count: int
    low: int
    high: int

    def values(self, x: Values) -> Values:
        return x.reshape(-1).argmax().reshape(1, 1, 1)

    def interval(self, low: Values, high: Values) -> Interval:
        return np.zeros((1, 1, 1), dtype=np.int64), np.full((1, 1, 1), self.count - 1)

    def pieces(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        last = self.count - 1
        bits, remaining = last.bit_length(), self.count
        within = AssertRange(self.low << bits, (self.high << bits) + last)
        best = on.plus(on.times(arguments[0], 1 << bits), np.arange(last, -1, -1).reshape(-1, 1, 1))
        while remaining > 1:
            half = -(-remaining // 2)
            first, second = (on.step(SliceChannels(start, half), best) for start in (0, remaining - half))
            best, remaining = on.step(within, _larger(on, first, second)), half
        # Not by a ReLU: a client that adds to its share of the value could have it be 0, and be given the whole value.
        whole = on.step(ExactTruncate(bits), on.plus(best, np.array(-(1 << bits >> 1))))
        return on.plus(on.add(on.times(whole, 1 << bits), on.times(best, -1)), np.array(last))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return 1, 1, 1

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = self.count >= 2 and sources[0].shape == (self.count, 1, 1) and self.low <= self.high
        return "" if fits else f"the largest of {self.count} in {sources[0].shape}"


@dataclass(frozen=True)
class SubtractMax(Composite):
    """x - max x over the channels of each group: maxima of two halves, max(a, b) = b + R(a - b), until one is left.

    Attributes:
        groups: g, each of k channels.
        shape: (g k, H, W) of x.
    """

    groups: int
    shape: Shape

    def values(self, x: Values) -> Values:
        grouped = x.reshape(self.groups, -1, *x.shape[1:])
        return (grouped - grouped.max(axis=1, keepdims=True)).reshape(x.shape)

    def interval(self, low: Values, high: Values) -> Interval:
        low, high = (end.reshape(self.groups, -1, *end.shape[1:]) for end in (low, high))
        lowest, highest = low - high.max(axis=1, keepdims=True), high - low.max(axis=1, keepdims=True)
        return lowest.reshape(self.shape), highest.clip(max=0).reshape(self.shape)

    def pieces(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        (x,), (count, places) = arguments, (self.shape[0] // self.groups, self.shape[1] * self.shape[2])
        largest, remaining = x, count
        while remaining > 1:
            half = remaining - remaining // 2
            first, second = (
                on.step(self._taken(i, half, remaining * places), largest) for i in (0, (remaining - half) * places)
            )
            largest, remaining = _larger(on, first, second), half
        repeated = AsStrided(self.shape, 0, (self.groups, count, places), (places, 0, 1))
        return on.add(x, on.times(on.step(repeated, largest), -1))

    def _taken(self, first: int, count: int, stride: int) -> AsStrided:
        """Return some channels of each group, from one place on; groups are so many places apart."""
        size = count * self.shape[1] * self.shape[2]
        return AsStrided((self.groups * count, *self.shape[1:]), first, (self.groups, size), (stride, 1))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = sources[0].shape == self.shape and self.groups >= 1 and self.shape[0] % self.groups == 0
        return "" if fits else f"maxima of {self.groups} groups of {self.shape}"


def _larger(on: Domain[V], x: V, y: V) -> V:
    return on.add(y, on.step(ExactReLU(0), on.add(x, on.times(y, -1))))
