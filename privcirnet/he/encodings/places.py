"""Where every value of a spectral layer goes and comes from, as numbers of places, so that moving is one gather.

Each array has the shape of what is made and says for every value which one of the flat source it is, counted from 1;
0 stands for a zero. They come from the layout's functions, applied once to the numbers of what they arrange.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from privcirnet.he.encodings.bsgs import LinearPlan
from privcirnet.he.encodings.layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.encodings.pieces import PlacedPiece
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.ntt import Numbers

Pieces = Sequence[PlacedPiece]


class Places(NamedTuple):
    """Of both ends of an exchange.

    Attributes:
        cells: the input's cells from x, (groups, p, tiles, b, N1, N2).
        slots: what is sent from the spectra of those, (ciphertexts_in, n).
        terms: the output's spectra from what comes back, (terms, groups, q, tiles, b, N1, N2).
        last: of these the last that each has.
        outputs: the output from its cells, (K, H', W').
    """

    cells: Numbers
    slots: Numbers
    terms: Numbers
    last: Numbers
    outputs: Numbers


def places(layout: SpectralLayout, pieces: Pieces) -> Places:
    """Places of a layer's values."""
    cells = _cells_of_input(layout, _numbered(layout.shape.input_shape))
    spectra = _numbered(cells.shape)
    slots = np.concatenate([_input_slots(spectra, placed) for placed in pieces])
    terms = _terms(layout, pieces, slots.shape[1])
    last = terms[0]
    for term in terms[1:]:
        last = np.where(term, term, last)
    outputs = _outputs_of_cells(layout, _numbered(_output_cells(layout)))
    return Places(_compact(cells), _compact(slots), _compact(np.stack(terms)), _compact(last), _compact(outputs))


def _numbered(shape: tuple[int, ...]) -> Residues:
    return np.arange(1, np.prod(shape) + 1, dtype=np.uint64).reshape(shape)


def _compact(numbers: Residues) -> Numbers:
    return np.ascontiguousarray(numbers, dtype=np.int32)


def _cells_of_input(layout: SpectralLayout, x: Residues) -> Residues:
    """(C, H, W) -> phase images in tiles (groups, p, tiles, b, N1, N2), zero where a place has no value."""
    shape = layout.shape
    padded = np.zeros((x.shape[0], x.shape[1] + shape.stride, x.shape[2] + shape.stride), dtype=np.uint64)
    padded[:, : x.shape[1], : x.shape[2]] = x
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


def _terms(layout: SpectralLayout, pieces: Pieces, ring_degree: int) -> list[Residues]:
    """Terms of the output's cells, each numbered by its slot among all ciphertexts that come back."""
    slots = _numbered((sum(placed.plan.ciphertexts_out for placed in pieces), ring_degree))
    most = max(len(block) for placed in pieces for block in placed.plan.output_terms)
    terms = [np.empty(_output_cells(layout), dtype=np.uint64) for _ in range(most)]
    for placed in pieces:
        lanes = slots_to_lanes(slots[placed.outputs], placed.plan.lanes)
        for number, cells in enumerate(terms):
            _set_cells(cells, placed, _term(placed.plan, lanes, number))
    return terms


def _term(plan: LinearPlan, lanes: Residues, number: int) -> Residues:
    """(ciphertexts, G, L') -> (q, L'): the lane of each output block's term of that number; zeros if it has none."""
    found = np.zeros((plan.blocks_out, lanes.shape[-1]), dtype=np.uint64)
    for block, terms in enumerate(plan.output_terms):
        if number < len(terms):
            found[block] = lanes[terms[number]]
    return found


def _set_cells(cells: Residues, placed: PlacedPiece, lanes: Residues) -> None:
    """Inverse of :func:`_lanes_of_cells`, from lanes with unused slots at their end."""
    own = cells[placed.groups, :, placed.tiles]
    length = own.size // own.shape[1]
    ordered = own.swapaxes(0, 1).shape
    own[...] = lanes[:, :length].reshape(ordered).swapaxes(0, 1)


def _output_cells(layout: SpectralLayout) -> tuple[int, ...]:
    return layout.shape.groups, layout.blocks_out, layout.tiles, layout.block_size, *layout.extent


def _outputs_of_cells(layout: SpectralLayout, cells: Residues) -> Residues:
    """(groups, q, a c, b, N1, N2) -> (K, H', W')."""
    (a, n1), (c, n2) = ((axis.count, axis.length) for axis in (layout.rows, layout.columns))
    split = cells.reshape(-1, a, c, layout.block_size, n1, n2)
    maps = split.transpose(0, 3, 1, 4, 2, 5).reshape(layout.shape.out_channels, a * n1, c * n2)
    return maps[:, layout.rows.outputs[:, None], layout.columns.outputs]
