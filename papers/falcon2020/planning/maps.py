"""Our plan of two convolutions and a layer on their outputs: LoLa's and Falcon 2020's CIFAR network.

The second convolution may be block circulant over its channels: it is then computed in the frequency domain, as Falcon
does (algorithms 1 and 3), with transforms of length k that are exact mod t (:mod:`papers.layouts.falcon`).

* *Phases*: a convolution of stride s is one of stride 1 on the s x s grids of every s-th place of a map (its polyphase
  components). A *frame* holds one such grid of one block of channels; its kernel has ceil(R / s) x ceil(R / s) taps.
* The maps of a block see the same pixels, so a message of the first layer holds eight windows at eight values of j, and
  seven rotations bring together what they start (:mod:`papers.falcon2020.planning.spread`).
* Columns of a row, slowest first: j (k of them, the channel in its block, cyclic), frame, place in the frame. Each row
  holds half of the frames, as often as there is room: the client spreads the image
  (:mod:`papers.falcon2020.planning.spread`), so that copies cost no rotation.
* DFT over j: a k x k matrix by its cyclic diagonals, baby and giant steps. Afterwards j counts frequencies.
* Output block P is added up in frame P. Frame P + m meets it at a rotation by m frames; copies make m run over little
  more than the frames of a row. Baby steps of taps and some frames, which are hoisted, giant steps of frames. The rows
  are added, each of them the sum over half of the inputs.
* Inverse DFT, bias, square. The last layer is one product for each output; the client adds up the products
  (:attr:`plan.PublicPlan.summed`).

Cost: for CIFAR (83 maps of 14 x 14, 163 of 5 x 5) with n = 32768, 7 + 34 rotations, 360 products of plaintexts and 24
messages with k = 16; 77, 1,696 and 192 with dense weights. Published: 7.9 K rotations (Falcon, Table 9).
"""

from collections.abc import Iterator
from functools import partial
from itertools import product

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.circuits.network_circuit import Plaintext
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import messages, shared_convolution, three_layers
from papers.falcon2020.planning.transforms import layer_spectra, transformed
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.ring.modular import Residues

SIDE = 8
"""Windows in a message: 16 save half of the bytes again, and eight rotations more take longer than what is saved
(`python benchmarks/windows.py`)."""


class _Frames:
    """The layout of the second convolution."""

    def __init__(self, layer: ExactLayer, ring_degree: int) -> None:
        self.layer, self.n, self.k, self.row = layer, ring_degree, layer.block_size, ring_degree // 2
        shape, self.phases = layer.shape, layer.shape.stride
        if shape.padding or shape.groups > 1:
            got, remedy = f"padding {shape.padding}, {shape.groups} groups at {layer.name}", "leave them out"
            raise RuleError("a second convolution must have no padding and one group", got=got, remedy=remedy)
        padded = shape.padded(self.k)
        self.blocks_in, self.blocks_out = padded.in_channels // self.k, padded.out_channels // self.k
        self.height, self.width, self.taps = (
            -(-side // self.phases) for side in (shape.height, shape.width, shape.kernel)
        )
        self.size, self.stride = self.height * self.width, self.row // self.k
        self.inputs = self.blocks_in * self.phases**2
        self.half, self.frames = -(-self.inputs // 2), self.stride // self.size
        if max(self.half, self.blocks_out) > self.frames:
            got = f"{max(self.half, self.blocks_out)} of {self.size} for {self.stride} columns"
            raise DoesNotFit("a row must hold all frames of a convolution", got=got, remedy="use a larger ring degree")
        _, high, wide = shape.output_shape
        self._seen = (np.arange(high)[:, None] * self.width + np.arange(wide)).reshape(-1)
        self._spectra: dict[int, Residues] = {}

    @property
    def steps(self) -> range:
        """How many frames further right than its output's an input's frame may be."""
        return range(-max(0, self.blocks_out - 1 - self.frames + self.half), self.half)

    @property
    def values(self) -> np.ndarray:
        """For each slot the input that it holds, counted map after map, -1 for none: (n,)."""
        shape, slots = self.layer.shape, np.arange(self.n)
        j, rest = np.divmod(slots % self.row, self.stride)
        frame, place = np.divmod(rest, self.size)
        block, y, x = self._input(slots // self.row, frame)
        channel, y, x = (
            block * self.k + j,
            y + self.phases * (place // self.width),
            x + self.phases * (place % self.width),
        )
        held = (frame < self.frames) & (block >= 0) & (channel < shape.in_channels)
        held &= (y < shape.height) & (x < shape.width)
        return np.where(held, (channel * shape.height + y) * shape.width + x, -1)

    @property
    def places(self) -> np.ndarray:
        """The slot of every output, (K, H' W')."""
        block, i = np.divmod(np.arange(self.layer.shape.out_channels), self.k)
        return (i * self.stride + block * self.size)[:, None] + self._seen

    def met(self, step: int, u: int, v: int) -> tuple[np.ndarray, ...]:
        """Return what the output blocks meet at one rotation.

        Args:
            u: tap, from the top.
            v: tap, from the left.

        Returns:
            (whether there is a weight, input block, row and column of the kernel), each (2, output blocks).
        """
        output, row, kernel = np.arange(self.blocks_out), np.arange(2)[:, None], self.layer.shape.kernel
        frame, first = output + step, np.minimum(output, self.frames - self.half)
        block, y, x = self._input(row, frame)
        y, x = y + self.phases * u, x + self.phases * v
        held = (first <= frame) & (frame < first + self.half) & (block >= 0) & (y < kernel) & (x < kernel)
        return held, *(np.where(held, each, 0) for each in (block, y, x))

    def meets(self, step: int, u: int, v: int) -> bool:
        """Return whether a weight that is not zero meets anything at a rotation; arguments as of :meth:`met`."""
        held, block, y, x = self.met(step, u, v)
        rows = self.layer.rows.reshape(self.blocks_out, self.blocks_in, self.k, *self.layer.rows.shape[2:])
        return bool(rows[np.arange(self.blocks_out), block, :, y, x][held].any())

    def slots(self, step: int, tap: tuple[int, int], turn: int, t: int) -> Residues:
        """The weights' transforms mod t that outputs meet at a rotation, before a later turn by ``turn`` columns."""
        held, *met = self.met(step, *tap)
        weights = np.where(held[..., None], self._spectrum(t)[(np.arange(self.blocks_out), *met)], np.uint64(0))
        made = np.zeros((2, self.k, self.stride), dtype=np.uint64)
        places = self.size * np.arange(self.blocks_out)[:, None] + self._seen
        made[:, :, places] = weights.swapaxes(1, 2)[..., None]
        return np.roll(made.reshape(2, -1), turn, axis=1).reshape(-1)

    def spread(self, values: np.ndarray) -> np.ndarray:
        """Slots that hold a value for each output map at all of its places."""
        found = np.zeros(self.n, dtype=values.dtype)
        found[self.places] = values[:, None]
        return found

    def _input(self, row: np.ndarray, frame: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(Block of channels, -1 for none, row and column in the map of the phase's first place) of frames."""
        number = row * self.half + frame % self.half
        phase, block = np.divmod(number, self.blocks_in)
        return np.where((number < self.inputs) & (frame >= 0), block, -1), *np.divmod(phase, self.phases)

    def _spectrum(self, t: int) -> Residues:
        """The weights' transforms, made once for each t."""
        if t not in self._spectra:
            self._spectra[t] = layer_spectra(self.layer, t)
        return self._spectra[t]


def maps_plan(network: ExactNetwork, ring_degree: int, side: int = SIDE) -> Plan:
    """Return the plan.

    Args:
        side: windows in a message, a power of two; of a second layer with smaller blocks, as many as these have rows.

    Raises:
        DoesNotFit: a row has no room for the maps.
    """
    first, second, last = three_layers(network)
    frames = _Frames(second, ring_degree)
    side = min(side, frames.k)
    builder = Builder(ring_degree, messages(first, side))
    squared, columns, kernels = shared_convolution(builder, first, frames.values, frames.k, side)
    builder.layer = second.name
    half = _second(builder, frames, transformed(builder, squared, frames.k))
    made = transformed(builder, builder.add(half, builder.swap(half)), frames.k, inverse=True)
    made = builder.add_integers(made, frames.spread(second.bias))
    builder.layer = f"square behind {second.name}"
    hidden = builder.square(made)
    builder.layer = last.name
    places, start = frames.places.reshape(-1), int(frames.places.min())
    outputs: list[int] = []
    for row, bias in zip(last.matrix, last.bias, strict=True):
        slots, constant = np.zeros(ring_degree, dtype=np.int64), np.zeros(ring_degree, dtype=object)
        slots[places], constant[start] = row, bias
        outputs.append(builder.add_integers(builder.weighted([(hidden, slots)]), constant))
    results = [(number, start) for number in range(len(outputs))]
    plan = plan_of(network, builder.built(outputs), columns, results)
    return plan.packed(kernels, tuple(int(place) - start for place in sorted(places)))


def _second(builder: Builder, frames: _Frames, value: int) -> int:
    """Sums over half of the inputs in either row, at the outputs' frames; other slots are zero."""
    steps, taps = frames.steps, [(u, v) for u in range(frames.taps) for v in range(frames.taps)]
    baby = _baby(len(taps), len(steps))

    def terms(giant: int, turn: int) -> Iterator[tuple[int, int, Plaintext]]:
        for step, (u, v) in product(steps[giant : giant + baby], taps):
            if frames.meets(step, u, v):
                near = step * frames.size - turn + u * frames.width + v
                yield value, near, partial(frames.slots, step, (u, v), turn)

    turns = {giant: steps[giant] * frames.size for giant in range(0, len(steps), baby)}
    return builder.transformed({turn: terms(giant, turn) for giant, turn in turns.items()})


def _baby(taps: int, steps: int) -> int:
    """Frames in a giant step, of the fewest rotations."""
    return min(range(1, steps + 1), key=lambda baby: taps * baby - 1 + -(-steps // baby) - 1)
