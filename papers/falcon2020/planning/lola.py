"""LoLa's plan of a network: its representations, and the products between them.

* convolution: a message for each weight of the kernel (:mod:`.plan`). Times plaintexts and added up it gives one
  *dense* vector for each map, without rotations; K - 1 rotations put them side by side in one.
* *stacked*: copies of a dense vector side by side. One product serves a row of the matrix in each copy; rotations and
  sums over a copy's width leave an output in its first slot.
* *interleaved*: such outputs of several products, shifted and added up. What else their slots hold is masked first.
* row-major product: one output of any representation, by rotations and sums over all of it: *sparse*.

Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019), as Falcon (NeurIPS 2020,
Tables 6 and 7) describes it. Published for MNIST: 225 rotations, 4 + 151 + 70. Here 4 + 145 + 70: copies are stacked by
doubling, 3 rotations and not 8. The masks of interleaving are ours: without them sums over a width would be added to
neighbours.
"""

from typing import NamedTuple

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.spectral_layout import next_power_of_two


class Vector(NamedTuple):
    """Values in the columns of the first row; its other slots are zero.

    Attributes:
        places: column of each value, (values,).
    """

    value: int
    places: np.ndarray


def lola_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return LoLa's plan of a network whose first layer is a convolution.

    Raises:
        DoesNotFit: a row has too few slots for the maps of the first layer.
    """
    first, *others = network.layers
    _, height, width = first.shape.output_shape
    builder = Builder(ring_degree, first.weight[0].size)
    vector = _convolution(builder, first, height * width)
    for layer in others[:-1]:
        vector = _stacked(builder, layer, _squared(builder, layer, vector))
    outputs = _row_major(builder, others[-1], _squared(builder, others[-1], vector)) if others else [vector.value]
    sparse = tuple((number, 0) for number in range(len(outputs)))
    columns = np.full(ring_degree, -1)
    columns[: height * width] = np.arange(height * width)
    dense = tuple((0, int(slot)) for slot in vector.places)
    return plan_of(network, builder.built(outputs), columns, sparse if others else dense)


def _convolution(builder: Builder, layer: ExactLayer, size: int) -> Vector:
    """A dense vector of all maps, map after map."""
    builder.layer = layer.name
    maps, kernels = len(layer.weight), layer.weight.reshape(len(layer.weight), -1)
    if maps * size > builder.row:
        got = f"{maps} maps of {size} for {builder.row} columns"
        raise DoesNotFit("the first layer's maps must fit a row", got=got, remedy="use a larger ring degree")
    found: list[int] = []
    for kernel in kernels:
        terms = [(source, _at(builder, np.arange(size), weight)) for source, weight in enumerate(kernel)]
        found.append(builder.weighted(terms))
    places, dense = np.arange(maps * size), builder.side_by_side(found, size)
    return Vector(builder.add_integers(dense, _at(builder, places, np.repeat(layer.bias, size))), places)


def _squared(builder: Builder, layer: ExactLayer, vector: Vector) -> Vector:
    builder.layer = f"square before {layer.name}"
    return Vector(builder.square(vector.value), vector.places)


def _stacked(builder: Builder, layer: ExactLayer, vector: Vector) -> Vector:
    """An interleaved vector of the layer's outputs: as many rows of the matrix in each product as there are copies."""
    builder.layer = layer.name
    matrix, width = layer.matrix, next_power_of_two(int(vector.places.max()) + 1)
    copies = min(builder.row // width, next_power_of_two(len(matrix)))
    stacked = vector.value
    for step in range(copies.bit_length() - 1):
        stacked = builder.add(stacked, builder.rotate(stacked, -width << step))
    found: list[int] = []
    for first in range(0, len(matrix), copies):
        rows = matrix[first : first + copies]
        corners = width * np.arange(len(rows))
        places = (corners[:, None] + vector.places).reshape(-1)
        summed = builder.sum_over(builder.weighted([(stacked, _at(builder, places, rows.reshape(-1)))]), 1, width)
        found.append(builder.weighted([(summed, _at(builder, corners, 1))]))
    outputs = np.arange(len(matrix))
    places = outputs % copies * width + outputs // copies
    interleaved = builder.side_by_side(found, 1)
    return Vector(builder.add_integers(interleaved, _at(builder, places, layer.bias)), places)


def _row_major(builder: Builder, layer: ExactLayer, vector: Vector) -> list[int]:
    """A sparse ciphertext for each output, the output in its first slot."""
    builder.layer = layer.name
    strides = _bits(vector.places)
    found: list[int] = []
    for row, bias in zip(layer.matrix, layer.bias, strict=True):
        value = builder.weighted([(vector.value, _at(builder, vector.places, row))])
        for stride in strides:
            value = builder.add(value, builder.rotate(value, stride))
        found.append(builder.add_integers(value, _at(builder, np.zeros(1, dtype=np.int64), bias)))
    return found


def _bits(places: np.ndarray) -> list[int]:
    """The powers of two that columns are made of: sums over each of them reach column 0 from every place."""
    every = int(np.bitwise_or.reduce(places))
    return [1 << bit for bit in range(every.bit_length()) if every >> bit & 1]


def _at(builder: Builder, places: np.ndarray, values: object) -> np.ndarray:
    """Integers at some columns of the first row, zeros elsewhere."""
    slots = np.zeros(builder.ring_degree, dtype=object)
    slots[places] = values
    return slots
