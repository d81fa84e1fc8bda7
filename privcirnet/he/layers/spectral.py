"""CirEncode: spectral encoding of block-circulant GEMMs and convolutions (PrivCirNet, section 3.2, theorems 1 and 2).

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
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privcirnet.he.layers.bsgs import BsgsPlan, Product
from privcirnet.he.layers.spectral_layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.layers.spectral_pieces import PieceLayout
from privcirnet.he.ring import cyclic, modular
from privcirnet.he.ring.modular import Residues, SourceIndices

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
    first_row = rows.astype(np.int64).reshape(*blocks, channel_blocks, b, shape.kernel, shape.kernel)
    first_column = first_row[:, :, :, -np.arange(b) % b]
    kernel = np.zeros((*blocks, len(layout.phases), channel_blocks, b, *extents), dtype=np.int64)
    for index, (row_phase, column_phase) in enumerate(layout.phases):
        for r, a in shape.rows.taps[row_phase]:
            for s, c in shape.columns.taps[column_phase]:
                kernel[:, :, index, ..., -a % extents[0], -c % extents[1]] += first_column[..., r, s]
    return _forward(layout, modular.residues(kernel.reshape(layout.spectrum_shape), t), t)


def diagonal_slots(layout: SpectralLayout, placed: PieceLayout, spectrum: Residues, product: Product) -> Residues:
    """Return the plaintext of one product of a piece: slots, shape (n,)."""
    plan = placed.plan
    turn = product.giant * plan.baby_steps
    lane, out_block, in_block = plan.blocks_of(product.target, turn + product.baby, product.source)
    values = spectrum[placed.groups, out_block, in_block].swapaxes(0, 1)[:, :, None]
    cells = (placed.piece.groups, placed.piece.tiles, layout.block_size)
    full = np.broadcast_to(values, (lane.size, *cells, *layout.extent)).reshape(lane.size, -1)
    lanes = np.zeros((1, plan.lanes, placed.lane_slots), dtype=np.uint64)
    lanes[0, (lane + turn) % plan.lanes, : full.shape[1]] = full
    return lanes_to_slots(lanes)[0]


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
    terms = _terms(layout, pieces, slots.shape[1])
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
    padded = np.zeros((channels, height + shape.stride, width + shape.stride), dtype=np.uint64)
    padded[: x.shape[0], :height, :width] = x
    images = [
        _phase_image(padded, shape.stride, (i, layout.rows.sources(i)), (j, layout.columns.sources(j)))
        for i, j in layout.phases
    ]
    blocks = np.stack(images).reshape(
        len(images), shape.groups, -1, layout.block_size, layout.rows.count, layout.columns.count, *layout.extent
    )
    # (phases, groups, C/b, b, a, c, N1, N2) -> (groups, phases, C/b, a, c, b, N1, N2)
    ordered = blocks.transpose(1, 0, 2, 4, 5, 3, 6, 7)
    return ordered.reshape(shape.groups, layout.blocks_in, layout.tiles, layout.block_size, *layout.extent)


def _phase_image(
    padded: Residues, stride: int, rows: tuple[int, npt.NDArray[np.int64]], columns: tuple[int, npt.NDArray[np.int64]]
) -> Residues:
    """Return one phase image in tiles: (C, a, c, N1, N2). A position beyond the image reads the zero padding."""
    row = rows[0] + stride * rows[1][:, None, :, None]
    column = columns[0] + stride * columns[1][None, :, None, :]
    return padded[:, row, column]


def _input_slots(spectrum: Residues, placed: PieceLayout) -> Residues:
    values = _lanes_of_cells(spectrum, placed)
    padded = np.zeros((values.shape[0] + 1, placed.lane_slots), dtype=np.uint64)
    padded[:-1, : values.shape[1]] = values
    return lanes_to_slots(padded[placed.plan.input_blocks()])


def _lanes_of_cells(cells: Residues, placed: PieceLayout) -> Residues:
    """Return a piece's lanes (blocks, gamma tau b N1 N2) of cells (groups, blocks, tiles, b, N1, N2)."""
    lanes = cells[placed.groups, :, placed.tiles].swapaxes(0, 1)
    return lanes.reshape(lanes.shape[0], -1)


def _terms(layout: SpectralLayout, pieces: PlacedPieces, ring_degree: int) -> list[Residues]:
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
