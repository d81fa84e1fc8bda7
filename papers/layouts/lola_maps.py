"""LoLa's plan of two convolutions and a layer, its CIFAR network: the baseline of Falcon's and ours.

* convolution: a message for each weight of the kernel. Times plaintexts and added up it gives pieces of the maps, which
  rotations put side by side in one *dense* vector.
* the second convolution, and any other layer: a product for each output, whose weights stand where the output sees
  something, and rotations that add up all columns (dense vector - row major product). Its sum is then in every column;
  a mask leaves it in one, so that additions alone make the next dense vector.
* row-major products of the last layer: one output each, *sparse*.

A dense vector has half of its values in either row, with a period that is a power of two: so the sums are cyclic, and
rows are added once, behind all outputs. Two rows hold what one ciphertext of the papers' does.

Cost: for CIFAR (83 maps of 14 x 14, 163 of 5 x 5) with n = 16384, 41 + (4,075 x 13 + 1) + 120 rotations. Published:
53 K (Falcon, Table 8), of which 82 + 52,975 + 120. The masks are ours: the papers do not say how sums get their places.

Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019), as Falcon (NeurIPS 2020,
Tables 8 and 9) describes it.
"""

from functools import partial

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.circuits.network_circuit import Plaintext
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import three_layers
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.spectral_layout import next_power_of_two
from privcirnet.he.ring import modular


class _Dense:
    """The layout of a vector: half of it in either row, again and again.

    Args:
        least: columns that a period has at least.

    Raises:
        DoesNotFit: a row has no room for half of the vector.
    """

    def __init__(self, count: int, ring_degree: int, least: int = 1) -> None:
        self.count, self.half, row = count, -(-count // 2), ring_degree // 2
        self.period = max(next_power_of_two(self.half), next_power_of_two(least))
        if self.period > row:
            got = f"{count} values for {ring_degree} slots"
            raise DoesNotFit("a ciphertext must hold a vector", got=got, remedy="use a larger ring degree")
        slots = np.arange(ring_degree)
        self.row, self.column = slots // row, slots % row % self.period
        found = self.row * self.half + self.column
        self.values = np.where((self.column < self.half) & (found < count), found, -1)
        """For each slot its value, -1 for none: (n,)."""

    def at(self, values: np.ndarray) -> np.ndarray:
        """Slots that hold a vector."""
        return np.where(self.values >= 0, values[self.values], 0)


class _Maps:
    """What the plan multiplies with, made when it is needed: plaintexts of all outputs are gigabytes.

    Args:
        first: the first layer.
        second: the second.

    Raises:
        DoesNotFit: a ciphertext has no room for the first layer's outputs, or a period for the second's.
    """

    def __init__(self, first: ExactLayer, second: ExactLayer, ring_degree: int) -> None:
        self.size = int(np.prod(first.shape.output_shape[1:]))
        self.inputs, self.outputs = (int(np.prod(layer.shape.output_shape)) for layer in (first, second))
        self.dense = _Dense(first.shape.out_channels * self.size, ring_degree, self.size)
        if self.outputs > self.dense.period:
            got = f"{self.outputs} for {self.dense.period}"
            raise DoesNotFit("outputs must fit a row's period", got=got, remedy="use a larger ring degree")
        self.kernels, self.second = first.weight.reshape(len(first.weight), -1), second

    @property
    def pieces(self) -> int:
        """How many sums of windows make the dense vector."""
        return -(-self.dense.half // self.size)

    @property
    def places(self) -> np.ndarray:
        """For each slot of every message which place of a map it is for, -1 for none: (n,)."""
        dense = self.dense
        return np.where(dense.column < self.size, (dense.row * dense.half + dense.column) % self.size, -1)

    def mapped(self, number: int) -> np.ndarray:
        """For each slot the map of a piece, before it is put in its place, -1 for none: (n,)."""
        dense = self.dense
        column = number * self.size + dense.column
        value = dense.row * dense.half + column
        held = (dense.column < self.size) & (column < dense.half) & (value < self.inputs)
        return np.where(held, value // self.size, -1)

    def piece(self, number: int, weight: int) -> np.ndarray:
        """Weights that a window meets for one piece: (n,)."""
        maps = self.mapped(number)
        return np.where(maps >= 0, self.kernels[maps, weight], 0)

    def used(self, number: int) -> list[int]:
        """The weights of a kernel that are not zero for all maps of a piece."""
        maps = np.unique(self.mapped(number))
        return np.flatnonzero(self.kernels[maps[maps >= 0]].any(axis=0)).tolist()

    def row(self, output: int) -> np.ndarray:
        """Weights of an output of the second layer: (n,)."""
        shape = self.second.shape
        k, y, x = np.unravel_index(output, shape.output_shape)
        seen = np.zeros((shape.in_channels, *(side + 2 * shape.padding for side in (shape.height, shape.width))))
        top, left = int(y) * shape.stride, int(x) * shape.stride
        seen[:, top : top + shape.kernel, left : left + shape.kernel] = self.second.weight[k]
        inner = (slice(shape.padding, side + shape.padding) for side in (shape.height, shape.width))
        return self.dense.at(seen[:, *inner].reshape(-1).astype(np.int64))

    def mask(self, output: int) -> np.ndarray:
        """One where an output of the second layer stays: (n,)."""
        return (self.dense.column == output).astype(np.int64)

    def stays(self, values: np.ndarray) -> np.ndarray:
        """Slots of both rows that hold the second layer's outputs."""
        held = self.dense.column < self.outputs
        return np.where(held, values[np.where(held, self.dense.column, 0)], 0)


def lola_maps_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return LoLa's plan.

    Args:
        network: two convolutions and a layer, or a convolution and two layers.

    Raises:
        DoesNotFit: a ciphertext has no room for the first layer's outputs, or a period for the second's.
        RuleError: the network has another number of layers.
    """
    first, second, last = three_layers(network)
    maps = _Maps(first, second, ring_degree)
    builder = Builder(ring_degree, first.weight[0].size)
    squared = _first(builder, maps, first)
    hidden = _second(builder, maps, squared)
    builder.layer = last.name
    outputs = [
        _sum(builder, hidden, partial(_row_major, maps, row), next_power_of_two(maps.outputs)) for row in last.matrix
    ]
    start = np.zeros(ring_degree, dtype=object)
    start[0] = 1
    outputs = [builder.add_integers(value, start * bias) for value, bias in zip(outputs, last.bias, strict=True)]
    return plan_of(network, builder.built(outputs), maps.places, [(number, 0) for number in range(len(outputs))])


def _first(builder: Builder, maps: _Maps, layer: ExactLayer) -> int:
    """The first layer's outputs as a dense vector, squared."""
    builder.layer = layer.name
    pieces: list[int] = []
    for number in range(maps.pieces):
        terms = [(source, _lazy(partial(maps.piece, number, source))) for source in maps.used(number)]
        pieces.append(builder.weighted(terms))
    made = builder.side_by_side(pieces, maps.size)
    made = builder.add_integers(made, maps.dense.at(np.repeat(layer.bias, maps.size)))
    builder.layer = f"square behind {layer.name}"
    return builder.square(made)


def _second(builder: Builder, maps: _Maps, value: int) -> int:
    """The second layer's outputs in the first columns of both rows, squared."""
    layer = maps.second
    builder.layer = layer.name

    def own(output: int) -> int:
        made = _sum(builder, value, partial(maps.row, output), maps.dense.period)
        return builder.weighted([(made, _lazy(partial(maps.mask, output)))])

    made = builder.total(map(own, range(maps.outputs)))
    places = maps.outputs // layer.shape.out_channels
    made = builder.add_integers(builder.add(made, builder.swap(made)), maps.stays(np.repeat(layer.bias, places)))
    builder.layer = f"square behind {layer.name}"
    return builder.square(made)


def _sum(builder: Builder, value: int, slots: partial[np.ndarray], count: int) -> int:
    """A row-major product: what stands in some columns, times integers, added up."""
    if not slots().any():
        _ = builder.weighted([])
    return builder.sum_over(builder.weighted([(value, _lazy(slots))]), 1, count)


def _row_major(maps: _Maps, row: np.ndarray) -> np.ndarray:
    """Weights of the last layer in the first period of the first row."""
    found = np.zeros_like(maps.dense.column)
    found[: maps.outputs] = row
    return found


def _lazy(slots: partial[np.ndarray]) -> Plaintext:
    """Integers that are made when they are encoded."""
    return lambda t: modular.residues(slots(), t)
