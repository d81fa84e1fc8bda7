"""Our plan of many images side by side, for networks of three linear layers on a vector.

Columns of a row, slowest first: c (a power of two, cyclic), and the images; both rows hold other images. Message m has
at c pixel c of the m-th piece of each image. Every layer is a matrix over c, by its diagonals: baby steps of inputs,
giant steps of sums; where a layer has fewer outputs than inputs, its diagonals are those of a small square and what
remains is added up. So an image more costs nothing, up to n / count of them for layers of at most ``count`` outputs.

Cost: for 784-128-64-10 with n = 16384, 75 rotations and 976 products of plaintexts for 128 images; a request has 7
ciphertexts. The method is that of Halevi and Shoup (CRYPTO 2014), with the images in the slots that it leaves free.
"""

import numpy as np

from papers.falcon2020.circuits.builder import Builder, cut
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layout import next_power_of_two


class _Columns:
    """A cyclic digit c of the columns, the slowest.

    Args:
        count: of its values, a power of two.
    """

    def __init__(self, builder: Builder, count: int) -> None:
        self.builder, self.count, self.stride = builder, count, builder.row // count
        slots = np.arange(builder.ring_degree)
        self.half, column = np.divmod(slots, builder.row)
        self.c, self.rest = np.divmod(column, self.stride)

    def matrix(self, values: list[int], pieces: list[np.ndarray]) -> int:
        """Return matrices times values over c, added up; the result has the rows' number for its period in c.

        Args:
            values: whose period in c is the columns' number.
            pieces: a matrix for each value, (rows, columns), both powers of two.
        """
        builder, (rows, columns) = self.builder, pieces[0].shape
        depth = min(rows, columns)
        made = builder.transformed(
            {
                giant * self.stride: [
                    (value, baby * self.stride, self._diagonal(piece, giant + baby, giant))
                    for baby in babies
                    for value, piece in zip(values, pieces, strict=True)
                ]
                for giant, babies in cut(depth, baby=len(values)).items()
            }
        )
        return builder.sum_over(made, depth * self.stride, columns // depth)

    def _diagonal(self, piece: np.ndarray, shift: int, turn: int) -> np.ndarray:
        """Output c reads input c + shift, after a later turn."""
        rows, columns = piece.shape
        slots = piece[self.c % rows, (self.c + shift) % columns]
        return np.roll(slots.reshape(2, -1), turn * self.stride, axis=1).reshape(-1)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Slots that hold a vector over c, cyclically."""
        return values[self.c % len(values)]


def batch_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return the plan for many images side by side."""
    first, second, third = _layers(network)
    count = next_power_of_two(max(len(layer.bias) for layer in network.layers))
    if count > ring_degree // 2:
        got = f"{len(first.bias)} outputs for {ring_degree} slots"
        raise DoesNotFit("a row must hold a layer's outputs", got=got, remedy="use a larger ring degree")
    view, used = _view(network, count)
    builder = Builder(ring_degree, view.in_channels)
    columns = _Columns(builder, count)
    builder.layer = first.name
    made = columns.matrix(list(range(builder.inputs)), _pieces(first, used, count))
    wide = next_power_of_two(len(first.bias))
    made = builder.add_integers(made, columns.spread(_filled(first.bias, wide)))
    builder.layer = f"square behind {first.name}"
    made = builder.square(made)
    builder.layer, before, wide = second.name, wide, next_power_of_two(len(second.bias))
    made = columns.matrix([made], [_padded(second.matrix, wide, before)])
    made = builder.add_integers(made, columns.spread(_filled(second.bias, wide)))
    builder.layer = f"square behind {second.name}"
    made = builder.square(made)
    builder.layer = third.name
    answer, places = _last(builder, columns, third, made, wide)
    lanes = columns.half * columns.stride + columns.rest
    firsts = [half * builder.row + rest for half in range(2) for rest in range(columns.stride)]
    results = tuple((0, start + int(c) * columns.stride) for start in firsts for c in places)
    places_of_pixels = np.where(columns.c < used, columns.c, -1)
    return plan_of(network, builder.built([answer]), places_of_pixels, results, view, lanes=lanes)


def _layers(network: ExactNetwork) -> tuple[ExactLayer, ExactLayer, ExactLayer]:
    vectors = [layer for layer in network.layers if layer.shape.input_shape[1:] == (1, 1)]
    if len(vectors) != len(network.layers) or len(vectors) != 3:
        got, remedy = f"{len(network.layers)} layers, {len(vectors)} of them on vectors", "use another plan"
        raise RuleError("this plan is for three layers on a vector", got=got, remedy=remedy)
    first, second, third = vectors
    return first, second, third


def _view(network: ExactNetwork, count: int) -> tuple[LinearShape, int]:
    """The image as equal pieces of at most ``count`` pixels, one for each message; pixels of a piece."""
    pixels = int(np.prod(network.input_shape))
    pieces = -(-pixels // count)
    while pixels % pieces:
        pieces += 1
    return LinearShape(pixels // pieces, 1, pieces, 1), pixels // pieces


def _pieces(layer: ExactLayer, used: int, count: int) -> list[np.ndarray]:
    """The first layer's matrix in pieces of ``used`` inputs, each with ``count`` columns."""
    matrix, rows = layer.matrix, next_power_of_two(len(layer.bias))
    return [_padded(matrix[:, start : start + used], rows, count) for start in range(0, matrix.shape[1], used)]


def _last(builder: Builder, columns: _Columns, layer: ExactLayer, value: int, period: int) -> tuple[int, np.ndarray]:
    """The last layer's outputs, and the c of each."""
    rows = next_power_of_two(len(layer.bias))
    made = columns.matrix([value], [_padded(layer.matrix, rows, period)])
    return builder.add_integers(made, columns.spread(_filled(layer.bias, rows))), np.arange(len(layer.bias))


def _padded(matrix: np.ndarray, rows: int, columns: int) -> np.ndarray:
    found = np.zeros((rows, columns), dtype=np.int64)
    found[: matrix.shape[0], : matrix.shape[1]] = matrix
    return found


def _filled(bias: np.ndarray, size: int) -> np.ndarray:
    found = np.zeros(size, dtype=object)
    found[: len(bias)] = bias
    return found
