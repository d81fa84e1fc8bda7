"""The planner: the cheapest of a layer's plans under encryption, under a profile and a link.

Choices: tiles of the map, lanes of a ciphertext (and with them how many tiles or channel groups share a lane), how the
grid of channel groups and tiles is split into pieces, and for each piece copies of the input, baby and giant steps, and
sums on shares. The cost of pieces adds up, and a piece's plan depends on its lanes and block counts only, so the best
plan is found once for each number of lanes, and the pieces by recursion on what is left of the grid.

``sums="encrypted"`` keeps to what the papers count: every sum under encryption. ``sums="shares"`` is the opposite: no
rotation at all.

Covers of the grid: as many pieces of one kind as fit, then the best for the rest. Layouts that agree in their
:class:`CoverGrid` share their covers. The recursion adds plain tuples of seconds, in the order of the pieces, and
pieces are listed only for a cover that is chosen: a grid may take thousands of them.

The papers' encodings are the same code with something fixed; :func:`plan_named` plans a layer in any of them:

| name | what is fixed | paper |
|---|---|---|
| cirencode | nothing: any block size, GEMM or convolution | PrivCirNet, section 3.2 |
| bolt | b = 1, 1 x 1 kernel, BSGS over lanes of tokens | Bolt, PrivCirNet's baseline |
| neujeans | b = 1, larger kernel: image axes transformed, BSGS over channels | NeuJeans, section 4 (CinS), in BFV |
| ensei | b = 1, larger kernel, no rotation: all sums of lanes on shares | ENSEI, section 4.1 (FDSC) |
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape, by_axis
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import MAX_PIECES, Piece
from privcirnet.he.planning.cost import Cost, LayerChoice, Objective, fixed_cost, plan_cost
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.program import limits

Seconds = tuple[float, float, float, float]
"""The parts of a :class:`Cost`, in its order."""


class CoverGrid(NamedTuple):
    """The part of a layout that its covers depend on.

    Attributes:
        blocks_in: p, of a group.
        blocks_out: q, of a group.
    """

    groups: int
    tiles: int
    cell: int
    blocks_in: int
    blocks_out: int


class Contents(NamedTuple):
    """The contents of a lane.

    Attributes:
        groups: channel groups in each lane.
        tiles: tiles of each group in a lane.
    """

    lanes: int
    groups: int
    tiles: int


class Cover(NamedTuple):
    """Pieces that cover a grid.

    Attributes:
        seconds: predicted for all of them, without transforms and round trip.
        runs: (piece, how many in a row), in order.
        repeated: number of times that all of the runs come one after the other.
    """

    seconds: Seconds
    runs: tuple[tuple[Piece, int], ...]
    repeated: int = 1

    @property
    def size(self) -> int:
        """Number of pieces."""
        return self.repeated * sum(count for _, count in self.runs)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Every piece, in order."""
        return tuple(piece for piece, count in self.runs for _ in range(count)) * self.repeated


def parts_of(cost: Cost) -> Seconds:
    """Return the parts of a cost as a plain tuple."""
    return cost.client_encrypt, cost.server, cost.client_decrypt, cost.network


def sum_of(seconds: Seconds, more: Seconds) -> Seconds:
    """Return the sum, part by part."""
    (a, b, c, d), (e, f, g, h) = seconds, more
    return a + e, b + f, c + g, d + h


def total_of(seconds: Seconds) -> float:
    """Return the sum of all four parts, added as :attr:`Cost.total` adds them."""
    a, b, c, d = seconds
    return a + b + c + d


_NOTHING = Cover((0.0, 0.0, 0.0, 0.0), ())


def grid_of(layout: SpectralLayout) -> CoverGrid:
    """Return the grid of a layout, which covers depend on."""
    return CoverGrid(layout.shape.groups, layout.tiles, layout.cell, layout.blocks_in, layout.blocks_out)


def lane_contents(grid: CoverGrid, ring_degree: int) -> Iterator[Contents]:
    """Yield the most contents of a lane, for every number of lanes.

    Either all tiles of some groups, or some tiles of one group or of all.
    """
    groups, lanes = grid.groups, 1
    while lanes <= ring_degree // 2:
        cells = ring_degree // lanes // grid.cell
        if cells >= grid.tiles:
            yield Contents(lanes, min(groups, cells // grid.tiles), grid.tiles)
        elif cells:
            yield Contents(lanes, 1, cells)
        if 1 < groups <= cells < groups * grid.tiles:
            yield Contents(lanes, groups, cells // groups)
        lanes *= 2


@lru_cache(maxsize=16384)
def covers(grid: CoverGrid, goal: Objective) -> tuple[Cover, ...]:
    """Return, for every number of lanes, as many pieces of that kind as fit and the best for the rest."""
    return tuple(_Covering(grid, goal).options())


class _Covering:
    """The recursion for one grid, which remembers the best cover of each rest."""

    def __init__(self, grid: CoverGrid, goal: Objective) -> None:
        self._grid, self._goal = grid, goal
        self._contents = list(lane_contents(grid, goal.profile.ring_degree))
        self._whole = [content for content in self._contents if content.tiles == grid.tiles]
        self._piece = lru_cache(maxsize=None)(self._best_piece)
        self._tiles = lru_cache(maxsize=None)(self._best_tiles)
        self._groups = lru_cache(maxsize=None)(self._best_groups)

    def options(self) -> Iterator[Cover]:
        """Yield a cover for every number of lanes of its first piece."""
        groups, tiles = self._grid.groups, self._grid.tiles
        for content in self._contents:
            if content.tiles == tiles:
                yield self._groups_with(content, groups)
            else:
                side = content.groups
                row = self._tiles_with(content, tiles, side)
                yield Cover(_times(row.seconds, groups // side), row.runs, groups // side)

    def _best_groups(self, groups: int) -> Cover:
        return min((self._groups_with(content, groups) for content in self._whole), key=_seconds_in_all)

    def _groups_with(self, content: Contents, groups: int) -> Cover:
        """Return the cover of all tiles of ``groups`` channel groups, the first pieces with this content."""
        side = min(content.groups, groups)
        return self._repeat(Contents(content.lanes, side, content.tiles), groups // side, self._groups, groups % side)

    def _best_tiles(self, tiles: int, side: int) -> Cover:
        able = (content for content in self._contents if content.groups >= side)
        return min((self._tiles_with(content, tiles, side) for content in able), key=_seconds_in_all)

    def _tiles_with(self, content: Contents, tiles: int, side: int) -> Cover:
        """Return the cover of ``tiles`` tiles of ``side`` channel groups each, the first pieces with this content."""
        count, best = min(content.tiles, tiles), partial(self._tiles, side=side)
        return self._repeat(Contents(content.lanes, side, count), tiles // count, best, tiles % count)

    def _repeat(self, kind: Contents, count: int, best: Callable[[int], Cover], rest: int) -> Cover:
        """Return ``count`` pieces of a kind, then the best for the rest."""
        seconds, piece = self._piece(kind)
        more = best(rest) if rest else _NOTHING
        return Cover(sum_of(_times(seconds, count), more.seconds), ((piece, count), *more.runs))

    def _best_piece(self, kind: Contents) -> tuple[Seconds, Piece]:
        cost, plan = best_plan(kind.lanes, self._grid.blocks_in, self._grid.blocks_out, self._goal)
        return parts_of(cost), piece_of(plan, kind.groups, kind.tiles)


@lru_cache(maxsize=65536)
def best_plan(lanes: int, blocks_in: int, blocks_out: int, goal: Objective) -> tuple[Cost, BsgsPlan]:
    """Return the cheapest plan of a matrix over lanes, and its cost without transforms and round trip.

    Args:
        lanes: G.
        blocks_in: p.
        blocks_out: q.
    """
    plans = _plans(lanes, blocks_in, blocks_out, goal.sums != "encrypted")
    if goal.sums == "shares":
        plans = [plan for plan in plans if not plan.rotations]
    priced = [(plan_cost(plan, goal.profile, goal.link), plan) for plan in plans]
    return min(priced, key=lambda pair: pair[0].total)


@lru_cache(maxsize=65536)
def _plans(lanes: int, blocks_in: int, blocks_out: int, on_shares: bool) -> list[BsgsPlan]:
    """Return every plan of a matrix: the same objects for every profile, so that each is counted once."""
    return bsgs.candidates(lanes, blocks_in, blocks_out, on_shares=on_shares)


def piece_of(plan: BsgsPlan, groups: int, tiles: int) -> Piece:
    """Return the piece with the choices of a plan."""
    choices = plan.baby_steps, plan.copies, plan.giants_on_shares, plan.folds_on_shares
    return Piece(groups, tiles, plan.lanes, *choices)


def _times(seconds: Seconds, count: int) -> Seconds:
    a, b, c, d = seconds
    return count * a, count * b, count * c, count * d


def _seconds_in_all(cover: Cover) -> float:
    return total_of(cover.seconds)


_SMOOTH = 2**10 * 3**2 * 5 * 7 * 11 * 13 * 17
"""Lengths that divide this are carried by one plain modulus all together."""
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

    Plans that ask too much of whoever reads a program (:mod:`program.limits`) are left out. Sums are under encryption,
    which takes fewer ciphertexts, where no other plan is left.
    """

    def within_limits(goal: Objective) -> Iterator[tuple[float, SpectralLayer]]:
        for candidate in sorted(_candidates(shape, block_size, goal), key=_total):
            layer = candidate.layer(goal)
            if not _excess(layer, goal):
                yield _total(candidate), layer

    plans = within_limits(goal)
    first = next(plans, None)
    if first is not None:
        yield first
        yield from plans
    elif goal.sums != "encrypted":
        yield from within_limits(replace(goal, sums="encrypted"))


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


@dataclass(frozen=True)
class Encoding:
    """A named encoding.

    Attributes:
        fits: whether it has a form for (shape, block size).
        plan: plans a layer in it.
    """

    fits: Callable[[LinearShape, int], bool]
    rule: str
    plan: Callable[[LinearShape, int, Objective], LayerChoice] = plan_layer


def _dense_kernel(shape: LinearShape, b: int) -> bool:
    return b == 1 and shape.taps > 1


def _on_shares(shape: LinearShape, b: int, goal: Objective) -> LayerChoice:
    return plan_layer(shape, b, replace(goal, sums="shares"))


NAMES = {
    "cirencode": Encoding(lambda shape, b: True, "is for every layer"),
    "bolt": Encoding(lambda shape, b: b == 1 and shape.taps == 1, "is for b = 1 and 1 x 1 kernels"),
    "neujeans": Encoding(_dense_kernel, "is for b = 1 and larger kernels"),
    "ensei": Encoding(_dense_kernel, "is for b = 1 and larger kernels", _on_shares),
}
"""Encodings by the papers' names; papers/coefficients has two more, of polynomials."""


def plan_named(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the cheapest plan of a layer in a named encoding; ``name``: of :data:`NAMES`."""
    encoding = NAMES.get(name)
    if encoding is None:
        raise RuleError("the encoding must be a known one", got=repr(name), remedy=f"use {', '.join(NAMES)}")
    if not encoding.fits(shape, block_size):
        got = f"b = {block_size}, kernel {by_axis(shape.kernels)}, {shape.groups} groups"
        raise RuleError(f"the encoding {name} {encoding.rule}", got=got, remedy="use cirencode")
    return encoding.plan(shape, block_size, goal)


def plan_as_counted(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the plan of least HE-Rot + 0.135 HE-Pmult, every sum under encryption: what the papers count."""
    return plan_named(name, shape, block_size, counted_goal(goal.profile.ring_degree))


LAYOUTS = {"paper": plan_as_counted, "best": plan_named}
"""Planners of layers by the name of a layout, then by that of an encoding."""
