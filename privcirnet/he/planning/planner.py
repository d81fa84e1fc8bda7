"""The planner: enumerate what a layer could do under encryption, take the cheapest under a profile and a link.

Choices: the family of encodings; for the spectral one tiles of the map, lanes of a ciphertext (and with them how many
tiles or channel groups share a lane), how the grid of channel groups and tiles is split into pieces, and for each piece
copies of the input, baby and giant steps, and sums on shares. The cost of pieces adds up, and a piece's plan depends on
its lanes and block counts only, so the best plan is found once for each number of lanes, and the pieces by recursion on
what is left of the grid.

``sums="encrypted"`` keeps to what the papers count: every sum under encryption. ``sums="shares"`` is the opposite: no
rotation at all.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache, partial

from privcirnet.errors import RuleError
from privcirnet.he.encodings import bsgs as plans
from privcirnet.he.encodings.bsgs import BsgsPlan
from privcirnet.he.encodings.coefficient_layer import PLACEMENTS as COEFFICIENT_ENCODINGS
from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.layout import SpectralLayout
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.size_limits import MAX_PIECES
from privcirnet.he.encodings.spectral_layer import SpectralLayer
from privcirnet.he.planning.cost import COUNTED, LINKS, Cost, Link, Profile, fixed_cost, linear_cost, plan_cost
from privcirnet.he.planning.goal import Goal, LayerChoice

_SMOOTH = 2**10 * 3**2 * 5 * 7 * 11 * 13 * 17
"""Lengths that divide this are carried by one plain modulus all together."""
_TILES_ON_AN_AXIS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32)


def plan_layer(shape: LinearShape, block_size: int, goal: Goal) -> LayerChoice:
    """The cheapest plan of a layer, and what it was chosen from.

    Raises:
        RuleError: the block size does not divide the channels, or no tile fits a ciphertext.
    """
    found: list[tuple[Cost, Layer]] = [*_spectral(shape, block_size, goal), *_coefficient(shape, block_size, goal)]
    if not found:
        raise RuleError(
            "a cell (block size x places of a tile) must fit a ciphertext",
            got=f"block size {block_size} at {shape.height} x {shape.width} for {goal.profile.ring_degree} slots",
            remedy="use a smaller block size or a larger ring degree",
        )
    found.sort(key=lambda pair: pair[0].total)
    return LayerChoice(found[0][1], goal, tuple(found))


def _spectral(shape: LinearShape, block_size: int, goal: Goal) -> Iterator[tuple[Cost, SpectralLayer]]:
    if goal.family in ("any", "spectral"):
        for layout in _layouts(shape, block_size):
            if layout.cell <= goal.profile.ring_degree:
                yield from _covers_of(layout, goal)


def _coefficient(shape: LinearShape, block_size: int, goal: Goal) -> Iterator[tuple[Cost, CoefficientLayer]]:
    for name in ("cheetah",) if goal.family == "any" else {goal.family} & set(COEFFICIENT_ENCODINGS):
        layer = CoefficientLayer(shape, block_size, goal.profile.ring_degree, name)
        if goal.family == "any" and layer.size_excess:
            continue
        try:
            yield linear_cost(layer, goal.profile, goal.link), layer
        except RuleError:
            if goal.family == name:
                raise


def cheapest_layer(shape: LinearShape, block_size: int, profile: Profile, link: Link) -> Layer:
    """The layer whose plan has the least predicted time."""
    return plan_layer(shape, block_size, Goal(profile, link)).layer


def paper_layer(shape: LinearShape, block_size: int, ring_degree: int) -> SpectralLayer:
    """The layer with the plan that the papers' count likes best: every sum under encryption, Rot + 0.135 Pmult."""
    layer = plan_layer(shape, block_size, counted_goal(ring_degree)).layer
    assert isinstance(layer, SpectralLayer)
    return layer


def counted_goal(ring_degree: int) -> Goal:
    """What the papers count: HE-Rot + 0.135 HE-Pmult, every sum under encryption, spectral encodings."""
    return Goal(replace(COUNTED, ring_degree=ring_degree), LINKS["local"], "encrypted", "spectral")


def candidate_layers(shape: LinearShape, block_size: int, ring_degree: int) -> list[SpectralLayer]:
    """A layer for every plan of an untiled map, all pieces alike: for tests and for the curious."""
    layout = SpectralLayout.whole(shape, block_size)
    found: list[SpectralLayer] = []
    for lanes, groups, tiles in _lane_contents(layout, ring_degree):
        if shape.groups % groups or layout.tiles % tiles:
            continue
        count = shape.groups // groups * (layout.tiles // tiles)
        for on_shares in (True, False):
            for plan in plans.candidates(lanes, layout.blocks_in, layout.blocks_out, on_shares=on_shares):
                pieces = (_piece(plan, groups, tiles),) * count
                found.append(SpectralLayer(shape, block_size, ring_degree, layout.tile, pieces))
    return found


def _layouts(shape: LinearShape, block_size: int) -> list[SpectralLayout]:
    """Tilings worth a look: single positions where an axis is not transformed, else an axis in a few parts.

    A tile's transform length must be smooth, so that one plain modulus carries the lengths of many layers; only a
    whole map may have any.
    """
    whole = SpectralLayout.whole(shape, block_size)
    sizes: list[list[int]] = []
    for axis, size, outputs in zip((shape.rows, shape.columns), whole.tile, shape.output_shape[1:], strict=True):
        parts = {-(-outputs // count) for count in _TILES_ON_AN_AXIS if count <= outputs}
        sizes.append(sorted(parts, reverse=True) if axis.transformed else [size])
    tiled = [SpectralLayout(shape, block_size, (height, width)) for height in sizes[0] for width in sizes[1]]
    return [layout for layout in tiled if layout.tile == whole.tile or all(map(_is_smooth, layout.spectral_extent))]


def _is_smooth(length: int) -> bool:
    return _SMOOTH % length == 0


def _lane_contents(layout: SpectralLayout, ring_degree: int) -> Iterator[tuple[int, int, int]]:
    """(lanes, channel groups, tiles) for every number of lanes: as much as a lane can hold.

    Either all tiles of some groups, or some tiles of one group or of all.
    """
    groups, lanes = layout.shape.groups, 1
    while lanes <= ring_degree // 2:
        cells = ring_degree // lanes // layout.cell
        if cells >= layout.tiles:
            yield lanes, min(groups, cells // layout.tiles), layout.tiles
        elif cells:
            yield lanes, 1, cells
        if 1 < groups <= cells < groups * layout.tiles:
            yield lanes, groups, cells // groups
        lanes *= 2


def _covers_of(layout: SpectralLayout, goal: Goal) -> list[tuple[Cost, SpectralLayer]]:
    """For every number of lanes the grid covered by as many pieces of that kind as fit, and the best for the rest."""
    fixed = fixed_cost(layout, goal.profile, goal.link)
    found: list[tuple[Cost, SpectralLayer]] = []
    for cost, pieces in _Cover(layout, goal).options():
        if len(pieces) > MAX_PIECES:
            continue
        layer = SpectralLayer(layout.shape, layout.block_size, goal.profile.ring_degree, layout.tile, pieces)
        found.append((cost + fixed, layer))
    return found


_Covered = tuple[Cost, tuple[Piece, ...]]
_NOTHING: _Covered = (Cost(), ())


class _Cover:
    """Ways to cover a layout's grid of channel groups and tiles with pieces."""

    def __init__(self, layout: SpectralLayout, goal: Goal) -> None:
        self._layout, self._goal = layout, goal
        self._contents = list(_lane_contents(layout, goal.profile.ring_degree))
        self._tiles = lru_cache(maxsize=None)(self._best_tiles)
        self._groups = lru_cache(maxsize=None)(self._best_groups)

    def options(self) -> Iterator[_Covered]:
        """A cover for every number of lanes of its first piece."""
        groups, tiles = self._layout.shape.groups, self._layout.tiles
        for content in self._contents:
            whole = content[2] == tiles
            yield self._groups_with(content, groups) if whole else self._tiles_with(content, tiles, groups, content[1])

    def _best_groups(self, groups: int) -> _Covered:
        return min((self._groups_with(content, groups) for content in self._whole_tiles()), key=_seconds)

    def _groups_with(self, content: tuple[int, int, int], groups: int) -> _Covered:
        """All tiles of ``groups`` channel groups, the first pieces with this content."""
        lanes, most, tiles = content
        held = min(most, groups)
        return self._repeat(self._one(lanes, held, tiles), groups // held, self._groups, groups % held)

    def _best_tiles(self, tiles: int, groups: int) -> _Covered:
        able = [content for content in self._contents if content[1] >= groups]
        return min((self._tiles_with(content, tiles, groups, groups) for content in able), key=_seconds)

    def _tiles_with(self, content: tuple[int, int, int], tiles: int, groups: int, side: int) -> _Covered:
        """``tiles`` tiles of ``groups`` channel groups, ``side`` of them side by side, the first pieces so filled."""
        held, best = min(content[2], tiles), partial(self._tiles, groups=side)
        one = self._repeat(self._one(content[0], side, held), tiles // held, best, tiles % held)
        return one[0] * (groups // side), one[1] * (groups // side)

    def _whole_tiles(self) -> list[tuple[int, int, int]]:
        return [content for content in self._contents if content[2] == self._layout.tiles]

    def _one(self, lanes: int, groups: int, tiles: int) -> _Covered:
        cost, plan = best_plan(lanes, self._layout.blocks_in, self._layout.blocks_out, self._goal)
        return cost, (_piece(plan, groups, tiles),)

    def _repeat(self, one: _Covered, count: int, best: Callable[[int], _Covered], rest: int) -> _Covered:
        more = best(rest) if rest else _NOTHING
        return one[0] * count + more[0], one[1] * count + more[1]


@lru_cache(maxsize=65536)
def best_plan(lanes: int, blocks_in: int, blocks_out: int, goal: Goal) -> tuple[Cost, BsgsPlan]:
    """The cheapest plan of a matrix over that many lanes, and its cost without transforms and round trip."""
    found = plans.candidates(lanes, blocks_in, blocks_out, on_shares=goal.sums != "encrypted")
    if goal.sums == "shares":
        found = [plan for plan in found if not plan.rotations]
    priced = [(plan_cost(plan, goal.profile, goal.link), plan) for plan in found]
    return min(priced, key=lambda pair: pair[0].total)


def _piece(plan: BsgsPlan, groups: int, tiles: int) -> Piece:
    choices = plan.baby_steps, plan.copies, plan.giants_on_shares, plan.folds_on_shares
    return Piece(groups, tiles, plan.lanes, *choices)


def _seconds(covered: _Covered) -> float:
    return covered[0].total
