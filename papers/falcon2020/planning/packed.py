"""Our plan with few messages: windows side by side in the slots, and a last layer that rotates nothing.

Slots are K copies of W columns, W a power of two with room for the first layer's outputs, both rows being halves of the
copies. In copy c of message i the client puts what each output sees through weight i K + c of its kernel.

* The first layer is one product for each message and log2 K rotations that add up the copies. They are cyclic, so that
  every copy holds all outputs: x with period W. A dense layer is one of windows of one place.
* The middle layer: with m baby steps of S = W / m columns, slot v S + r gets, for output v mod H (H a power of two),
  the products with x[r], x[S + r], ...; log2 S rotations add up r. What then stands at slots v S are the outputs, as
  often as K m slots have room for them; other slots hold sums of no meaning.
* The last layer: each copy of its inputs meets the weights of another output; outputs without a copy of their own meet
  all of them a column further right. The client adds up the products of an output (:attr:`plan.PublicPlan.summed`),
  which the server masks with shares of zero. So nothing is added up under encryption.

Cost: for LoLa's MNIST network 2 messages (25 with windows of their own) and 4 + 14 + 9 rotations, of which 16 are
hoisted; for the tutorial network 1 message and 6 + 9 + 2. Blocks that are circulant save nothing here.
"""

import math

import numpy as np

from papers.falcon2020.circuits.builder import HOISTED, Builder
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import three_layers
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.spectral_layout import next_power_of_two


class _Packed:
    """The layout of three layers."""

    def __init__(self, network: ExactNetwork, ring_degree: int) -> None:
        self.first, self.middle, self.last = three_layers(network)
        self.n, self.values = ring_degree, math.prod(self.first.shape.output_shape)
        self.width = next_power_of_two(self.values)
        self.copies, self.hidden = ring_degree // self.width, next_power_of_two(len(self.middle.bias))
        fitting = [1 << i for i in range(self.width.bit_length()) if self._fits(1 << i)]
        if self.copies < 2 or not fitting:
            got = f"{self.values} x {len(self.middle.bias)} values for {ring_degree} slots"
            raise DoesNotFit("the slots must hold the layers' outputs side by side", got=got, remedy="use LoLa's plan")
        self.baby = min(fitting, key=self._rotations)
        self.stride = self.width // self.baby

    def _fits(self, baby: int) -> bool:
        return self.copies * baby >= self.hidden and self._shifts(baby) <= self.width // baby

    def _shifts(self, baby: int) -> int:
        """Columns that the last layer's outputs need at each of its inputs."""
        return -(-len(self.last.bias) * self.hidden // (self.copies * baby))

    def _rotations(self, baby: int) -> float:
        last = HOISTED**2 * (self._shifts(baby) - 1)  # each layer further on has about as much less to do
        return HOISTED * (baby - 1) + math.log2(self.width // baby) + last

    @property
    def messages(self) -> int:
        """Of a request."""
        return -(-self.first.weight[0].size // self.copies)

    @property
    def kernels(self) -> np.ndarray:
        """For each slot of every message which weight of a kernel it meets, -1 for none: (messages, n)."""
        copy, weights = np.arange(self.n) // self.width, self.first.weight[0].size
        found = np.arange(self.messages)[:, None] * self.copies + copy
        return np.where((found < weights) & (self.places >= 0), found, -1)

    @property
    def places(self) -> np.ndarray:
        """For each slot the first layer's output, -1 for none: (n,)."""
        found = np.arange(self.n) % self.width
        return np.where(found < self.values, found, -1)

    def weights(self, step: int) -> np.ndarray:
        """The middle layer's weights that meet x turned left by some baby steps: (n,)."""
        slots = np.arange(self.n)
        outputs, inputs = slots // self.stride % self.hidden, (slots + step * self.stride) % self.width
        held = (outputs < len(self.middle.bias)) & (inputs < self.values)
        return np.where(held, self.middle.matrix[np.where(held, outputs, 0), np.where(held, inputs, 0)], 0)

    def place(self, output: int) -> int:
        """The first slot of an output of the last layer."""
        shift, copy = divmod(output, self.copies * self.baby // self.hidden)
        return copy * self.hidden * self.stride + shift

    @property
    def inputs(self) -> np.ndarray:
        """Columns from an output's first slot to what each of its inputs' products stand in."""
        return self.stride * np.arange(len(self.middle.bias))


def packed_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return our plan with few messages, for three layers, the first on an image or dense.

    Raises:
        DoesNotFit: the slots have no room for the first layer's outputs twice, or for the middle layer's.
    """
    layout = _Packed(network, ring_degree)
    builder = Builder(ring_degree, layout.messages)
    squared = _first(builder, layout)
    hidden = _middle(builder, layout, squared)
    output = _last(builder, layout, hidden)
    size, classes = math.prod(layout.first.shape.output_shape[1:]), range(len(layout.last.bias))
    columns = np.where(layout.places >= 0, layout.places % size, -1)
    results = [(0, layout.place(c)) for c in classes]
    plan = plan_of(network, builder.built([output]), columns, results)
    return plan.packed(layout.kernels, tuple(layout.inputs.tolist()))


def _first(builder: Builder, layout: _Packed) -> int:
    layer, places, kernels = layout.first, layout.places, layout.kernels
    builder.layer = layer.name
    maps = np.where(places >= 0, places, 0) // math.prod(layer.shape.output_shape[1:])
    weights = layer.weight.reshape(len(layer.weight), -1)
    terms = [(i, np.where(own >= 0, weights[maps, np.maximum(own, 0)], 0)) for i, own in enumerate(kernels)]
    made = builder.sum_over(builder.weighted(terms), layout.width, layout.copies // 2)
    made = builder.add(made, builder.swap(made))
    made = builder.add_integers(made, np.where(places >= 0, layer.bias[maps], 0))
    builder.layer = f"square behind {layer.name}"
    return builder.square(made)


def _middle(builder: Builder, layout: _Packed, value: int) -> int:
    layer: ExactLayer = layout.middle
    builder.layer = layer.name
    terms = [(builder.rotate(value, step * layout.stride), layout.weights(step)) for step in range(layout.baby)]
    made = builder.sum_over(builder.weighted(terms), 1, layout.stride)
    padded, bias = np.zeros(layout.hidden, dtype=object), np.zeros(layout.n, dtype=object)
    padded[: len(layer.bias)] = layer.bias
    bias[:: layout.stride] = np.tile(padded, layout.copies * layout.baby // layout.hidden)
    made = builder.add_integers(made, bias)
    builder.layer = f"square behind {layer.name}"
    return builder.square(made)


def _last(builder: Builder, layout: _Packed, value: int) -> int:
    layer = layout.last
    builder.layer = layer.name
    slots: dict[int, np.ndarray] = {}
    bias = np.zeros(layout.n, dtype=object)
    for c, (row, own) in enumerate(zip(layer.matrix, layer.bias, strict=True)):
        place = layout.place(c)
        shift = place % layout.stride
        slots.setdefault(shift, np.zeros(layout.n, dtype=np.int64))[place + layout.inputs] = row
        bias[place] = own
    made = builder.weighted([(builder.rotate(value, -shift), own) for shift, own in slots.items()])
    return builder.add_integers(made, bias)
