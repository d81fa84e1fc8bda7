"""Falcon 2020's plan of two convolutions and a layer, its CIFAR network: a circulant convolution by its spectra.

Columns of a row, slowest first: j (k of them, the channel in its block, cyclic), s. An input's block of channels and
its place in the map are s, half of the blocks in either row; an output's block and place are s too, in both rows.

* The client spreads the image (:mod:`papers.falcon2020.planning.spread`): the first layer and putting its maps side by
  side cost nothing.
* DFT over j (algorithm 1), by diagonals and exact mod t (:mod:`papers.falcon2020.planning.transforms`).
* Spectral convolution (algorithm 3): for each block of outputs at each place one product with the weights' transforms,
  and rotations that add up s. A mask leaves the sums in one column of each j; one rotation puts them behind the others.
* Rows are added once, inverse DFT, bias, square. The last layer: a row-major product (LoLa's) for each output.

Cost: for CIFAR (83 maps of 14 x 14, 163 of 5 x 5, k = 16) with n = 32768, 6 + (275 x 10 + 275) + 6 + 130 rotations.
Published: 7.9 K, of which 82 + 12 + 7,650 + 12 + 120 (Table 9). Exact transforms have no imaginary parts, which halves
the sums; what adds up the columns of the last layer takes one rotation more for each class, because 11 x 25 blocks of
16 are 275, and not 255. The masks are ours: the paper does not say how sums get their places.

Source: Lou et al., Falcon (NeurIPS 2020), Section 3, algorithms 1 and 3, Tables 5, 8 and 9.
"""

from functools import partial

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import convolution, three_layers
from papers.falcon2020.planning.transforms import layer_spectra, transformed
from papers.layouts.falcon import row_major
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.spectral_layout import next_power_of_two
from privcirnet.he.ring.modular import Residues


class _SpectralMaps:
    """The layout of the second convolution.

    Raises:
        DoesNotFit: k columns of a row have no room for half of the inputs, or for the outputs.
    """

    def __init__(self, layer: ExactLayer, ring_degree: int) -> None:
        self.layer, self.k, self.row = layer, layer.block_size, ring_degree // 2
        shape, padded = layer.shape, layer.shape.padded(layer.block_size)
        self.blocks_in, self.area = padded.in_channels // self.k, shape.height * shape.width
        self.half, self.stride = -(-self.blocks_in // 2), self.row // self.k
        self.width = next_power_of_two(self.half * self.area)
        _, self.high, self.wide = shape.output_shape
        self.outputs = padded.out_channels // self.k * self.high * self.wide
        if max(self.width, self.outputs) > self.stride:
            got = f"{self.half * self.area} and {self.outputs} for {self.stride} columns"
            raise DoesNotFit("a row must hold blocks of maps", got=got, remedy="use a larger ring degree")
        slots = np.arange(ring_degree)
        self.j, self.s = np.divmod(slots % self.row, self.stride)
        self.block, self.place = np.divmod(self.s, self.area)
        self.block = np.where(self.block < self.half, slots // self.row * self.half + self.block, self.blocks_in)
        self._spectra: dict[int, Residues] = {}

    @property
    def values(self) -> np.ndarray:
        """For each slot the input that it holds, counted map after map, -1 for none: (n,)."""
        channel = self.block * self.k + self.j
        held = (self.block < self.blocks_in) & (channel < self.layer.shape.in_channels)
        return np.where(held, channel * self.area + self.place, -1)

    @property
    def found(self) -> np.ndarray:
        """For each slot the output that it holds in the end, counted map after map, -1 for none: (n,)."""
        block, place = np.divmod(self.s, self.high * self.wide)
        channel = block * self.k + self.j
        held = (self.s < self.outputs) & (channel < self.layer.shape.out_channels)
        return np.where(held, channel * self.high * self.wide + place, -1)

    def weights(self, output: int, t: int) -> Residues:
        """The transforms that meet the inputs of a block of outputs at a place: (n,)."""
        if t not in self._spectra:
            self._spectra[t] = layer_spectra(self.layer, t)
        shape = self.layer.shape
        block, place = divmod(output, self.high * self.wide)
        y, x = divmod(place, self.wide)
        u = self.place // shape.width - y * shape.stride + shape.padding
        v = self.place % shape.width - x * shape.stride + shape.padding
        held = (self.block < self.blocks_in) & (0 <= u) & (u < shape.kernel) & (0 <= v) & (v < shape.kernel)
        met = (np.where(held, each, 0) for each in (self.block, u, v))
        return np.where(held, self._spectra[t][(block, *met, self.j)], np.uint64(0))

    def mask(self) -> np.ndarray:
        """One in the first column of each j: (n,)."""
        return (self.s == 0).astype(np.int64)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Slots that hold values of the outputs, counted map after map, in both rows."""
        found = self.found
        return np.where(found >= 0, values[found], 0)


def falcon_maps_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return Falcon's plan.

    Args:
        network: two convolutions and a layer, the second convolution of any block size.

    Raises:
        DoesNotFit: a row has no room for the blocks' maps.
        RuleError: the network has another number of layers.
    """
    first, second, last = three_layers(network)
    maps = _SpectralMaps(second, ring_degree)
    builder = Builder(ring_degree, first.weight[0].size)
    squared, columns = convolution(builder, first, maps.values)
    builder.layer = second.name
    made = _spectral(builder, maps, transformed(builder, squared, maps.k))
    made = transformed(builder, builder.add(made, builder.swap(made)), maps.k, inverse=True)
    made = builder.add_integers(made, maps.spread(np.repeat(second.bias, maps.high * maps.wide)))
    builder.layer = f"square behind {second.name}"
    hidden = builder.square(made)
    upper = np.arange(ring_degree) < builder.row

    def products(row: np.ndarray) -> int:
        return builder.weighted([(hidden, np.where(upper, maps.spread(row), 0))])

    outputs = row_major(builder, last, products, (1, next_power_of_two(maps.outputs)), (maps.stride, maps.k))
    return plan_of(network, builder.built(outputs), columns, [(number, 0) for number in range(len(outputs))])


def _spectral(builder: Builder, maps: _SpectralMaps, value: int) -> int:
    """Sums over half of the inputs in either row, side by side."""
    found: int | None = None
    for output in reversed(range(maps.outputs)):
        made = builder.weighted([(value, partial(maps.weights, output))])
        made = builder.weighted([(builder.sum_over(made, 1, maps.width), maps.mask())])
        found = made if found is None else builder.add(made, builder.rotate(found, -1))
    if found is None:
        raise ValueError("a layer must have outputs")
    return found
