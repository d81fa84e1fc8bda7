"""Covers against a plain recursion, and the plans of the reference networks against those on record."""

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from benchmarks.bench.networks import NETWORKS, allowed_block_size, network_shapes
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning import planner
from privcirnet.he.planning.cost import Cost, Objective, plan_cost
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.planner import Contents, CoverGrid, covers, lane_contents, plan_layer
from privcirnet.he.planning.profile import COUNTED, OPERATIONS, Profile

Slow = tuple[Cost, list[tuple[int, int, BsgsPlan]]]
"""Seconds, and (groups, tiles, plan) of each piece."""

UNEVEN = Profile(
    "uneven", 256, DEFAULT_COEFFICIENT_BITS, {name: 0.1 + 0.37 * i for i, name in enumerate(OPERATIONS)}, threads=2
)
GOALS = {
    "any": Objective(UNEVEN, LINKS["local"]),
    "far": Objective(replace(COUNTED, ring_degree=256), NetworkLink(5e3, 0.25), "encrypted"),
    "encrypted": Objective(replace(COUNTED, ring_degree=256), LINKS["local"], "encrypted"),
    "shares": Objective(UNEVEN, LINKS["wan"], "shares"),
}
GRIDS = [
    *(CoverGrid(1, tiles, 4, 3, 5) for tiles in (1, 2, 7, 64, 65, 197)),
    *(CoverGrid(groups, 1, 16, 1, 1) for groups in (1, 3, 24, 100)),
    *(CoverGrid(groups, tiles, 8, 2, 3) for groups in (2, 4, 12) for tiles in (3, 10, 65)),
    CoverGrid(1, 9, 256, 2, 2),
]


def slow_covers(grid: CoverGrid, goal: Objective) -> list[Slow]:
    """The covers for every number of lanes, written as what they are: every piece listed, every :class:`Cost` added."""
    contents = list(lane_contents(grid, goal.profile.ring_degree))

    @cache
    def plan(lanes: int) -> tuple[Cost, BsgsPlan]:
        plans = bsgs.candidates(lanes, grid.blocks_in, grid.blocks_out, on_shares=goal.sums != "encrypted")
        plans = [p for p in plans if goal.sums != "shares" or not p.rotations]
        return min(((plan_cost(p, goal.profile, goal.link), p) for p in plans), key=lambda pair: pair[0].total)

    def then(kind: tuple[int, int, int], count: int, rest: Slow) -> Slow:
        lanes, groups, tiles = kind
        cost, found = plan(lanes)
        return cost * count + rest[0], [(groups, tiles, found)] * count + rest[1]

    @cache
    def all_tiles(content: Contents, groups: int) -> Slow:
        held = min(content.groups, groups)
        whole = [c for c in contents if c.tiles == grid.tiles]
        left = groups % held
        rest = min((all_tiles(c, left) for c in whole), key=_total) if left else (Cost(), [])
        return then((content.lanes, held, content.tiles), groups // held, rest)

    @cache
    def some_tiles(content: Contents, tiles: int, side: int) -> Slow:
        held = min(content.tiles, tiles)
        able = [c for c in contents if c.groups >= side]
        left = tiles % held
        rest = min((some_tiles(c, left, side) for c in able), key=_total) if left else (Cost(), [])
        return then((content.lanes, side, held), tiles // held, rest)

    found: list[Slow] = []
    for content in contents:
        if content.tiles == grid.tiles:
            found.append(all_tiles(content, grid.groups))
        else:
            times = grid.groups // content.groups
            cost, pieces = some_tiles(content, grid.tiles, content.groups)
            found.append((cost * times, pieces * times))
    return found


def _total(found: Slow) -> float:
    return found[0].total


@pytest.mark.parametrize("goal", GOALS)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_covers_are_those_of_the_plain_recursion_to_the_bit(grid: CoverGrid, goal: str) -> None:
    found, expected = covers(grid, GOALS[goal]), slow_covers(grid, GOALS[goal])
    assert [Cost(*one.seconds) for one in found] == [cost for cost, _ in expected]
    for one, (_, pieces) in zip(found, expected, strict=True):
        assert one.pieces == tuple(planner.piece_of(plan, groups, tiles) for groups, tiles, plan in pieces)
        assert one.size == len(one.pieces)
        assert sum(piece.groups * piece.tiles for piece in one.pieces) == grid.groups * grid.tiles


def test_a_cover_repeats_its_runs() -> None:
    """Two groups side by side of six: the tiles of the first two, then again for the next two, and the last."""
    found = [one for one in covers(CoverGrid(6, 10, 8, 2, 3), GOALS["any"]) if one.repeated > 1]
    assert found
    for one in found:
        assert one.pieces == one.repeated * one.pieces[: one.size // one.repeated]


RECORD = json.loads(Path(__file__).with_name("plans.json").read_text())
"""Digest of the plans of a network's layers, by its name, block size and sums. Recorded with the plain recursion."""


def digest(layers: list[SpectralLayer]) -> str:
    """A digest of tiles and pieces."""
    told = hashlib.sha256()
    for layer in layers:
        told.update(repr(layer.tile).encode())
        for p in layer.pieces:
            choices = p.groups, p.tiles, p.lanes, p.baby_steps, p.copies, p.giants_on_shares, p.folds_on_shares
            told.update(repr(choices).encode())
    return told.hexdigest()[:16]


@pytest.mark.parametrize("sums", ["any", "encrypted"])
@pytest.mark.parametrize("network", NETWORKS)
def test_reference_networks_are_planned_as_recorded(network: str, sums: str) -> None:
    goal = Objective(replace(COUNTED, ring_degree=8192), LINKS["lan"], sums)
    shapes = network_shapes(network).values()
    for b in (1, 2, 4, 8, 16):
        layers = [plan_layer(shape, allowed_block_size(shape, b), goal).layer for shape in shapes]
        assert digest(layers) == RECORD[f"{network} b={b} {sums}"]
