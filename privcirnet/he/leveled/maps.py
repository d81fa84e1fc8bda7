"""Our plan of two convolutions and a layer on their outputs: LoLa's and Falcon 2020's CIFAR network.

The first convolution's outputs lie map after map in each row, S slots a map, both rows alike: the client spreads the
image (:mod:`leveled.spread`), which costs no rotation. An output of the second convolution stands where its window
begins, map o at slots o S, ..., half of the maps in either row. Weight (c, y, x) of map o meets the slot (c - o) S +
y W + x further right: baby steps of all (y, x) and some maps, which are hoisted, giant steps of maps. Nothing is padded
to powers of two, so the steps c - o run from 1 - maps to maps - 1. The last layer is one product for each output; the
client adds up the products (:attr:`plan.PublicPlan.summed`).

Cost: for CIFAR (83 maps of 14 x 14, 163 of 5 x 5) with n = 32768, 153 rotations and 6,142 products of plaintexts, of
which 5,940 are the second convolution's. Published: 7.9 K rotations (Falcon, Table 9).
"""

from functools import partial

import numpy as np

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.leveled.builder import Builder
from privcirnet.he.leveled.circuit import Plaintext
from privcirnet.he.leveled.network import LeveledLayer, LeveledNetwork
from privcirnet.he.leveled.plan import Plan, plan_of
from privcirnet.he.leveled.spread import convolution, three_layers
from privcirnet.he.ring.modular import Residues


class _Maps:
    """The layout of the second convolution.

    Args:
        layer: it.
        ring_degree: n.

    Raises:
        DoesNotFit: a row has no room for all maps before it, or for half of those behind it.
        RuleError: the convolution is padded or grouped.
    """

    def __init__(self, layer: LeveledLayer, ring_degree: int) -> None:
        self.layer, self.n, self.row = layer, ring_degree, ring_degree // 2
        shape = layer.shape
        if shape.padding or shape.groups > 1:
            got, remedy = f"padding {shape.padding}, {shape.groups} groups at {layer.name}", "leave them out"
            raise RuleError("a second convolution must have no padding and one group", got=got, remedy=remedy)
        self.size, self.maps_in, self.maps = shape.height * shape.width, shape.in_channels, -(-shape.out_channels // 2)
        if max(self.maps_in, self.maps) * self.size > self.row:
            got = f"{self.maps_in} maps of {self.size} for {self.row} columns"
            raise DoesNotFit("a row must hold all maps of a convolution", got=got, remedy="use a larger ring degree")
        slots = np.arange(ring_degree)
        self.values = np.where(slots % self.row < self.maps_in * self.size, slots % self.row, -1)
        _, height, width = shape.output_shape
        starts = shape.stride * (np.arange(height)[:, None] * shape.width + np.arange(width)).reshape(-1)
        output = np.arange(shape.out_channels)[:, None]
        self.places = output // self.maps * self.row + output % self.maps * self.size + starts
        self.offsets = [(y, x) for y in range(shape.kernel) for x in range(shape.kernel)]

    def weights(self, step: int, y: int, x: int) -> np.ndarray:
        """The weight of each output that meets the map ``step`` maps further, 0 if there is none: (K,)."""
        outputs = np.arange(self.layer.shape.out_channels)
        found = outputs % self.maps + step
        held = (found >= 0) & (found < self.maps_in)
        return np.where(held, self.layer.weight[outputs, np.where(held, found, 0), y, x], 0)

    def slots(self, step: int, offset: tuple[int, int], turn: int, t: int) -> Residues:
        """The same in slots mod t, before a later turn by ``turn`` columns."""
        found = np.zeros(self.n, dtype=np.int64)
        found[self.places] = self.weights(step, *offset)[:, None]
        return (np.roll(found.reshape(2, -1), turn, axis=1).reshape(-1) % t).astype(np.uint64)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Slots that hold a value for each output map at all of its places."""
        found = np.zeros(self.n, dtype=values.dtype)
        found[self.places] = values[:, None]
        return found


def maps_plan(network: LeveledNetwork, ring_degree: int) -> Plan:
    """Return the plan.

    Args:
        network: two convolutions and a layer.
        ring_degree: n.

    Raises:
        DoesNotFit: a row has no room for the maps.
        RuleError: the network is another.
    """
    first, second, last = three_layers(network)
    layout = _Maps(second, ring_degree)
    builder = Builder(ring_degree, first.weight[0].size)
    squared, columns = convolution(builder, first, layout.values)
    builder.layer = second.name
    made = builder.add_integers(_second(builder, layout, squared), layout.spread(second.bias))
    builder.layer = f"square behind {second.name}"
    hidden = builder.square(made)
    builder.layer = last.name
    places, start = layout.places.reshape(-1), int(layout.places.min())
    outputs: list[int] = []
    for row, bias in zip(last.matrix, last.bias, strict=True):
        slots, constant = np.zeros(ring_degree, dtype=np.int64), np.zeros(ring_degree, dtype=object)
        slots[places], constant[start] = row, bias
        outputs.append(builder.add_integers(builder.weighted([(hidden, slots)]), constant))
    results = [(number, start) for number in range(len(outputs))]
    plan = plan_of(network, builder.built(outputs), columns, results)
    return plan.added(tuple(int(place) - start for place in sorted(places)))


def _second(builder: Builder, layout: _Maps, value: int) -> int:
    """The second convolution's outputs at their places; other slots hold sums of no meaning."""
    width, steps = layout.layer.shape.width, range(1 - layout.maps, layout.maps_in)
    baby = _baby(len(layout.offsets), len(steps))
    giants: list[int] = []
    for giant in range(0, len(steps), baby):
        turn = steps[giant] * layout.size
        terms: list[tuple[int, Plaintext]] = []
        for step in steps[giant : giant + baby]:
            for y, x in layout.offsets:
                if layout.weights(step, y, x).any():
                    near = builder.rotate(value, (step - steps[giant]) * layout.size + y * width + x)
                    terms.append((near, partial(layout.slots, step, (y, x), turn)))
        if terms:
            giants.append(builder.rotate(builder.products(terms), turn))
    if not giants:
        got, remedy = f"none in layer {layout.layer.name}", "train it again: an output without weights says nothing"
        raise RuleError("every sum must have a weight that is not zero", got=got, remedy=remedy)
    return builder.total(giants)


def _baby(offsets: int, steps: int) -> int:
    """Maps in a giant step, of the fewest rotations."""
    return min(range(1, steps + 1), key=lambda baby: offsets * baby - 1 + -(-steps // baby) - 1)
