"""Clips and maxima: interactively, exact ReLUs with sums and rearrangements around them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcirnet.he.layers.integer import Values, round_shift
from privcirnet.he.program.exact import ExactReLU
from privcirnet.he.program.local import Concat
from privcirnet.he.program.operation import Domain, Interval, Node, Operation, Shape, V, Weights
from privcirnet.he.program.rearrangement import Channels, Sampled


class Monotone(Operation):
    """A composite operation that never falls where one of its values rises."""

    local = False
    needs_share = True
    composite = True

    def values(self, x: Values) -> Values:
        """Return its result; ``x``: (C, H, W)."""
        raise NotImplementedError

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest result on [low, high], position by position."""
        return self.values(low), self.values(high)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])


@dataclass(frozen=True)
class Clip(Monotone):
    """x / 2^bits, rounded, and clipped to [0, top]: R(x) - R(x - top 2^bits) with an exact ReLU R of both at once.

    Attributes:
        bits: how many go.
        channels: of x.
    """

    bits: int
    top: int
    channels: int

    def values(self, x: Values) -> Values:
        return round_shift(x, self.bits).clip(0, self.top)

    def pieces(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        (x,) = arguments
        beyond = on.plus(x, np.array(-self.top << self.bits))
        both = on.step(ExactReLU(self.bits), on.step(Concat(2), x, beyond))
        first, second = (on.step(Channels(first, self.channels), both) for first in (0, self.channels))
        return on.add(first, on.times(second, -1))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = self.top >= 1 and self.channels == sources[0].shape[0]
        return "" if fits else f"a clip of {self.channels} channels at {self.top}"


@dataclass(frozen=True)
class MaxPool(Monotone):
    """The largest value of each window: columns, then rows, in pairs, max(a, b) = b + R(a - b) with an exact ReLU R.

    A window may reach over the edges, where there is nothing, but begins at most half of itself outside.

    Attributes:
        kernel: rows and columns of a window; likewise the others.
        padding: rows and columns at each edge.
        size: of the result.
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
        (found,) = arguments
        for axis in (1, 0):
            stride, size, begin = self.stride[axis], self.size[axis], -self.padding[axis]
            sides = [on.step(Sampled(axis + 1, begin + i, stride, size), found) for i in range(self.kernel[axis])]
            while len(sides) > 1:
                pairs = zip(sides[::2], sides[1::2], strict=False)
                sides = [*(self._larger(on, *pair) for pair in pairs), *sides[len(sides) // 2 * 2 :]]
            (found,) = sides
        return found

    @staticmethod
    def _larger(on: Domain[V], one: V, other: V) -> V:
        return on.add(other, on.step(ExactReLU(0), on.add(one, on.times(other, -1))))

    def shape_after(self, shapes: Sequence[Shape]) -> Shape:
        return shapes[0][0], *self.size

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        each = zip(self.kernel, self.stride, self.padding, sources[0].shape[1:], self.size, strict=True)
        fits = all(0 <= 2 * p <= k and s >= 1 and 1 <= (n - 1) * s + 1 <= w + p for k, s, p, w, n in each)
        return "" if fits else f"windows of {self.kernel}, {self.stride} apart, {self.padding} outside"
