"""CirEncode: spectral encoding of block-circulant GEMMs and convolutions (PrivCirNet, section 3.2, theorems 1 and 2).

Maths: with W cut into circulant blocks, block[i, j] = w[(i - j) mod b], and X a map, W X is a sum over input blocks
of cyclic convolutions along the channel-in-block axis (circulant) and along the image axes (the kernel). A transform
mod t along those axes turns each of them into slot-wise products, the weight's spectrum being constant along axes
that are not transformed. b = 1 with a 1 x 1 kernel is Bolt's GEMM, b = 1 with a larger kernel NeuJeans' convolution.

Cost: the client's transforms are in clear; what is left under encryption is a (K/b) x (phases C/b) matrix over lanes.

Departure from the paper: transforms have exactly the length that is needed, not the next power of two (he.md 2.1).
"""

import numpy as np
import numpy.typing as npt

from privcirnet.he import modular, ntt
from privcirnet.he.layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.modular import Residues
from privcirnet.he.plan import LinearPlan, Product


def encode_input(layout: SpectralLayout, plan: LinearPlan, x: Residues, t: int) -> Residues:
    """A share of the layer's input as slots.

    Args:
        layout: the layer's layout.
        plan: the layer's plan.
        x: residues, shape (C, H, W).
        t: plain modulus.

    Returns:
        slots, shape (plan.ciphertexts_in, n).
    """
    spectrum = _forward(layout, _phase_images(layout, x), t)
    blocks = spectrum.reshape(layout.blocks_in, layout.lane_length)
    padded = np.zeros((layout.blocks_in + 1, layout.lane_slots), dtype=np.uint64)
    padded[:-1, : layout.lane_length] = blocks
    return lanes_to_slots(padded[plan.input_blocks()])


def weight_spectrum(layout: SpectralLayout, rows: npt.NDArray[np.integer], t: int) -> Residues:
    """Spectra of all circulant blocks: each distinct slot value of the layer's plaintexts, once.

    Args:
        layout: the layer's layout.
        rows: integer weights in stored form, the first row of each block row: shape (K/b, C, R, R).
        t: plain modulus.

    Returns:
        residues, shape (q, p, b, S1, S2), S = spectral extent: b times fewer numbers than at b = 1.
    """
    b, shape = layout.block_size, layout.shape
    q, channel_blocks = layout.blocks_out, shape.in_channels // b
    extents = layout.spectral_extent
    first_row = rows.astype(np.int64).reshape(q, channel_blocks, b, shape.kernel, shape.kernel)
    first_column = first_row[:, :, -np.arange(b) % b]
    kernel = np.zeros((q, len(layout.phases), channel_blocks, b, *extents), dtype=np.int64)
    for index, (row_phase, column_phase) in enumerate(layout.phases):
        for r, a in shape.rows.taps[row_phase]:
            for s, c in shape.columns.taps[column_phase]:
                kernel[:, index, :, :, -a % extents[0], -c % extents[1]] += first_column[..., r, s]
    return _forward(layout, modular.residues(kernel.reshape(q, layout.blocks_in, b, *extents), t), t)


def diagonal_slots(layout: SpectralLayout, plan: LinearPlan, spectrum: Residues, product: Product) -> Residues:
    """The plaintext of one product.

    Returns:
        slots, shape (n,).
    """
    diagonal = product.giant * plan.baby_steps + product.baby
    lane, out_block, in_block = plan.blocks_of(product.target, diagonal, product.source)
    lane = (lane + product.giant * plan.baby_steps) % plan.lanes
    values = spectrum[out_block, in_block]
    full = np.broadcast_to(values, (lane.size, layout.block_size, *layout.extent))
    lanes = np.zeros((1, plan.lanes, layout.lane_slots), dtype=np.uint64)
    lanes[0, lane, : layout.lane_length] = full.reshape(lane.size, layout.lane_length)
    return lanes_to_slots(lanes)[0]


def decode_output(layout: SpectralLayout, plan: LinearPlan, slots: Residues, t: int) -> Residues:
    """A share of the layer's output from a share of the slots that were sent.

    Args:
        layout: the layer's layout.
        plan: the layer's plan.
        slots: residues, shape (plan.ciphertexts_out, n).
        t: plain modulus.

    Returns:
        residues, shape (K, H', W').
    """
    lanes = slots_to_lanes(slots, plan.lanes)
    spectrum = np.stack([_sum_lanes(lanes, terms, t) for terms in plan.output_terms])
    blocks = spectrum[:, : layout.lane_length].reshape(layout.blocks_out, layout.block_size, *layout.extent)
    maps = _inverse(layout, blocks, t)
    _, height, width = layout.shape.output_shape
    return maps.reshape(layout.shape.out_channels, *layout.extent)[:, :height, :width]


def encode_mask(layout: SpectralLayout, plan: LinearPlan, mask: Residues, uniform: Residues, t: int) -> Residues:
    """Slots of a mask whose decoded output is ``mask`` and which are uniform otherwise.

    Each output block is the sum of one or more lanes; all but the last keep their uniform values and the last makes up
    the difference, so that every single slot stays uniform if ``mask`` is.

    Args:
        layout: the layer's layout.
        plan: the layer's plan.
        mask: residues, shape (K, N1, N2): the wanted positions and the padding's.
        uniform: uniform residues, shape (plan.ciphertexts_out, n).
        t: plain modulus.

    Returns:
        slots, shape (plan.ciphertexts_out, n).
    """
    blocks = mask.reshape(layout.blocks_out, layout.block_size, *layout.extent)
    spectrum = _forward(layout, blocks, t).reshape(layout.blocks_out, layout.lane_length)
    lanes = slots_to_lanes(uniform.copy(), plan.lanes)
    for block, terms in enumerate(plan.output_terms):
        ciphertext, lane = terms[-1]
        others = _sum_lanes(lanes, terms[:-1], t)[: layout.lane_length]
        lanes[ciphertext, lane, : layout.lane_length] = modular.subtract(spectrum[block], others, t)
    return lanes_to_slots(lanes)


def _phase_images(layout: SpectralLayout, x: Residues) -> Residues:
    """(C, H, W) -> zero-padded phase images (p, b, N1, N2)."""
    shape = layout.shape
    images = np.zeros((len(layout.phases), shape.in_channels, *layout.extent), dtype=np.uint64)
    for index, (i, j) in enumerate(layout.phases):
        height, width = shape.rows.read_size(i), shape.columns.read_size(j)
        part = x[:, i :: shape.stride, j :: shape.stride][:, :height, :width]
        images[index, :, :height, :width] = part
    return images.reshape(layout.blocks_in, layout.block_size, *layout.extent)


def _forward(layout: SpectralLayout, blocks: Residues, t: int) -> Residues:
    for axis in _transformed_axes(layout):
        blocks = ntt.cyclic(blocks, axis, t)
    return blocks


def _inverse(layout: SpectralLayout, blocks: Residues, t: int) -> Residues:
    for axis in _transformed_axes(layout):
        blocks = ntt.cyclic(blocks, axis, t, inverse=True)
    return blocks


def _transformed_axes(layout: SpectralLayout) -> list[int]:
    """Axes of (..., b, N1, N2) that are transformed."""
    image_axes = zip((-2, -1), (layout.shape.rows, layout.shape.columns), strict=True)
    return [-3, *(number for number, axis in image_axes if axis.transformed)]


def _sum_lanes(lanes: Residues, terms: tuple[tuple[int, int], ...], t: int) -> Residues:
    total = np.zeros(lanes.shape[-1], dtype=np.uint64)
    for ciphertext, lane in terms:
        total = modular.add(total, lanes[ciphertext, lane], t)
    return total
