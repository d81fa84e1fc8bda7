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

import numpy as np
import numpy.typing as npt

from privcirnet.he.encodings.bsgs import Product
from privcirnet.he.encodings.layout import SpectralLayout, lanes_to_slots
from privcirnet.he.encodings.pieces import PlacedPiece
from privcirnet.he.encodings.places import Places
from privcirnet.he.ring import modular, ntt
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.ntt import Numbers


def encode_input(layout: SpectralLayout, places: Places, x: Residues, t: int) -> Residues:
    """A share of the layer's input as slots.

    Args:
        layout: the layer's layout.
        places: of the layer's values.
        x: residues, shape (C, H, W).
        t: plain modulus.

    Returns:
        slots, shape (ciphertexts_in, n).
    """
    return ntt.gather(_transformed(layout, x, places.cells[None], t), places.slots)


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


def decode_output(layout: SpectralLayout, places: Places, slots: Residues, t: int) -> Residues:
    """A share of the layer's output from a share of the slots that were sent.

    Args:
        layout: the layer's layout.
        places: of the layer's values.
        slots: residues, shape (ciphertexts_out, n).
        t: plain modulus.

    Returns:
        residues, shape (K, H', W').
    """
    return ntt.gather(_transformed(layout, slots, places.terms, t, inverse=True), places.outputs)


def encode_mask(layout: SpectralLayout, places: Places, wanted: Residues, uniform: Residues, t: int) -> Residues:
    """Slots of a mask that decodes to ``wanted`` and is uniform otherwise: every single one is if ``wanted`` is.

    What ``uniform`` decodes to is made up for in the last term of each output block; the other terms, the padding of
    cells and unused slots stay as they are.

    Args:
        layout: the layer's layout.
        places: of the layer's values.
        wanted: residues, shape (K, H', W').
        uniform: uniform residues, shape (ciphertexts_out, n).
        t: plain modulus.

    Returns:
        slots, shape (ciphertexts_out, n).
    """
    missing = modular.subtract(wanted, decode_output(layout, places, uniform, t), t)
    cells = np.zeros(places.last.shape, dtype=np.uint64)
    cells.reshape(-1)[places.outputs - 1] = missing
    slots, last = uniform.copy(), places.last - 1
    slots.reshape(-1)[last] = modular.add(slots.reshape(-1)[last], _forward(layout, cells, t), t)
    return slots


def _forward(layout: SpectralLayout, cells: Residues, t: int) -> Residues:
    for axis in layout.transformed_axes:
        cells = ntt.cyclic(cells, axis, t)
    return cells


def _transformed(
    layout: SpectralLayout, source: Residues, numbers: Numbers, t: int, *, inverse: bool = False
) -> Residues:
    """Cells put together from their places, (terms, ..., b, N1, N2), and transformed: (cells, b N1 N2)."""
    shape = layout.block_size, *layout.extent
    axes = [3 + axis for axis in layout.transformed_axes if shape[axis] > 1]
    return ntt.cyclic_cells(source, numbers.reshape(len(numbers), -1, layout.cell), shape, axes, t, inverse=inverse)
