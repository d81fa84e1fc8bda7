"""Falcon 2023's encoding of depthwise and group convolutions, with communication-aware tiling.

Maths: which unit of a polynomial holds which group is a :class:`packing.Packing`; inside a unit it is Cheetah's
encoding: the G_in maps (times phases) of a group side by side, the filters of output k in reverse order. With E outputs
of a group in one weight polynomial a unit is E G_in maps long, also in the input, which fills G_in of them: otherwise
the outputs of one group would be met by its neighbours. Depthwise without stride: a unit is a map.

Cost: with C_x groups in an input polynomial and C_w in a weight polynomial, groups / C_x ciphertexts up, groups / C_w
down and as many HE-Pmult, no rotation. More groups in an input need more zeros in the weights, so the two pull against
each other. :func:`paper_tiling` minimises 1/C_x + 1/C_w as in section IV-C. :func:`place` counts whole ciphertexts,
weighs those up twice (they are longer), lets C_w not divide C_x, and takes the cheapest packing of all three kinds.

A dense layer (one group) is a single unit; where it does not fit a polynomial, Cheetah's encoding is the one to use.

Source: Xu et al., "Falcon" (ICCAD 2023), sections IV-C and IV-D. The paper's maps are "valid" convolutions; padding is
done as in :mod:`encodings.coefficient_layout`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.encodings.cheetah import UP_WEIGHT
from privcirnet.he.encodings.coefficient_layout import Factor, Grid, Placement, balanced, grids
from privcirnet.he.encodings.packing import Packing, first_groups, scattered, side_by_side
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.ring.modular import Integers

_MORE_TILES = 2
"""Smaller tiles than necessary seldom pay: grids of up to this many times the fewest tiles are tried."""


def paper_tiling(height: int, width: int, channels: int, ring_degree: int) -> tuple[int, int]:
    """Return the paper's (C_x, C_w): least 1/C_x + 1/C_w with (C_x + 2) C_w <= 2 N / (H W) + 2 and C_w dividing C_x.

    The larger C_w is taken where sums are equal; C_w = 1 counts as one filter in C_x units.

    Args:
        height: H.
        width: W.
        channels: most groups of an input polynomial.
        ring_degree: N.

    Raises:
        RuleError: a map does not fit a polynomial.

    Source: Xu et al., "Falcon" (ICCAD 2023), section IV-C.
    """
    maps = ring_degree // (height * width)
    tilings = [
        (x, w)
        for x in range(1, min(maps, channels) + 1)
        for w in range(1, x + 1)
        if x % w == 0
        and (w == 1 or (w % 2 == 0 and (x + 2) * w * height * width <= 2 * ring_degree + 2 * height * width))
    ]
    if not tilings:
        raise RuleError(
            "a map must fit one polynomial", got=f"{height} x {width} at ring degree {ring_degree}",
            remedy="use a larger ring degree",
        )  # fmt: skip
    return min(tilings, key=lambda t: (1 / t[0] + 1 / t[1], -t[1]))


@dataclass(frozen=True)
class GroupTile:
    """How a grouped layer is split.

    Attributes:
        grid: how the maps are split.
        outputs: E, outputs of a group in one weight polynomial.
        packing: groups of an input polynomial and their filters.
    """

    grid: Grid
    outputs: int
    packing: Packing


@lru_cache(maxsize=256)
def best_tile(shape: LinearShape, ring_degree: int) -> GroupTile:
    """Return the tile with the fewest bytes, then the fewest products.

    Args:
        shape: of the layer.
        ring_degree: n.

    Raises:
        RuleError: one group's inputs do not fit a polynomial.
    """
    found = list(_tiles(shape, ring_degree))
    if not found:
        raise RuleError(
            "one group's input channels must fit one polynomial",
            got=f"{shape.in_channels // shape.groups} channels a group at ring degree {ring_degree}",
            remedy="use the encoding cheetah or a larger ring degree",
        )
    return min(found, key=lambda tile: _cost(shape, tile))


def place(shape: LinearShape, ring_degree: int) -> Placement:
    """Return where everything goes.

    Args:
        shape: of the layer.
        ring_degree: n.

    Raises:
        RuleError: one group's inputs do not fit a polynomial.
    """
    return place_tile(shape, best_tile(shape, ring_degree))


def place_tile(shape: LinearShape, tile: GroupTile) -> Placement:
    """Return where everything goes with a given tile.

    Args:
        shape: of the layer.
        tile: how it is split.
    """
    grid, packing = tile.grid, tile.packing
    planes = shape.in_channels // shape.groups * len(grid.phases)
    inputs: list[Integers] = []
    outputs: list[Integers] = []
    factors: list[Factor] = []
    for first in range(0, shape.groups, len(packing.inputs)):
        held = first_groups(packing, shape.groups - first)
        maps = np.array(held.inputs)[:, None] * planes * tile.outputs + np.arange(planes)
        numbers = (first + np.arange(len(held.inputs)))[:, None] * planes + np.arange(planes)
        for filters in held.filters:
            for weights, results in _polynomials(shape, tile, filters, first):
                factors.append(Factor(len(outputs), len(inputs), weights))
                outputs.append(results)
        inputs.append(np.stack([numbers.ravel(), maps.ravel() * grid.pitch], axis=1))
    return Placement(grid, tuple(inputs), tuple(outputs), tuple(factors))


def _polynomials(
    shape: LinearShape, tile: GroupTile, filters: tuple[tuple[int, int], ...], first: int
) -> Iterator[tuple[Integers, Integers]]:
    """(filters, outputs) of each weight polynomial: one for every E outputs of a group."""
    planes, size = shape.in_channels // shape.groups * len(tile.grid.phases), shape.out_channels // shape.groups
    group, unit = np.array(filters).T
    at = np.array(tile.packing.inputs)[group]
    for start in range(0, size, tile.outputs):
        index = np.arange(min(tile.outputs, size - start))
        channels = ((first + group)[:, None] * size + start + index).ravel()
        ends = (unit[:, None] * tile.outputs + index).ravel() * planes + planes - 1
        plane = np.arange(planes)
        of_group = np.repeat(first + group, len(index))[:, None] * planes + plane
        starts = (ends[:, None] - plane) * tile.grid.pitch
        weights = np.stack([np.repeat(channels, planes), of_group.ravel(), starts.ravel()], axis=1)
        results = (ends + np.repeat(at, len(index)) * planes * tile.outputs) * tile.grid.pitch + tile.grid.origin
        yield weights, np.stack([channels, results], axis=1)


def _tiles(shape: LinearShape, ring_degree: int) -> Iterator[GroupTile]:
    planes, size = shape.in_channels // shape.groups, shape.out_channels // shape.groups
    for grid in _few(grids(shape, ring_degree)):
        group = planes * len(grid.phases) * grid.pitch
        for outputs in balanced(size, min(size, ring_degree // group)) if group <= ring_degree else ():
            units, rest = divmod(ring_degree, group * outputs)
            for packing in _packings(shape.groups, units, rest == 0):
                yield GroupTile(grid, outputs, packing)


def _packings(groups: int, units: int, whole: bool) -> Iterator[Packing]:
    for channels in balanced(groups, min(groups, units)):
        packing = side_by_side(channels, units)
        if packing is not None:
            yield packing
    packing = scattered(units, whole)
    for channels in balanced(groups, min(groups, len(packing.inputs))):
        yield first_groups(packing, channels)


def _few(found: list[Grid]) -> list[Grid]:
    return [grid for grid in found if grid.tiles <= _MORE_TILES * found[0].tiles]


def _cost(shape: LinearShape, tile: GroupTile) -> tuple[int, int]:
    """(bytes in polynomials down, products), without what no tile changes."""
    held, parts = len(tile.packing.inputs), -(-shape.out_channels // shape.groups // tile.outputs)
    full, rest = divmod(shape.groups, held)
    polynomials = full * len(tile.packing.filters) + len(first_groups(tile.packing, rest).filters)
    products = tile.grid.tiles * polynomials * parts
    return UP_WEIGHT * tile.grid.tiles * -(-shape.groups // held) + products, products
