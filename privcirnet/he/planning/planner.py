"""The planner: the cheapest of a layer's plans under encryption, under a profile and a link.

Choices: tiles of the map, lanes of a ciphertext (and with them how many tiles or channel groups share a lane), how the
grid of channel groups and tiles is split into pieces, and for each piece copies of the input, baby and giant steps, and
sums on shares. The cost of pieces adds up, and a piece's plan depends on its lanes and block counts only, so the best
plan is found once for each number of lanes, and the pieces by recursion on what is left of the grid.

``sums="encrypted"`` keeps to what the papers count: every sum under encryption. ``sums="shares"`` is the opposite: no
rotation at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.size_limits import MAX_PIECES
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.planning.cost import Cost, fixed_cost
from privcirnet.he.planning.cover import (
    Cover,
    CoverGrid,
    Seconds,
    covers,
    grid_of,
    lane_contents,
    parts_of,
    piece_of,
    sum_of,
    total_of,
)
from privcirnet.he.planning.goal import LayerChoice, Objective
from privcirnet.he.planning.profile import COUNTED, LINKS, NetworkLink, Profile
from privcirnet.he.program import limits

_SMOOTH = 2**10 * 3**2 * 5 * 7 * 11 * 13 * 17
"""Lengths that divide this are carried by one plain modulus all together."""
SHORT = 2**10 * 3**2 * 5 * 17
"""Lengths that divide this are carried by one of 25 bits. It costs layers of 32 x 32 to 2 x 2 pixels 1 or 2 %."""
_TILES_ON_AN_AXIS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)


def plan_layer(shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the cheapest plan of a layer, and the candidates.

    Raises:
        RuleError: The block size does not divide the channels, or no tile fits a ciphertext.
    """
    ordered = sorted(_candidates(shape, block_size, goal), key=_total)
    priced = tuple((Cost(*candidate.seconds), candidate.layer(goal)) for candidate in ordered)
    first = next((place for place, (_, layer) in enumerate(priced) if not _excess(layer, goal)), 0)
    return LayerChoice(priced[first][1], goal, priced[first:])


def cheapest_layer(
    shape: LinearShape, block_size: int, profile: Profile, link: NetworkLink, lengths: int = 0
) -> SpectralLayer:
    """Return the layer whose plan has the least predicted time; no dearer candidate is written out.

    Args:
        lengths: see :class:`Objective`.

    Raises:
        RuleError: No plan is within the limits of a program.
    """
    goal = Objective(profile, link, lengths=lengths)
    if fastest := next(layers_by_time(shape, block_size, goal), None):
        return fastest[1]
    got = f"{_excess(min(_candidates(shape, block_size, goal), key=_total).layer(goal), goal)} by {shape}"
    remedy = "use a larger block size, fewer channels or smaller images"
    raise RuleError("a layer must have a plan within the limits of a program", got=got, remedy=remedy)


def layers_by_time(shape: LinearShape, block_size: int, goal: Objective) -> Iterator[tuple[float, SpectralLayer]]:
    """Yield a layer's plans, the fastest first, each written out when it is asked for: (predicted seconds, layer).

    Plans that ask too much of whoever reads a program (:mod:`program.limits`) are left out.
    """
    for candidate in sorted(_candidates(shape, block_size, goal), key=_total):
        layer = candidate.layer(goal)
        if not _excess(layer, goal):
            yield _total(candidate), layer


def _excess(layer: Layer, goal: Objective) -> str:
    return limits.excess(layer, goal.profile.parameter_set)


class _Candidate(NamedTuple):
    """A layer that may be the cheapest.

    Attributes:
        seconds: predicted, in the order of a :class:`Cost`.
        layer: writes it out.
    """

    seconds: Seconds
    layer: Callable[[Objective], SpectralLayer]


def _candidates(shape: LinearShape, block_size: int, goal: Objective) -> list[_Candidate]:
    """Return covers of the grid for every layout and number of lanes, with as many pieces of that kind as fit."""
    candidates: list[_Candidate] = []
    for layout, grid in _layouts(shape, block_size, goal.lengths) or _layouts(shape, block_size, 0):
        if grid.cell <= goal.profile.ring_degree:
            fixed = parts_of(fixed_cost(layout, goal.profile, goal.link))
            parts = (cover for cover in covers(grid, goal) if cover.size <= MAX_PIECES)
            candidates += (
                _Candidate(sum_of(cover.seconds, fixed), partial(_written, layout, cover)) for cover in parts
            )
    if not candidates:
        raise RuleError(
            "a cell (block size x places of a tile) must fit a ciphertext",
            got=f"block size {block_size} at {shape.height} x {shape.width} for {goal.profile.ring_degree} slots",
            remedy="use a smaller block size or a larger ring degree",
        )
    return candidates


def _total(candidate: _Candidate) -> float:
    return total_of(candidate.seconds)


def _written(layout: SpectralLayout, cover: Cover, goal: Objective) -> SpectralLayer:
    return SpectralLayer(layout.shape, layout.block_size, goal.profile.ring_degree, layout.tile, cover.pieces)


def counted_goal(ring_degree: int) -> Objective:
    """Return the papers' count: HE-Rot + 0.135 HE-Pmult, sums under encryption."""
    return Objective(replace(COUNTED, ring_degree=ring_degree), LINKS["local"], "encrypted")


def candidate_layers(shape: LinearShape, block_size: int, ring_degree: int) -> list[SpectralLayer]:
    """Return a layer for every plan of an untiled map, all pieces alike: an oracle for tests."""
    layout = SpectralLayout.whole(shape, block_size)
    layers: list[SpectralLayer] = []
    for lanes, groups, tiles in lane_contents(grid_of(layout), ring_degree):
        if shape.groups % groups or layout.tiles % tiles:
            continue
        count = shape.groups // groups * (layout.tiles // tiles)
        for on_shares in (True, False):
            for plan in bsgs.candidates(lanes, layout.blocks_in, layout.blocks_out, on_shares=on_shares):
                pieces = (piece_of(plan, groups, tiles),) * count
                layers.append(SpectralLayer(shape, block_size, ring_degree, layout.tile, pieces))
    return layers


@lru_cache(maxsize=1024)
def _layouts(shape: LinearShape, block_size: int, lengths: int) -> tuple[tuple[SpectralLayout, CoverGrid], ...]:
    """Return the tilings worth a look: single positions where an axis is not transformed, else an axis in a few parts.

    A tile's transform length must be smooth, so that one plain modulus carries the lengths of many layers; only a
    whole map may have any. Where ``lengths`` is not 0, all must divide it, and there may be no such tiling.
    """
    whole = SpectralLayout.whole(shape, block_size)
    sizes: list[list[int]] = []
    for axis, size, outputs in zip((shape.rows, shape.columns), whole.tile, shape.output_shape[1:], strict=True):
        parts = {-(-outputs // count) for count in _TILES_ON_AN_AXIS if count <= outputs}
        sizes.append(sorted(parts, reverse=True) if axis.transformed else [size])
    tiled = [SpectralLayout(shape, block_size, (height, width)) for height in sizes[0] for width in sizes[1]]
    usable = (
        layout
        for layout in tiled
        if (not lengths and layout.tile == whole.tile)
        or not any((lengths or _SMOOTH) % length for length in layout.spectral_extent)
    )
    return tuple((layout, grid_of(layout)) for layout in usable)
