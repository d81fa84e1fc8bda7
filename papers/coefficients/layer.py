"""A linear layer in coefficient encoding: polynomial products instead of rotations, exact, for small ring degrees.

Two encodings are one of the layers that :class:`layers.layer.Layer` describes: "cheetah" (:mod:`coefficients.cheetah`,
any layer) and "falcon" (:mod:`coefficients.depthwise`, depthwise and group convolutions). t = 1 mod 2n always, so a
polynomial mod (X^n + 1, t) and its n batched slots are the same thing through an NTT mod t in clear, and the engines
need no other kind of plaintext. What they save is in the reply: of c0 only the coefficients that hold outputs are sent.

Noise (:func:`bfv.noise.fresh_noise_bits`; docs/mathematics.md, "Noise"). A fresh ciphertext has noise e, at
most 21 and with deviation 3.24 a coefficient (SEAL's centered binomial), and rounding errors under 1/2 from both
parties' shares each. A product with a weight polynomial w adds up at most one e for each weight, times |w|, and BFV's
scaling t-multiples cancel: nothing grows with t or n. For m weights under 2^a the sum is under 2^a (10 deviations
sqrt(m) + m) except with probability 2^-70, and under 22 m 2^a always. m and a are public, so the flooding that rests on
this bound says nothing of the weights.

Measured with the secret key at n = 4096 and all weights +-127 (tests/papers/coefficients/test_layer.py):

| layer                                        | m    | bits of bound | bits of noise |
|----------------------------------------------|------|---------------|---------------|
| the depthwise layer of Falcon 2023           | 54   | 16            | 14            |
| a 3 x 3 convolution of 64 channels           | 576  | 18            | 16            |
| a GEMM's two rows of 2048                    | 4096 | 20            | 16 to 17      |

With :data:`bfv.parameters.NARROW_COEFFICIENT_BITS` the plain modulus then has 30, 28, 26 bits.

Cost: :attr:`CoefficientLayer.pmults` products, no rotation, no Galois key.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from papers.coefficients import cheetah, depthwise
from papers.coefficients.layout import Placement, weight_polynomial
from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.interface import Ciphertext, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.bfv.noise import fresh_noise_bits
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers.integer import dense_weight
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Cost, LayerChoice, Objective, linear_cost, transfer_seconds
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.planner import Encoding
from privcirnet.he.planning.profile import Profile
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues

COEFFICIENT_ENCODINGS = {"cheetah": cheetah.ENCODING, "falcon": depthwise.ENCODING}
"""Encodings by name."""


@dataclass(frozen=True)
class CoefficientLayer:
    """A layer in coefficient encoding.

    Its members are documented in :class:`layers.layer.Layer`.

    Attributes:
        block_size: b; weights come as the first rows of circulant blocks and are encoded densely.
        encoding: one of :data:`COEFFICIENT_ENCODINGS`.
        weight_bits: weights are integers in [-2^(weight_bits - 1), 2^(weight_bits - 1)]; bounds the noise.
    """

    shape: LinearShape
    block_size: int
    ring_degree: int
    encoding: str
    weight_bits: int = 8

    def __post_init__(self) -> None:
        if self.encoding not in COEFFICIENT_ENCODINGS:
            known = ", ".join(COEFFICIENT_ENCODINGS)
            raise RuleError("the encoding must be a known one", got=repr(self.encoding), remedy=f"use one of {known}")
        self.shape.check_block_size(self.block_size)

    @cached_property
    def placement(self) -> Placement:
        """What each polynomial holds."""
        return COEFFICIENT_ENCODINGS[self.encoding].place(self._flat, self.ring_degree)

    @cached_property
    def _flat(self) -> LinearShape:
        """The shape that is laid out: the positions of a GEMM are one axis."""
        shape = self.shape
        return replace(shape, height=shape.height * shape.width, width=1) if shape.kind == "gemm" else shape

    @property
    def choices(self) -> dict[str, str]:
        """None: the tile follows from the shape."""
        return {}

    @property
    def ciphertexts_in(self) -> int:
        """Ciphertexts that the client sends: those of the first tile of the maps, then of the next."""
        return len(self.placement.inputs) * self.placement.grid.tiles

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends, in the same order."""
        return len(self.placement.outputs) * self.placement.grid.tiles

    @property
    def pmults(self) -> int:
        """HE-Pmult, if no weight polynomial is zero."""
        return len(self.placement.factors) * self.placement.grid.tiles

    @property
    def most_products(self) -> int:
        """Those of the placement."""
        return self.pmults

    @property
    def rotations(self) -> int:
        """None."""
        return 0

    @property
    def column_steps(self) -> set[int]:
        """None: the server needs no Galois key."""
        return set()

    @property
    def transform_lengths(self) -> set[int]:
        """None but 1."""
        return {1}

    @property
    def transformed_values(self) -> int:
        """None."""
        return 0

    @property
    def size_excess(self) -> str:
        """Nothing: no stranger describes such a layer."""
        return ""

    @property
    def kept(self) -> tuple[Integers, ...]:
        """Ascending positions of the coefficients that hold outputs, for each output ciphertext."""
        return self._kept

    @cached_property
    def _kept(self) -> tuple[Integers, ...]:
        return tuple(np.sort(exponents, axis=None) for _, _, exponents in self._places())

    @cached_property
    def weights_per_sum(self) -> int:
        """The most weights that one output ciphertext meets."""
        grid, counts = self.placement.grid, [0] * len(self.placement.outputs)
        for factor in self.placement.factors:
            counts[factor.target] += int(grid.taps_of_planes[factor.filters[:, 1] % len(grid.phases)].sum())
        return max(counts)

    def noise_bits(self, parameters: Parameters) -> int:
        """The module's header derives it."""
        if parameters.ring_degree != self.ring_degree:
            raise ValueError(f"the layer is laid out for n = {self.ring_degree}, not {parameters.ring_degree}")
        return fresh_noise_bits(self.weight_bits - 1, self.weights_per_sum)

    def encode_input(self, x: Residues, t: int) -> Residues:
        grid, planes = self.placement.grid, x.reshape(self._flat.input_shape)
        polynomials = np.zeros((grid.tiles, len(self.placement.inputs), self.ring_degree), dtype=np.uint64)
        for tile in range(grid.tiles):
            values = grid.split(planes, tile)
            for polynomial, held in zip(polynomials[tile], self.placement.inputs, strict=True):
                polynomial[held[:, 1:] + np.arange(grid.pitch)] = values[held[:, 0]]
        return batching.coefficients_to_slots(polynomials.reshape(-1, self.ring_degree), t)

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Shape of :meth:`spectrum`: that of the rows."""
        return self.shape.weight_shape(self.block_size)

    def spectrum(self, rows: Integers, t: int) -> Residues:
        """Return the weights mod t: coefficients of the weight polynomials, each of them once.

        Args:
            rows: first rows of circulant block rows, (K/b, C/groups, R, R).
        """
        largest = int(np.abs(rows.astype(np.int64)).max())
        if largest > 1 << (self.weight_bits - 1):
            raise RuleError(
                f"weights must have {self.weight_bits} bits, which the noise bound rests on",
                got=largest,
                remedy="raise weight_bits or quantise the weights to fewer bits",
            )
        return modular.residues(rows, t)

    def encode_spectrum(self, spectrum: Residues, engine: ServerEngine) -> EncodedWeights:
        slots = _WeightSlots(self, dense_weight(spectrum, self.shape, self.block_size), engine.parameters.plain_modulus)
        return engine.encode_weights(self.circuit, slots)

    @property
    def circuit(self) -> LayerCircuit:
        """The same products and sums for every tile."""
        return self._circuit

    @cached_property
    def _circuit(self) -> LayerCircuit:
        count, outputs = len(self.placement.inputs), len(self.placement.outputs)
        sums: list[list[Pair]] = [[] for _ in range(outputs * self.placement.grid.tiles)]
        for tile in range(self.placement.grid.tiles):
            for weight, factor in enumerate(self.placement.factors):
                sums[tile * outputs + factor.target].append((tile * count + factor.source, weight))
        rotated = tuple((number, 0) for number in range(self.ciphertexts_in))
        each = tuple(((number, 0),) for number in range(len(sums)))
        return LayerCircuit(rotated, tuple(map(tuple, sums)), each, ((),) * len(sums), len(self.placement.factors))

    def plaintexts(self, spectrum: Residues, t: int) -> Iterator[tuple[tuple[int, ...], Residues]]:
        """Only ``target`` and ``source`` are not 0; one tile stands for all."""
        found = _WeightSlots(self, dense_weight(spectrum, self.shape, self.block_size), t)
        for index, factor in enumerate(self.placement.factors):
            slots = found[index]
            if slots.any():
                yield (0, factor.target, 0, 0, factor.source), slots

    def evaluate(
        self, weights: EncodedWeights, inputs: Sequence[Ciphertext], engine: ServerEngine, keys: EvaluationKeys
    ) -> Sequence[Ciphertext]:
        return engine.evaluate(self.circuit, weights, inputs, keys)

    def decode_output(self, slots: Residues, t: int) -> Residues:
        polynomials = batching.slots_to_coefficients(slots, t)
        maps = np.zeros(self._flat.output_shape, dtype=np.uint64)
        for polynomial, (channels, place, exponents) in zip(polynomials, self._places(), strict=True):
            maps[channels, *place] = polynomial[exponents]
        return maps.reshape(self.shape.output_shape)

    def _places(self) -> list[tuple[Integers, tuple[slice, slice], Integers]]:
        """Each output ciphertext's channels, place in the output, coefficients (channels, rows, columns)."""
        grid = self.placement.grid
        return [
            (held[:, 0], grid.place(tile), held[:, 1, None, None] + grid.outputs(tile))
            for tile in range(grid.tiles)
            for held in self.placement.outputs
        ]


@dataclass(frozen=True, eq=False)
class _WeightSlots:
    """The plaintexts of a layer's weights, for an engine: as slots, each made where it is asked for."""

    layer: CoefficientLayer
    dense: Residues
    t: int

    def __len__(self) -> int:
        return len(self.layer.placement.factors)

    def __getitem__(self, weight: int, /) -> Residues:
        placement = self.layer.placement
        polynomial = weight_polynomial(placement.grid, placement.factors[weight], self.dense, self.layer.ring_degree)
        return batching.coefficients_to_slots(polynomial[None], self.t)[0]


@linear_cost.register
def coefficient_cost(layer: CoefficientLayer, profile: Profile, link: NetworkLink) -> Cost:
    """Return the predicted cost of a layer in coefficient encoding, in seconds.

    Args:
        profile: seconds of operations at one (n, q).
    """
    s, inputs, outputs = profile.seconds, layer.ciphertexts_in, layer.ciphertexts_out
    server = (
        inputs * (s["receive"] + s["polynomial"] + s["add_plain"] + s["to_ntt"])
        + layer.pmults * s["pmult"]
        + outputs * (s["from_ntt"] + s["polynomial"] + s["reply"])
    )
    kept = sum(map(len, layer.kept)) / layer.ring_degree
    network = transfer_seconds(inputs, kept, outputs, profile, link) + link.round_trip
    client = inputs * (s["encrypt"] + s["polynomial"]), outputs * (s["decrypt"] + s["polynomial"])
    return Cost(client[0], server + s["call"], client[1], network)


def plan_coefficients(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the one plan of a layer in a coefficient encoding; ``name``: of :data:`COEFFICIENT_ENCODINGS`."""
    layer = CoefficientLayer(shape, block_size, goal.profile.ring_degree, name)
    return LayerChoice(layer, goal, ((linear_cost(layer, goal.profile, goal.link), layer),))


NAMES = {
    name: Encoding(lambda shape, b, fits=known.fits: fits(shape), known.rule, partial(plan_coefficients, name))
    for name, known in COEFFICIENT_ENCODINGS.items()
}
"""The same as :data:`planning.planner.NAMES` has them, to be added there."""
