"""Ways to cover a layer's grid of channel groups and tiles with pieces, and their seconds.

A piece's plan depends on its lanes and block counts only, so the best plan is found once for each number of lanes, and
the pieces by recursion on what is left of the grid: as many of one kind as fit, then the best for the rest. Layouts
that agree in their :class:`Grid` share their covers. The recursion adds plain tuples of seconds, in the order of the
pieces, and pieces are listed only for a cover that is chosen: a grid may take thousands of them.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import NamedTuple

from privcirnet.he.layers import bsgs
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import Cost, plan_cost
from privcirnet.he.planning.goal import Objective

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
        return min((self._groups_with(content, groups) for content in self._whole), key=_total)

    def _groups_with(self, content: Contents, groups: int) -> Cover:
        """Return the cover of all tiles of ``groups`` channel groups, the first pieces with this content."""
        side = min(content.groups, groups)
        return self._repeat(Contents(content.lanes, side, content.tiles), groups // side, self._groups, groups % side)

    def _best_tiles(self, tiles: int, side: int) -> Cover:
        able = (content for content in self._contents if content.groups >= side)
        return min((self._tiles_with(content, tiles, side) for content in able), key=_total)

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


def _total(cover: Cover) -> float:
    return total_of(cover.seconds)
