"""A spectral layer in pieces: rectangles of channel groups x tiles, each with a plan of its own.

Channel groups and tiles share no sum, so any of them can be computed by themselves: a map that is larger than a
ciphertext in tiles, 65 tokens as 64 and 1, 576 depthwise channels 36 at a time. Pieces cover the grid in order, chunk
of groups by chunk of groups, and within it chunk of tiles by chunk of tiles.

Limits: a description may come from somebody else, since a server tells its clients how its layers are computed. So
sizes are looked at before anything that lists tiles, pieces or polynomials (:func:`spectral_excess`): arithmetic on the
description, without a list that grows with a size in it. The limits are many times what the papers' networks need.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from privcirnet.errors import RuleError
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.spectral_layout import SpectralLayout

_plan = lru_cache(maxsize=4096)(BsgsPlan)


@dataclass(frozen=True)
class Piece:
    """The public description of a piece: its size and the choices of its plan.

    Attributes:
        groups: gamma, channel groups in each lane.
        tiles: tau, tiles in each lane.
        lanes: G, lanes of a ciphertext.
        baby_steps: B.
        copies: see :class:`BsgsPlan`.
        giants_on_shares: see :class:`BsgsPlan`.
        folds_on_shares: see :class:`BsgsPlan`.
    """

    groups: int
    tiles: int
    lanes: int
    baby_steps: int
    copies: int = 1
    giants_on_shares: bool = False
    folds_on_shares: bool = True

    @property
    def sums(self) -> str:
        """Place where output lanes are summed, in a word or two."""
        kinds = {
            (True, True): "on shares",
            (False, True): "folds on shares",
            (True, False): "giants on shares",
            (False, False): "encrypted",
        }
        return kinds[self.giants_on_shares, self.folds_on_shares]


@dataclass(frozen=True)
class PieceLayout:
    """A piece in its place.

    Attributes:
        first_group: its channel groups are [first_group, first_group + gamma).
        first_tile: its tiles are [first_tile, first_tile + tau).
        first_in: its first ciphertext among those that the client sends.
        first_out: its first ciphertext among those that the server sends.
        lane_slots: L', slots of a lane.
    """

    piece: Piece
    plan: BsgsPlan
    first_group: int
    first_tile: int
    first_in: int
    first_out: int
    lane_slots: int

    @property
    def groups(self) -> slice:
        """Its channel groups."""
        return slice(self.first_group, self.first_group + self.piece.groups)

    @property
    def tiles(self) -> slice:
        """Its tiles."""
        return slice(self.first_tile, self.first_tile + self.piece.tiles)

    @property
    def inputs(self) -> slice:
        """Its ciphertexts among those that the client sends."""
        return slice(self.first_in, self.first_in + self.plan.ciphertexts_in)

    @property
    def outputs(self) -> slice:
        """Its ciphertexts among those that the server sends."""
        return slice(self.first_out, self.first_out + self.plan.ciphertexts_out)


def place(layout: SpectralLayout, ring_degree: int, pieces: Sequence[Piece]) -> tuple[PieceLayout, ...]:
    """Return pieces in their places, each with its plan, what it covers, and where its ciphertexts are.

    Args:
        pieces: cover the grid of channel groups and tiles, in order.
    """
    groups, tiles = layout.shape.groups, layout.tiles
    placed: list[PieceLayout] = []
    group = tile = first_in = first_out = 0
    for piece in pieces:
        unfinished = tile > 0 and placed[-1].piece.groups != piece.groups
        if (
            min(piece.groups, piece.tiles) < 1
            or group + piece.groups > groups
            or tile + piece.tiles > tiles
            or unfinished
        ):
            raise _uncovered(groups, tiles, piece)
        _check_lane(layout, ring_degree, piece)
        plan = plan_of(layout, piece)
        placed.append(PieceLayout(piece, plan, group, tile, first_in, first_out, ring_degree // piece.lanes))
        first_in, first_out = first_in + plan.ciphertexts_in, first_out + plan.ciphertexts_out
        tile += piece.tiles
        if tile == tiles:
            group, tile = group + piece.groups, 0
    if group != groups:
        raise _uncovered(groups, tiles, None)
    return tuple(placed)


def plan_of(layout: SpectralLayout, piece: Piece) -> BsgsPlan:
    """Return the plan of a piece.

    Raises:
        RuleError: choices that no plan has, see :class:`BsgsPlan`.
    """
    return _plan(
        piece.lanes,
        layout.blocks_in,
        layout.blocks_out,
        piece.baby_steps,
        piece.copies,
        piece.giants_on_shares,
        piece.folds_on_shares,
    )


def _check_lane(layout: SpectralLayout, ring_degree: int, piece: Piece) -> None:
    length = piece.groups * piece.tiles * layout.cell
    if not 1 <= piece.lanes <= ring_degree // 2 or length > ring_degree // piece.lanes:
        raise RuleError(
            "a lane (block size x places x tiles x groups) must fit its share of a ciphertext",
            got=f"{length} values, {piece.lanes} lanes in {ring_degree} slots",
            remedy="use smaller tiles or block sizes, fewer lanes, or a larger ring degree",
        )


def _uncovered(groups: int, tiles: int, piece: Piece | None) -> RuleError:
    return RuleError(
        "pieces must cover every channel group and tile exactly once, in order",
        got=f"{piece or 'the last piece'} in a grid of {groups} groups x {tiles} tiles",
        remedy="let the planner choose them",
    )


MAX_TILES = 1 << 10
"""Most tiles along a transformed axis."""
MAX_PIECES = 1 << 12
"""Most pieces of a layer."""


def spectral_excess(layout: SpectralLayout, pieces: Sequence[Piece]) -> str:
    """Return the excess of a spectral layer's tiles and pieces, "" if there is none.

    Args:
        pieces: pieces that its grid of channel groups and tiles is said to be covered by.
    """
    if len(pieces) > MAX_PIECES:
        return f"{len(pieces)} pieces"
    axes = layout.rows, layout.columns
    if any(tiled.axis.transformed and tiled.count > MAX_TILES for tiled in axes):
        return f"{axes[0].count} x {axes[1].count} tiles"
    return ""
