from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given

from privcirnet.errors import RuleError
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece, place
from tests.he.layer_examples import layers

N = 256
LAYOUT = SpectralLayout(LinearShape(6, 6, 12, 12, 3, 1, 1, groups=3), 2, (3, 2))
"""Three groups, six tiles of 5 x 4 places, cells of 40 values, two blocks each way."""
HALF, WHOLE = Piece(1, 3, 2, 1), Piece(1, 6, 1, 1)


@given(layers())
def test_pieces_cover_the_grid_once(layer: SpectralLayer) -> None:
    covered = []
    first_in = first_out = 0
    for piece, placed in zip(layer.pieces, layer.placed, strict=True):
        covered += product(range(layer.shape.groups)[placed.groups], range(layer.layout.tiles)[placed.tiles])
        assert placed.piece == piece
        assert placed.plan == BsgsPlan(
            piece.lanes,
            layer.layout.blocks_in,
            layer.layout.blocks_out,
            piece.baby_steps,
            piece.copies,
            piece.giants_on_shares,
            piece.folds_on_shares,
        )
        assert placed.lane_slots * piece.lanes == layer.ring_degree
        assert piece.groups * piece.tiles * layer.layout.cell <= placed.lane_slots
        assert placed.inputs == slice(first_in, first_in + placed.plan.ciphertexts_in)
        assert placed.outputs == slice(first_out, first_out + placed.plan.ciphertexts_out)
        first_in, first_out = placed.inputs.stop, placed.outputs.stop
    assert sorted(covered) == list(product(range(layer.shape.groups), range(layer.layout.tiles)))
    assert (first_in, first_out) == (layer.ciphertexts_in, layer.ciphertexts_out)


UNCOVERED = {
    "none": (),
    "a group too few": (WHOLE, WHOLE),
    "a group too many": (WHOLE,) * 4,
    "a tile too few": (WHOLE, WHOLE, HALF, replace(HALF, tiles=2)),
    "tiles beyond the map": (HALF, replace(HALF, tiles=4)),
    "more tiles than there are": (replace(WHOLE, tiles=7),),
    "more groups than there are": (replace(HALF, groups=4, tiles=1),),
    "groups that change midway": (HALF, Piece(2, 3, 1, 1), WHOLE),
    "no groups": (replace(WHOLE, groups=0),) * 3,
    "no tiles": (replace(WHOLE, tiles=0),) * 3,
    "fewer than no tiles": (WHOLE, WHOLE, replace(WHOLE, tiles=-6)),
}


@pytest.mark.parametrize("case", UNCOVERED)
def test_pieces_must_cover_the_grid_exactly_once(case: str) -> None:
    with pytest.raises(RuleError, match=r"exactly once, in order: got .* in a grid of 3 groups x 6 tiles"):
        place(LAYOUT, N, UNCOVERED[case])


@pytest.mark.parametrize(
    ("piece", "values"),
    [
        (replace(WHOLE, lanes=2), 240),
        (replace(WHOLE, lanes=0), 240),
        (replace(WHOLE, lanes=-1), 240),
        (replace(HALF, lanes=3), 120),
        (Piece(3, 3, 1, 1), 360),
        (Piece(1, 1, 8, 1), 40),
        (Piece(1, 1, 256, 1), 40),  # at most n / 2 lanes: each has half of its slots in each row
    ],
)
def test_a_lane_must_fit(piece: Piece, values: int) -> None:
    with pytest.raises(RuleError, match=f"got {values} values, {piece.lanes} lanes in 256 slots"):
        place(LAYOUT, N, (piece,) * 18)
