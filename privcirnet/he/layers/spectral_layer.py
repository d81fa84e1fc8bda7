"""CirEncode: block-circulant GEMMs and convolutions under encryption (PrivCirNet, section 3.2, theorems 1 and 2).

Maths: with W split into circulant blocks, block[i, j] = w[(i - j) mod b], and X a map, W X is a sum over input blocks
of cyclic convolutions along the channel-in-block axis (circulant) and along the image axes (the kernel). A transform
mod t along those axes turns each of them into slot-wise products, the weight's spectrum being constant along axes
that are not transformed. b = 1 with a 1 x 1 kernel is Bolt's GEMM; b = 1 with a larger kernel is NeuJeans' convolution
(its CinS encoding, in BFV) and ENSEI's convolution in the frequency domain; a depthwise convolution is one product.

Cost: the client's transforms are in clear; what is left under encryption is, for each channel group and tile, a
(K/b) x (phases C/b) matrix over lanes.

Departure from the papers: transforms have exactly the length that is needed, not the next power of two
(docs/mathematics.md, "Transform lengths").

Movement of values: :class:`SlotIndices` says for every value of each array which one of the flat array before it
it is, so that moving is one gather. Places are found by applying the layout's functions once, to the numbers of what
they arrange. They are counted from 1, and 0 stands for a zero.

:class:`SpectralLayer` puts the layout (:mod:`layers.spectral_layout`) and the plans of the pieces (:mod:`layers.bsgs`)
together, as one circuit for an engine; pieces that are alike share their plaintexts. Until a layer is planned, an
:class:`UnplannedLayer` stands in its node, with all that bounds on values depend on: no finished program has any.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Never, cast

import numpy as np
import numpy.typing as npt

from privcirnet.he.bfv.interface import Ciphertext, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.layer_circuit import LayerCircuit, Pair
from privcirnet.he.bfv.noise import noise_bits, special_prime_lack
from privcirnet.he.bfv.parameters import Parameters
from privcirnet.he.layers import spectral_pieces
from privcirnet.he.layers.bsgs import BsgsPlan, Product
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.layers.spectral_pieces import Piece, PieceLayout, place
from privcirnet.he.ring import cyclic, modular
from privcirnet.he.ring.modular import Integers, Residues, SourceIndices

PlacedPieces = Sequence[PieceLayout]


class SlotIndices(NamedTuple):
    """Source of every value of a layer, at both ends of an exchange.

    Attributes:
        cells: sources of the input's cells in x, (groups, p, tiles, b, N1, N2).
        slots: sources of the sent slots in the spectra of those, (ciphertexts_in, n).
        terms: sources of the output's spectra in the slots that come back, (terms, groups, q, tiles, b, N1, N2).
        last: sources of the last term that each has.
        outputs: sources of the output in its cells, (K, H', W').
    """

    cells: SourceIndices
    slots: SourceIndices
    terms: SourceIndices
    last: SourceIndices
    outputs: SourceIndices


def encode_input(layout: SpectralLayout, places: SlotIndices, x: Residues, t: int) -> Residues:
    """Return a share of the layer's input as slots: shape (ciphertexts_in, n); ``x``: residues, shape (C, H, W)."""
    return cyclic.gather(_transformed(layout, x, places.cells[None], t), places.slots)


def weight_spectrum(layout: SpectralLayout, rows: npt.NDArray[np.integer], t: int) -> Residues:
    """Return the spectra of all circulant blocks: each distinct slot value of the layer's plaintexts, once.

    Args:
        rows: integer weights in stored form, the first row of each block row: ``shape.weight_shape(b)``.

    Returns:
        residues, shape (groups, q, p, b, S1, S2), S = spectral extent: b times fewer numbers than at b = 1.
    """
    b, shape = layout.block_size, layout.shape
    channel_blocks = layout.channel_blocks
    extents, blocks = layout.spectral_extent, (shape.groups, layout.blocks_out)
    first_row = rows.astype(np.int64).reshape(*blocks, channel_blocks, b, *shape.kernels)
    first_column = first_row[:, :, :, -np.arange(b) % b]
    kernel = np.zeros((*blocks, len(layout.phases), channel_blocks, b, *extents), dtype=np.int64)
    for index, (row_phase, column_phase) in enumerate(layout.phases):
        for r, a in shape.rows.taps[row_phase]:
            for s, c in shape.columns.taps[column_phase]:
                kernel[:, :, index, ..., -a % extents[0], -c % extents[1]] += first_column[..., r, s]
    return _forward(layout, modular.residues(kernel.reshape(layout.spectrum_shape), t), t)


def diagonal_slots(layout: SpectralLayout, placed: PieceLayout, spectrum: Residues, product: Product) -> Residues:
    """Return the plaintext of one product of a piece: slots, shape (n,)."""
    from privcirnet.he.layers.kernels.diagonals import diagonal  # it loads Numba

    plan, turn = placed.plan, product.giant * placed.plan.baby_steps
    lane, *blocks = plan.blocks_of(product.target, turn + product.baby, product.source)
    slots = np.empty((2, plan.lanes, placed.lane_slots // 2), dtype=np.uint64)
    groups = placed.first_group, placed.first_group + placed.piece.groups
    cells = placed.piece.tiles, layout.block_size, *layout.extent
    diagonal(slots, spectrum, np.stack([(lane + turn) % plan.lanes, *blocks]), groups, cells)
    return slots.reshape(-1)


def decode_output(layout: SpectralLayout, places: SlotIndices, slots: Residues, t: int) -> Residues:
    """Return a share of the layer's output from a share of the slots that were sent: residues, shape (K, H', W').

    Args:
        slots: residues, shape (ciphertexts_out, n).
    """
    return cyclic.gather(_transformed(layout, slots, places.terms, t, inverse=True), places.outputs)


def _forward(layout: SpectralLayout, cells: Residues, t: int) -> Residues:
    for axis in layout.transformed_axes:
        cells = cyclic.cyclic(cells, axis, t)
    return cells


def _transformed(
    layout: SpectralLayout, source: Residues, numbers: SourceIndices, t: int, *, inverse: bool = False
) -> Residues:
    """Gather cells from their places, (terms, ..., b, N1, N2), and transform them: (cells, b N1 N2)."""
    shape = layout.block_size, *layout.extent
    axes = [3 + axis for axis in layout.transformed_axes if shape[axis] > 1]
    return cyclic.cyclic_cells(source, numbers.reshape(len(numbers), -1, layout.cell), shape, axes, t, inverse=inverse)


def places(layout: SpectralLayout, pieces: PlacedPieces) -> SlotIndices:
    """Return the places of a layer's values."""
    cells = _cells_of_input(layout, _numbered(layout.shape.input_shape))
    spectra = _numbered(cells.shape)
    slots = np.concatenate([_input_slots(spectra, placed) for placed in pieces])
    terms = _gathered_terms(layout, pieces, slots.shape[1])
    last = terms[0]
    for term in terms[1:]:
        last = np.where(term, term, last)
    outputs = _outputs_of_cells(layout, _numbered(_output_cells(layout)))
    return SlotIndices(_compact(cells), _compact(slots), _compact(np.stack(terms)), _compact(last), _compact(outputs))


def _numbered(shape: tuple[int, ...]) -> Residues:
    return np.arange(1, np.prod(shape) + 1, dtype=np.uint64).reshape(shape)


def _compact(numbers: Residues) -> SourceIndices:
    return np.ascontiguousarray(numbers, dtype=np.int32)


def _cells_of_input(layout: SpectralLayout, x: Residues) -> Residues:
    """Return phase images of (C, H, W) in tiles (groups, p, tiles, b, N1, N2), zero where a place has no value."""
    shape = layout.shape
    channels, height, width = layout.padded.input_shape
    down, right = shape.strides
    padded = np.zeros((channels, height + down, width + right), dtype=np.uint64)
    padded[: x.shape[0], :height, :width] = x
    images = [  # a position beyond the map reads a zero
        padded[:, i + down * layout.rows.sources(i)[:, None, :, None], j + right * layout.columns.sources(j)[:, None]]
        for i, j in layout.phases
    ]
    blocks = np.stack(images).reshape(
        len(images), shape.groups, -1, layout.block_size, layout.rows.count, layout.columns.count, *layout.extent
    )
    # (phases, groups, C/b, b, a, c, N1, N2) -> (groups, phases, C/b, a, c, b, N1, N2)
    ordered = blocks.transpose(1, 0, 2, 4, 5, 3, 6, 7)
    return ordered.reshape(shape.groups, layout.blocks_in, layout.tiles, layout.block_size, *layout.extent)


def _input_slots(spectrum: Residues, placed: PieceLayout) -> Residues:
    values = _lanes_of_cells(spectrum, placed)
    padded = np.zeros((values.shape[0] + 1, placed.lane_slots), dtype=np.uint64)
    padded[:-1, : values.shape[1]] = values
    return lanes_to_slots(padded[placed.plan.input_blocks()])


def _lanes_of_cells(cells: Residues, placed: PieceLayout) -> Residues:
    """Return a piece's lanes (blocks, gamma tau b N1 N2) of cells (groups, blocks, tiles, b, N1, N2)."""
    lanes = cells[placed.groups, :, placed.tiles].swapaxes(0, 1)
    return lanes.reshape(lanes.shape[0], -1)


def _gathered_terms(layout: SpectralLayout, pieces: PlacedPieces, ring_degree: int) -> list[Residues]:
    """Return the terms of the output's cells, each numbered by its slot among all ciphertexts that come back."""
    slots = _numbered((sum(placed.plan.ciphertexts_out for placed in pieces), ring_degree))
    count = max(len(block) for placed in pieces for block in placed.plan.output_terms)
    terms = [np.empty(_output_cells(layout), dtype=np.uint64) for _ in range(count)]
    for placed in pieces:
        lanes = slots_to_lanes(slots[placed.outputs], placed.plan.lanes)
        for number, cells in enumerate(terms):
            _set_cells(cells, placed, _term(placed.plan, lanes, number))
    return terms


def _term(plan: BsgsPlan, lanes: Residues, number: int) -> Residues:
    """Return the lane (ciphertexts, G, L') of each output block's term of that number, (q, L'); zeros without one."""
    values = np.zeros((plan.blocks_out, lanes.shape[-1]), dtype=np.uint64)
    for block, terms in enumerate(plan.output_terms):
        if number < len(terms):
            values[block] = lanes[terms[number]]
    return values


def _set_cells(cells: Residues, placed: PieceLayout, lanes: Residues) -> None:
    """Undo :func:`_lanes_of_cells`, from lanes with unused slots at their end."""
    view = cells[placed.groups, :, placed.tiles]
    length = view.size // view.shape[1]
    ordered = view.swapaxes(0, 1).shape
    view[...] = lanes[:, :length].reshape(ordered).swapaxes(0, 1)


def _output_cells(layout: SpectralLayout) -> tuple[int, ...]:
    return layout.shape.groups, layout.blocks_out, layout.tiles, layout.block_size, *layout.extent


def _outputs_of_cells(layout: SpectralLayout, cells: Residues) -> Residues:
    """Return the maps (K, H', W') of cells (groups, q, a c, b, N1, N2)."""
    (a, n1), (c, n2) = ((axis.count, axis.length) for axis in (layout.rows, layout.columns))
    split = cells.reshape(-1, a, c, layout.block_size, n1, n2)
    maps = split.transpose(0, 3, 1, 4, 2, 5).reshape(layout.padded.out_channels, a * n1, c * n2)
    return maps[: layout.shape.out_channels, layout.rows.output_places[:, None], layout.columns.output_places]


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
        return spectral_pieces.spectral_excess(self.layout, self.pieces)

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
        return encode_input(self.layout, self.places, x, t)

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
        return weight_spectrum(self.layout, rows, t)

    def encode_spectrum(self, spectrum: Residues, engine: ServerEngine) -> EncodedWeights:
        return encode_weights(self, spectrum, engine)

    def plaintexts(self, spectrum: Residues, t: int) -> Iterator[tuple[tuple[int, ...], Residues]]:
        for index, placed in enumerate(self.placed):
            for p in placed.plan.products:
                slots = diagonal_slots(self.layout, placed, spectrum, p)
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
        return decode_output(self.layout, self.places, slots, t)


def encode_weights(
    layer: SpectralLayer, spectrum: Residues, engine: ServerEngine, *, keep: bool = True
) -> EncodedWeights:
    """Return every diagonal of a layer, encoded."""
    diagonals = Diagonals(layer, spectrum)
    return engine.encode_weights(layer.circuit, diagonals, keep=keep, present=diagonals.present if keep else None)


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

    @property
    def present(self) -> list[bool]:
        """Whether each plaintext has a value that is not zero."""
        filled = self.spectrum.any(axis=(3, 4, 5))
        if filled.all():
            return [True] * len(self)
        return [bool(self[weight].any()) for weight in range(len(self))]

    def __getitem__(self, weight: int) -> Residues:
        placed, product = self.layer.distinct[weight]
        return diagonal_slots(self.layer.layout, placed, self.spectrum, product)


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


@dataclass(frozen=True)
class UnplannedLayer:
    """The place of a layer that is still to be planned; any other member of a layer is an error."""

    shape: LinearShape
    block_size: int
    encoding = "unplanned"

    def __post_init__(self) -> None:
        self.shape.check_block_size(self.block_size)

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(f"a layer that is not planned yet has no {name}")


def unplanned(shape: LinearShape, block_size: int) -> Layer:
    """Return the placeholder in a linear node until its layer is planned."""
    return cast(Layer, UnplannedLayer(shape, block_size))


def unplanned_factor(shape: LinearShape) -> SpectralLayer:
    """Return the placeholder in a product of two values until its layers are planned, which are spectral with b = 1."""
    return cast(SpectralLayer, UnplannedLayer(shape, 1))
