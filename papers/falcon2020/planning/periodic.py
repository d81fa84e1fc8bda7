"""Our own plan: circulant blocks by their diagonals, sums that leave a copy everywhere, outputs side by side.

Columns of a row, slowest first: p (a power of two of them, cyclic), o (output blocks), j (k). The client spreads the
image so that every o has a copy of x, value (p, j) at column (p, o, j). A copy follows each copy, so that a rotation by
d < k columns turns every block cyclically: the last o of a p is spared for that, and no transform is needed.

* The circulant layer: its k diagonals, baby steps of the input and giant steps of sums; then log2 p rotations add over
  p. p is cyclic, so that every p holds all outputs.
* The last layer: column p holds the weights of output p, so that one product and one sum over o, j and both rows make
  all outputs. A dense layer is one of blocks of one column.

Cost: for LoLa's MNIST network with k = 8, 4 + 7 + 7 rotations.
"""

import numpy as np

from papers.falcon2020.circuits.builder import Builder, cut
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import convolution, three_layers
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.spectral_layout import next_power_of_two


class _Periodic:
    """The layout: for each slot its row, p, o, j."""

    def __init__(self, layer: ExactLayer, ring_degree: int) -> None:
        self.layer, self.k = layer, layer.block_size
        padded = layer.shape.padded(self.k)
        self.blocks_in, self.blocks_out = (c // self.k for c in (padded.in_channels, padded.out_channels))
        self.count, self.row = next_power_of_two(self.blocks_in), ring_degree // 2
        self.stride = self.row // self.count
        self.room = self.stride // self.k - (self.k > 1)
        if self.room < 1:
            got = f"{self.blocks_in} blocks of {self.k} for {ring_degree} slots"
            raise DoesNotFit("a row must hold two copies of a layer's input", got=got, remedy="use smaller blocks")
        slots = np.arange(ring_degree)
        self.half = slots // self.row
        self.p, rest = np.divmod(slots % self.row, self.stride)
        self.o, self.j = np.divmod(rest, self.k)

    @property
    def ciphertexts(self) -> int:
        """How many hold all outputs."""
        return -(-self.blocks_out // (2 * self.room))

    @property
    def values(self) -> np.ndarray:
        """For each slot the input that it holds, -1 for none: (n,)."""
        found = self.p * self.k + self.j
        whole = self.o * self.k + self.k <= self.stride
        return np.where(whole & (self.p < self.blocks_in) & (found < self.layer.shape.in_channels), found, -1)

    def blocks(self, number: int) -> np.ndarray:
        """For each slot of a ciphertext of outputs its output block, -1 for none: (n,)."""
        found = (2 * number + self.half) * self.room + self.o
        return np.where((self.o < self.room) & (found < self.blocks_out), found, -1)

    def outputs(self, number: int) -> np.ndarray:
        """For each slot of a ciphertext of outputs its output, the same for all p; -1 for none: (n,)."""
        found = self.blocks(number) * self.k + self.j
        return np.where((self.blocks(number) >= 0) & (found < self.layer.shape.out_channels), found, -1)

    def diagonal(self, number: int, shift: int, turn: int) -> np.ndarray:
        """Integers of one diagonal, turned: outputs at j read j + shift, after a later turn."""
        outputs, inputs = self.outputs(number), self.p * self.k + (self.j + shift) % self.k
        held = (outputs >= 0) & (inputs < self.layer.shape.in_channels)
        slots = np.where(held, self.layer.matrix[outputs, np.where(held, inputs, 0)], 0)
        return np.roll(slots.reshape(2, -1), turn, axis=1).reshape(-1)


def periodic_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return our plan of a convolution and two layers, the middle one of any block size.

    Raises:
        DoesNotFit: a row has no room for the middle layer.
    """
    first, middle, last = three_layers(network)
    layout = _Periodic(middle, ring_degree)
    builder = Builder(ring_degree, first.weight[0].size)
    squared, columns = convolution(builder, first, layout.values)
    builder.layer = middle.name
    hidden = [_circulant(builder, layout, number, squared) for number in range(layout.ciphertexts)]
    builder.layer = f"square behind {middle.name}"
    hidden = [builder.square(value) for value in hidden]
    outputs = [_outputs(builder, layout, last, hidden, some) for some in _chunks(len(last.bias), layout.count)]
    results = tuple((c // layout.count, c % layout.count * layout.stride) for c in range(len(last.bias)))
    return plan_of(network, builder.built(outputs), columns, results)


def _circulant(builder: Builder, layout: _Periodic, number: int, value: int) -> int:
    """One ciphertext of the middle layer's outputs, a copy of each for every p."""
    steps = cut(layout.k, giant=layout.ciphertexts)  # those of the input are shared by all ciphertexts of outputs
    made = builder.transformed(
        {
            giant: [(value, baby, layout.diagonal(number, giant + baby, giant)) for baby in babies]
            for giant, babies in steps.items()
        }
    )
    summed, outputs = builder.sum_over(made, layout.stride, layout.count), layout.outputs(number)
    return builder.add_integers(summed, np.where(outputs >= 0, layout.layer.bias[outputs], 0))


def _outputs(builder: Builder, layout: _Periodic, layer: ExactLayer, hidden: list[int], some: range) -> int:
    """A ciphertext of the last layer's outputs: number c of them at the first column of p = c."""
    builder.layer = layer.name
    terms: list[tuple[int, np.ndarray]] = []
    rows = np.zeros((layout.count, layer.shape.in_channels), dtype=np.int64)
    rows[: len(some)] = layer.matrix[some.start : some.stop]
    for number, value in enumerate(hidden):
        outputs = layout.outputs(number)
        terms.append((value, np.where(outputs >= 0, rows[layout.p, outputs], 0)))
    made = builder.sum_over(builder.weighted(terms), 1, layout.stride)
    bias = np.zeros(builder.ring_degree, dtype=object)
    bias[layout.stride * np.arange(len(some))] = layer.bias[some.start : some.stop]
    return builder.add_integers(builder.add(made, builder.swap(made)), bias)


def _chunks(count: int, size: int) -> list[range]:
    return [range(first, min(first + size, count)) for first in range(0, count, size)]
