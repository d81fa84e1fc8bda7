"""A spectral linear layer under encryption: the plans of its pieces, as one circuit for an engine.

The arithmetic on residues is in :mod:`layers.spectral`, the layout in :mod:`layers.spectral_layout`, the plan of a
piece in :mod:`layers.bsgs`. Here they become one of the layers that :class:`layers.layer.Layer` describes. Pieces that
are alike share their plaintexts.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from privcirnet.he.bfv.interface import Ciphertext, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.bfv.noise import noise_bits, special_prime_lack
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import size_limits, spectral
from privcirnet.he.layers.bsgs import BsgsPlan, Product
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral import SlotIndices, places
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece, PieceLayout, place
from privcirnet.he.ring.modular import Integers, Residues


@dataclass(frozen=True)
class SpectralLayer:
    """A layer in spectral encoding: CirEncode, with Bolt, NeuJeans and ENSEI as special cases.

    Its members are documented in :class:`layers.layer.Layer`.

    Attributes:
        tile: (rows, columns) of output in a tile.
        pieces: cover all channel groups and tiles, in order.
    """

    shape: LinearShape
    block_size: int
    ring_degree: int
    tile: tuple[int, int]
    pieces: tuple[Piece, ...]

    encoding = "cirencode"

    @cached_property
    def layout(self) -> SpectralLayout:
        """The positions of values in cells."""
        return SpectralLayout(self.shape, self.block_size, self.tile)

    @cached_property
    def placed(self) -> tuple[PieceLayout, ...]:
        """The pieces, each with its plan."""
        return place(self.layout, self.ring_degree, self.pieces)

    @cached_property
    def places(self) -> SlotIndices:
        """The source of every value."""
        return places(self.layout, self.placed)

    @property
    def choices(self) -> dict[str, str]:
        """The tile, the number of pieces, and the plan of the first of them."""
        first, plan = self.pieces[0], self.placed[0].plan
        return {
            "tile": "x".join(map(str, self.tile)),
            "pieces": str(len(self.pieces)),
            "lanes": str(first.lanes),
            "copies": str(first.copies),
            "B": f"{first.baby_steps}x{plan.giant_steps}",
            "sums": first.sums,
        }

    @property
    def transform_lengths(self) -> set[int]:
        """Lengths of the circulant axis and of every transformed image axis."""
        return self.layout.transform_lengths

    @property
    def transformed_values(self) -> int:
        """All cells of the input or of the output, whichever are more."""
        layout = self.layout
        return max(layout.blocks_in, layout.blocks_out) * layout.shape.groups * layout.tiles * layout.cell

    @property
    def size_excess(self) -> str:
        """See :func:`size_limits.spectral_excess`."""
        return size_limits.spectral_excess(self.layout, self.pieces)

    @property
    def rotations(self) -> int:
        """HE-Rot of all pieces' plans."""
        return sum(placed.plan.rotations for placed in self.placed)

    @property
    def pmults(self) -> int:
        """HE-Pmult of all pieces' plans."""
        return sum(placed.plan.pmults for placed in self.placed)

    @property
    def most_products(self) -> int:
        """Every diagonal of every pair of an input and an output ciphertext."""
        plans = (placed.plan for placed in self.placed)
        return sum(plan.ciphertexts_in * plan.targets * plan.diagonals for plan in plans)

    @property
    def ciphertexts_in(self) -> int:
        """Ciphertexts that the client sends, piece by piece."""
        return sum(placed.plan.ciphertexts_in for placed in self.placed)

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends back, piece by piece."""
        return sum(placed.plan.ciphertexts_out for placed in self.placed)

    @property
    def products_per_sum(self) -> int:
        """Largest number of products that end up in one output ciphertext (for the noise)."""
        return max(placed.plan.products_per_sum for placed in self.placed)

    @property
    def column_steps(self) -> set[int]:
        """Column steps of the plans' lane steps."""
        return {step * placed.lane_slots // 2 for placed in self.placed for step in placed.plan.rotation_steps}

    def encode_input(self, x: Residues, t: int) -> Residues:
        return spectral.encode_input(self.layout, self.places, x, t)

    @property
    def kept(self) -> None:
        """All coefficients of a reply are needed."""
        return None

    def noise_bits(self, parameters: Parameters) -> int:
        lack = special_prime_lack(parameters.coefficient_bits) if self.rotations else 0
        return noise_bits(self.ring_degree, parameters.plain_bits, self.products_per_sum, lack)

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Shape of :meth:`spectrum`."""
        return self.layout.spectrum_shape

    def spectrum(self, rows: Integers, t: int) -> Residues:
        return spectral.weight_spectrum(self.layout, rows, t)

    def encode_spectrum(self, spectrum: Residues, engine: ServerEngine) -> EncodedWeights:
        return encode_weights(self, spectrum, engine)

    def plaintexts(self, spectrum: Residues, t: int) -> Iterator[tuple[tuple[int, ...], Residues]]:
        for index, placed in enumerate(self.placed):
            for p in placed.plan.products:
                slots = spectral.diagonal_slots(self.layout, placed, spectrum, p)
                if slots.any():
                    yield (index, p.target, p.giant, p.baby, p.source), slots

    @cached_property
    def distinct(self) -> tuple[tuple[PieceLayout, Product], ...]:
        """Every different plaintext, in order: pieces that are alike share theirs."""
        pieces = {_alike(placed): placed for placed in reversed(self.placed)}
        alike = dict.fromkeys(map(_alike, self.placed))
        return tuple((pieces[key], product) for key in alike for product in pieces[key].plan.products)

    @property
    def circuit(self) -> LayerCircuit:
        """The circuits of all pieces side by side."""
        return self._circuit

    @cached_property
    def _circuit(self) -> LayerCircuit:
        return _circuit(self)

    def evaluate(
        self, weights: EncodedWeights, inputs: Sequence[Ciphertext], engine: ServerEngine, keys: EvaluationKeys
    ) -> Sequence[Ciphertext]:
        """Return the results piece by piece, in the order of ``plan.outputs``."""
        return engine.evaluate(self.circuit, weights, inputs, keys)

    def decode_output(self, slots: Residues, t: int) -> Residues:
        return spectral.decode_output(self.layout, self.places, slots, t)


def encode_weights(
    layer: SpectralLayer, spectrum: Residues, engine: ServerEngine, *, keep: bool = True
) -> EncodedWeights:
    """Return every diagonal of a layer, encoded."""
    return engine.encode_weights(layer.circuit, Diagonals(layer, spectrum), keep=keep)


@dataclass(frozen=True)
class Diagonals:
    """The plaintexts of a layer, in the order of its circuit's weights: a sequence of slots (n,), made when asked for.

    Attributes:
        spectrum: see :func:`spectral.weight_spectrum`.
    """

    layer: SpectralLayer
    spectrum: Residues

    def __len__(self) -> int:
        return len(self.layer.distinct)

    def __getitem__(self, weight: int) -> Residues:
        placed, product = self.layer.distinct[weight]
        return spectral.diagonal_slots(self.layer.layout, placed, self.spectrum, product)


def _circuit(layer: SpectralLayer) -> LayerCircuit:
    """Return the circuits of all pieces side by side."""
    first_weight: dict[tuple[Piece, int], int] = {}
    rotated: list[Pair] = []
    sums: list[tuple[Pair, ...]] = []
    outputs: list[tuple[Pair, ...]] = []
    folds: list[tuple[int, ...]] = []
    weights = 0
    for placed in layer.placed:
        plan, columns = placed.plan, placed.lane_slots // 2
        weight = first_weight.setdefault(_alike(placed), weights)
        weights = max(weights, weight + plan.pmults)
        place = {pair: len(rotated) + i for i, pair in enumerate(plan.rotated)}
        rotated += [(placed.first_in + source, baby * columns) for source, baby in plan.rotated]
        parts: dict[Pair, list[Pair]] = {part: [] for part in plan.parts}
        for number, product in enumerate(plan.products, weight):
            parts[product.target, product.giant].append((place[product.source, product.baby], number))
        number = {part: len(sums) + i for i, part in enumerate(parts)}
        sums += map(tuple, parts.values())
        outputs += [_terms(plan, output, number, columns) for output in plan.outputs]
        folds += [tuple(step * columns for step in plan.fold_rotations)] * len(plan.outputs)
    return LayerCircuit(tuple(rotated), tuple(sums), tuple(outputs), tuple(folds), len(layer.distinct))


def _terms(plan: BsgsPlan, output: Pair, number: Mapping[Pair, int], columns: int) -> tuple[Pair, ...]:
    """Return the inner sums that make an output, each with the column step of its giant step."""
    if plan.giants_on_shares:
        return ((number[output], 0),)
    return tuple((number[part], part[1] * plan.baby_steps * columns) for part in plan.parts if part[0] == output[0])


def _alike(placed: PieceLayout) -> tuple[Piece, int]:
    """Return the key of pieces that have the same weights."""
    return placed.piece, placed.first_group
