"""CirEncode: spectral encoding of block-circulant GEMMs and convolutions (PrivCirNet, section 3.2, theorems 1 and 2).

Maths: with W cut into circulant blocks, block[i, j] = w[(i - j) mod b], and X a map, W X is a sum over input blocks
of cyclic convolutions along the channel-in-block axis (circulant) and along the image axes (the kernel). A transform
mod t along those axes turns each of them into slot-wise products, the weight's spectrum being constant along axes
that are not transformed. b = 1 with a 1 x 1 kernel is Bolt's GEMM; b = 1 with a larger kernel is NeuJeans' convolution
(its CinS encoding, in BFV) and ENSEI's convolution in the frequency domain; a depthwise convolution is one product.

Cost: the client's transforms are in clear; what is left under encryption is, for each channel group and tile, a
(K/b) x (phases C/b) matrix over lanes.

Departure from the papers: transforms have exactly the length that is needed, not the next power of two (he.md 2.1).
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from privcirnet.he import modular, ntt
from privcirnet.he.layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.modular import Residues
from privcirnet.he.pieces import PlacedPiece
from privcirnet.he.plan import LinearPlan, Product

Pieces = Sequence[PlacedPiece]


def encode_input(layout: SpectralLayout, pieces: Pieces, x: Residues, t: int) -> Residues:
    """A share of the layer's input as slots.

    Args:
        layout: the layer's layout.
        pieces: the layer's pieces.
        x: residues, shape (C, H, W).
        t: plain modulus.

    Returns:
        slots, shape (ciphertexts_in, n).
    """
    spectrum = _forward(layout, _cells_of_input(layout, x), t)
    return np.concatenate([_input_slots(spectrum, placed) for placed in pieces])


def weight_spectrum(layout: SpectralLayout, rows: npt.NDArray[np.integer], t: int) -> Residues:
    """Spectra of all circulant blocks: each distinct slot value of the layer's plaintexts, once.

    Args:
        layout: the layer's layout.
        rows: integer weights in stored form, the first row of each block row: shape (K/b, C/groups, R, R).
        t: plain modulus.

    Returns:
        residues, shape (groups, q, p, b, S1, S2), S = spectral extent: b times fewer numbers than at b = 1.
    """
    b, shape = layout.block_size, layout.shape
    channel_blocks = shape.in_channels // (shape.groups * b)
    extents, blocks = layout.spectral_extent, (shape.groups, layout.blocks_out)
    first_row = rows.astype(np.int64).reshape(*blocks, channel_blocks, b, shape.kernel, shape.kernel)
    first_column = first_row[:, :, :, -np.arange(b) % b]
    kernel = np.zeros((*blocks, len(layout.phases), channel_blocks, b, *extents), dtype=np.int64)
    for index, (row_phase, column_phase) in enumerate(layout.phases):
        for r, a in shape.rows.taps[row_phase]:
            for s, c in shape.columns.taps[column_phase]:
                kernel[:, :, index, ..., -a % extents[0], -c % extents[1]] += first_column[..., r, s]
    return _forward(layout, modular.residues(kernel.reshape(layout.spectrum_shape), t), t)


def diagonal_slots(layout: SpectralLayout, placed: PlacedPiece, spectrum: Residues, product: Product) -> Residues:
    """The plaintext of one product of a piece.

    Returns:
        slots, shape (n,).
    """
    plan = placed.plan
    turn = product.giant * plan.baby_steps
    lane, out_block, in_block = plan.blocks_of(product.target, turn + product.baby, product.source)
    values = spectrum[placed.groups, out_block, in_block].swapaxes(0, 1)[:, :, None]
    cells = (placed.piece.groups, placed.piece.tiles, layout.block_size)
    full = np.broadcast_to(values, (lane.size, *cells, *layout.extent)).reshape(lane.size, -1)
    lanes = np.zeros((1, plan.lanes, placed.lane_slots), dtype=np.uint64)
    lanes[0, (lane + turn) % plan.lanes, : full.shape[1]] = full
    return lanes_to_slots(lanes)[0]


def decode_output(layout: SpectralLayout, pieces: Pieces, slots: Residues, t: int) -> Residues:
    """A share of the layer's output from a share of the slots that were sent.

    Args:
        layout: the layer's layout.
        pieces: the layer's pieces.
        slots: residues, shape (ciphertexts_out, n).
        t: plain modulus.

    Returns:
        residues, shape (K, H', W').
    """
    cells = _empty_output(layout)
    for placed in pieces:
        lanes = slots_to_lanes(slots[placed.outputs], placed.plan.lanes)
        _set_cells(cells, placed, _sum_terms(placed.plan, lanes, t))
    places = _places_of_cells(layout, _inverse(layout, cells, t))
    return places[:, layout.rows.outputs[:, None], layout.columns.outputs]


def encode_mask(layout: SpectralLayout, pieces: Pieces, wanted: Residues, uniform: Residues, t: int) -> Residues:
    """Slots of a mask that decodes to ``wanted`` and is uniform otherwise.

    Each output block is the sum of one or more lanes; all but the last keep their uniform values, and the last makes up
    the difference. What it stood for before, as values, stays at the places that are no output (the padding), so that
    every single slot is uniform if ``wanted`` is.

    Args:
        layout: the layer's layout.
        pieces: the layer's pieces.
        wanted: residues, shape (K, H', W').
        uniform: uniform residues, shape (ciphertexts_out, n).
        t: plain modulus.

    Returns:
        slots, shape (ciphertexts_out, n).
    """
    cells = _empty_output(layout)
    lanes = [slots_to_lanes(uniform[placed.outputs].copy(), placed.plan.lanes) for placed in pieces]
    for placed, own in zip(pieces, lanes, strict=True):
        _set_cells(cells, placed, own[_last_terms(placed.plan)])
    places = _places_of_cells(layout, cells)
    places[:, layout.rows.outputs[:, None], layout.columns.outputs] = wanted
    spectrum = _forward(layout, _cells_of_places(layout, places), t)
    for placed, own in zip(pieces, lanes, strict=True):
        values = _lanes_of_cells(spectrum, placed)
        others = _sum_terms(placed.plan, own, t, but_last=True)[:, : values.shape[1]]
        own[(*_last_terms(placed.plan), slice(values.shape[1]))] = modular.subtract(values, others, t)
    return np.concatenate([lanes_to_slots(own) for own in lanes])


def _cells_of_input(layout: SpectralLayout, x: Residues) -> Residues:
    """(C, H, W) -> phase images in tiles (groups, p, tiles, b, N1, N2), zero where a place has no value."""
    shape = layout.shape
    padded = np.zeros((x.shape[0], x.shape[1] + shape.stride, x.shape[2] + shape.stride), dtype=np.uint64)
    padded[:, : x.shape[1], : x.shape[2]] = x
    images = [
        _gather(padded, shape.stride, (i, layout.rows.sources(i)), (j, layout.columns.sources(j)))
        for i, j in layout.phases
    ]
    blocks = np.stack(images).reshape(
        len(images), shape.groups, -1, layout.block_size, layout.rows.count, layout.columns.count, *layout.extent
    )
    # (phases, groups, C/b, b, a, c, N1, N2) -> (groups, phases, C/b, a, c, b, N1, N2)
    ordered = blocks.transpose(1, 0, 2, 4, 5, 3, 6, 7)
    return ordered.reshape(shape.groups, layout.blocks_in, layout.tiles, layout.block_size, *layout.extent)


def _gather(
    padded: Residues, stride: int, rows: tuple[int, npt.NDArray[np.int64]], columns: tuple[int, npt.NDArray[np.int64]]
) -> Residues:
    """One phase image in tiles: (C, a, c, N1, N2). A position beyond the image reads the padding, which is zero."""
    row = rows[0] + stride * rows[1][:, None, :, None]
    column = columns[0] + stride * columns[1][None, :, None, :]
    return padded[:, row, column]


def _input_slots(spectrum: Residues, placed: PlacedPiece) -> Residues:
    values = _lanes_of_cells(spectrum, placed)
    padded = np.zeros((values.shape[0] + 1, placed.lane_slots), dtype=np.uint64)
    padded[:-1, : values.shape[1]] = values
    return lanes_to_slots(padded[placed.plan.input_blocks()])


def _lanes_of_cells(cells: Residues, placed: PlacedPiece) -> Residues:
    """(groups, blocks, tiles, b, N1, N2) -> a piece's lanes (blocks, gamma tau b N1 N2)."""
    own = cells[placed.groups, :, placed.tiles].swapaxes(0, 1)
    return own.reshape(own.shape[0], -1)


def _set_cells(cells: Residues, placed: PlacedPiece, lanes: Residues) -> None:
    """Inverse of :func:`_lanes_of_cells`, from lanes with unused slots at their end."""
    own = cells[placed.groups, :, placed.tiles]
    length = own.size // own.shape[1]
    ordered = own.swapaxes(0, 1).shape
    own[...] = lanes[:, :length].reshape(ordered).swapaxes(0, 1)


def _empty_output(layout: SpectralLayout) -> Residues:
    sizes = layout.shape.groups, layout.blocks_out, layout.tiles, layout.block_size
    return np.empty((*sizes, *layout.extent), dtype=np.uint64)


def _places_of_cells(layout: SpectralLayout, cells: Residues) -> Residues:
    """(groups, q, a c, b, N1, N2) -> (K, a N1, c N2)."""
    (a, n1), (c, n2) = ((axis.count, axis.length) for axis in (layout.rows, layout.columns))
    split = cells.reshape(-1, a, c, layout.block_size, n1, n2)
    return split.transpose(0, 3, 1, 4, 2, 5).reshape(layout.shape.out_channels, a * n1, c * n2)


def _cells_of_places(layout: SpectralLayout, places: Residues) -> Residues:
    """Inverse of :func:`_places_of_cells`."""
    (a, n1), (c, n2) = ((axis.count, axis.length) for axis in (layout.rows, layout.columns))
    split = places.reshape(-1, layout.block_size, a, n1, c, n2).transpose(0, 2, 4, 1, 3, 5)
    return split.reshape(layout.shape.groups, layout.blocks_out, a * c, layout.block_size, n1, n2)


def _forward(layout: SpectralLayout, cells: Residues, t: int) -> Residues:
    for axis in layout.transformed_axes:
        cells = ntt.cyclic(cells, axis, t)
    return cells


def _inverse(layout: SpectralLayout, cells: Residues, t: int) -> Residues:
    for axis in layout.transformed_axes:
        cells = ntt.cyclic(cells, axis, t, inverse=True)
    return cells


def _last_terms(plan: LinearPlan) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """(ciphertexts, lanes), each (q,): the last place of each output block."""
    last = np.array([terms[-1] for terms in plan.output_terms])
    return last[:, 0], last[:, 1]


def _sum_terms(plan: LinearPlan, lanes: Residues, t: int, *, but_last: bool = False) -> Residues:
    """(ciphertexts, G, L') -> (q, L'): each output block's sum over its places, or over all but the last of them."""
    total = np.zeros((plan.blocks_out, lanes.shape[-1]), dtype=np.uint64)
    terms = [block[: len(block) - but_last] for block in plan.output_terms]
    for number in range(max(map(len, terms))):
        blocks = [block for block, places in enumerate(terms) if number < len(places)]
        places = np.array([terms[block][number] for block in blocks])
        total[blocks] = modular.add(total[blocks], lanes[places[:, 0], places[:, 1]], t)
    return total
