"""Slot encoding of real maps, and convolutions at one level and without a change of encoding.

Encoding: channel after channel, each map row by row. A ciphertext has n / 2 slots with one real number in each, so that
one EvalMod refreshes it and a square needs no parts. Layers with fewer values are repeated until all slots are full:
then rotations are cyclic in the layer's own values. Layers with more take several ciphertexts of whole channels.

Maths: the channels c and c + C / 2 of a layer become one complex number, v = x + i rot(x) by half a period, or
v = x + i y of two ciphertexts. Then for weights w and w' of the two

    Re((w - i w') v) = w x_c + w' x_(c + C/2),

so that a kernel of f x f from C channels takes f^2 C / 2 diagonals, half as many as with real numbers, for one rotation
and one conjugation more: the sum with its conjugate is twice the real part.

Diagonal (d, dy, dx) takes output channel k at pixel (y, x) from channel k + d, cyclically, at (y + dy, x + dx); where
that is outside of the map the diagonal is zero, which is the padding.

Stride 2: pixel (2 y + p, 2 x + q) becomes pixel (y, x) of channel 4 c + 2 p + q, in two maps of s - 1 diagonals: first
within rows, then rows (:func:`phases`). The convolution is then one with stride 1 over 4 C channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.evaluator import CkksEvaluator
from privcirnet.he.ckks.linear_map import LinearMap, permutation


@dataclass(frozen=True)
class Layout:
    """Positions of a layer's values in slots.

    Attributes:
        channels: C, a power of two, at least 2.
        size: width s of a map, H = W, a power of two.
        slots: n / 2.
    """

    channels: int
    size: int
    slots: int

    def __post_init__(self) -> None:
        for name, value, smallest in (("channels", self.channels, 2), ("the width of a map", self.size, 1)):
            if value < smallest or value & (value - 1):
                rule, remedy = f"{name} must be a power of two of {smallest} or more", "pad it with zeros"
                raise RuleError(rule, got=value, remedy=remedy)
        if self.area > self.slots:
            rule, remedy = "a map must fit a ciphertext", "use a larger ring"
            raise RuleError(rule, got=f"{self.area} values for {self.slots} slots", remedy=remedy)

    @property
    def area(self) -> int:
        """Values of a map."""
        return self.size * self.size

    @property
    def own(self) -> int:
        """Channels of a ciphertext."""
        return min(self.channels, self.slots // self.area)

    @property
    def period(self) -> int:
        """Slots after which the values of a ciphertext are repeated."""
        return self.own * self.area

    @property
    def parts(self) -> int:
        """Ciphertexts of a layer."""
        return self.channels // self.own

    def spread(self, values: Reals) -> list[Reals]:
        """Return a number of each channel in all slots of the channel, for each ciphertext.

        Args:
            values: shape (C' <= C,); what is missing is zero.
        """
        return [part.real for part in self.encode(np.tile(values[:, None, None], (1, self.size, self.size)))]

    def encode(self, maps: Reals) -> list[Slots]:
        """Return the slots of each ciphertext.

        Args:
            maps: shape (C' <= C, s, s); what is missing is zero.
        """
        whole = np.zeros((self.channels, self.area), dtype=np.complex128)
        whole[: len(maps)] = maps.reshape(len(maps), self.area)
        return [np.tile(part.reshape(-1), self.slots // self.period) for part in np.split(whole, self.parts)]

    def decode(self, parts: Sequence[Slots]) -> Reals:
        """Return the maps of slots, shape (C, s, s)."""
        values = np.concatenate([part[: self.period].real for part in parts])
        return values.reshape(self.channels, self.size, self.size)


V = TypeVar("V")


def paired(machine: CkksEvaluator[V], values: Sequence[V], layout: Layout) -> list[V]:
    """Return the complex numbers that maps of :func:`convolve` take."""
    if len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=True)
        return [machine.add(first, machine.times_i(second)) for first, second in pairs]
    (value,) = values
    return [machine.add(value, machine.times_i(machine.rotate(value, layout.period // 2)))]


def convolve(weights: Reals, source: Layout, target: Layout, part: int = 0) -> list[LinearMap]:
    """Return the maps of a convolution with stride 1 and padding (f - 1) / 2, from each pair of inputs.

    The real part of their sum is half the result: it is added to its conjugate.

    Args:
        weights: shape (K' <= K, C' <= C, f, f), f odd.
        target: layout of K channels, on maps of the same size.
    """
    full = np.zeros((target.channels, source.channels, *weights.shape[2:]))
    full[: weights.shape[0], : weights.shape[1]] = weights
    part_weights = full[part * target.own : (part + 1) * target.own]
    return [_map(part_weights, pair, source, target) for pair in range(max(source.parts // 2, 1))]


def over_phases(weights: Reals) -> Reals:
    """Return the weights of a convolution with stride 2 as one with stride 1 over the phases of its inputs.

    Args:
        weights: shape (K, C, f, f), f = 1 or 3, padding (f - 1) / 2.

    Returns:
        shape (K, 4 C, f, f); phase (p, q) of channel c is 4 c + 2 p + q.
    """
    outputs, channels, size, _ = weights.shape
    phased, radius = np.zeros((outputs, 4 * channels, size, size)), size // 2
    for u, v in np.ndindex(size, size):
        dy, dx = u - radius, v - radius
        phase = 2 * (dy % 2) + dx % 2
        phased[:, phase::4, dy // 2 + radius, dx // 2 + radius] = weights[:, :, u, v]
    return phased


def phases(layout: Layout) -> tuple[LinearMap, LinearMap]:
    """Return the two maps from a layout to that of its phases, 4 C channels of half the size: in rows, then of rows.

    Args:
        layout: layout of maps of 2 x 2 or more.
    """
    half = layout.size // 2
    in_rows = np.arange(layout.area).reshape(half, 2, half, 2).transpose(0, 1, 3, 2)  # y p x q -> y p q x
    of_rows = np.arange(layout.area).reshape(half, 2, 2, half).transpose(1, 2, 0, 3)  # y p q x -> p q y x
    return _within(layout, in_rows), _within(layout, of_rows)


def phased(layout: Layout) -> Layout:
    """Return the layout of the phases of a layout's maps; ``layout``: of maps of 2 x 2 or more."""
    return Layout(4 * layout.channels, layout.size // 2, layout.slots)


def pooled_classifier(weights: Reals, layout: Layout) -> LinearMap:
    """Return the map of a fully connected layer on sums over maps: output k at the first slot of channel k.

    Its inputs are pairs (:func:`paired`) of a layout of one ciphertext whose first slot of each channel has the sum.

    Args:
        weights: shape (K <= C, C).
    """
    target = Layout(layout.channels, layout.size, layout.slots)
    padded = np.zeros((layout.channels, layout.channels, 1, 1))
    padded[: len(weights), :, 0, 0] = weights
    linear = _map(padded, 0, layout, target)
    first = np.arange(layout.slots) % layout.area == 0
    return LinearMap({d: np.where(first, diagonal, 0) for d, diagonal in linear.diagonals.items()})


def _map(weights: Reals, pair: int, source: Layout, target: Layout) -> LinearMap:
    """Return the map of one pair of inputs to one ciphertext of outputs, whose weights are (channels, C, f, f)."""
    single, channels = source.parts == 1, source.own
    count, first = (channels // 2, 0) if single else (channels, 2 * pair * channels)
    blocks = np.arange(source.slots // source.area)
    rows, partner = blocks % target.own, channels // 2 if single else channels
    diagonals: dict[int, Slots] = {}
    for d in range(count):
        real = first + (blocks + d) % channels
        second = (real + partner) % channels if single else real + partner
        factors = (weights[rows, real] - 1j * weights[rows, second]) / 2
        for u, v in np.ndindex(weights.shape[2:]):
            if factors[:, u, v].any():
                dy, dx = u - weights.shape[2] // 2, v - weights.shape[3] // 2
                step = (d * source.area + dy * source.size + dx) % source.period
                diagonal = (factors[:, u, v, None] * _inside(source.size, dy, dx)).reshape(-1)
                diagonals[step] = diagonals[step] + diagonal if step in diagonals else diagonal
    return LinearMap(diagonals)


def _inside(size: int, dy: int, dx: int) -> Reals:
    """Return 1 where pixel (y + dy, x + dx) is in the map and else 0, shape (s^2,)."""
    y, x = np.arange(size) + dy, np.arange(size) + dx
    return np.outer((y >= 0) & (y < size), (x >= 0) & (x < size)).reshape(-1).astype(np.float64)


def _within(layout: Layout, sources: np.ndarray) -> LinearMap:
    """Return the map that moves slots within every channel."""
    starts = np.arange(0, layout.slots, layout.area)
    return permutation((starts[:, None] + sources.reshape(-1)).reshape(-1))
