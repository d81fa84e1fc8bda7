"""Falcon 2023's encoding of depthwise and group convolutions, with communication-aware tiling.

Maths: a :class:`coefficients.depthwise_packing.Packing` says which unit of a polynomial holds which group; inside a
unit it is Cheetah's encoding: D of the maps (times phases) of a group side by side, the filters of output k in reverse
order. With E outputs of a group in one weight polynomial a unit is E D maps long, also in the input, which fills D of
them: otherwise the outputs of one group would be met by its neighbours. Depthwise without stride: a unit is a map.

A group's maps are spread over as many input polynomials as D maps each take, at the same places in each. Their products
meet at the same outputs, so the sum over them costs products, but no ciphertext down. D = 1 packs a group convolution
exactly as a depthwise one: then bytes do not grow with the group's size, as in the paper's table III.

Cost: with C_x groups in an input polynomial and C_w in a weight polynomial, groups / C_x ciphertexts up, groups / C_w
down and as many HE-Pmult, no rotation; those up and HE-Pmult times the polynomials that a group is spread over. More
groups in an input need more zeros in the weights, so the two pull against each other. The paper minimises 1/C_x +
1/C_w in section IV-C. :func:`place` counts whole ciphertexts, weighs those up twice (they are longer), lets
C_w not divide C_x, and takes the cheapest packing of all three kinds.

A dense layer (one group) is a single unit, which is Cheetah's encoding.

Source: Xu et al., "Falcon" (ICCAD 2023), sections IV-C and IV-D. The paper's maps are "valid" convolutions; padding is
done as in :mod:`coefficients.layout`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from papers.coefficients.cheetah import UP_WEIGHT, no_window
from papers.coefficients.depthwise_packing import Packing, first_groups, scattered, side_by_side
from papers.coefficients.layout import CoefficientEncoding, Factor, Grid, Placement, balanced, grids
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring.modular import Integers

_MORE_TILES = 2
"""Smaller tiles than necessary seldom pay: grids of up to this many times the fewest tiles are tried."""


@dataclass(frozen=True)
class GroupTile:
    """How a grouped layer is split.

    Attributes:
        planes: D, maps (times phases) of a group in one input polynomial.
        outputs: E, outputs of a group in one weight polynomial.
        packing: groups of an input polynomial and their filters.
    """

    grid: Grid
    planes: int
    outputs: int
    packing: Packing


@lru_cache(maxsize=256)
def best_tile(shape: LinearShape, ring_degree: int) -> GroupTile:
    """Return the tile with the fewest bytes, then the fewest products."""
    found = list(_tiles(shape, ring_degree))
    if not found:
        raise no_window(shape, ring_degree)
    return min(found, key=lambda tile: _cost(shape, tile))


def place(shape: LinearShape, ring_degree: int) -> Placement:
    """Return where everything goes.

    Raises:
        RuleError: not even one output's window fits a polynomial.
    """
    return place_tile(shape, best_tile(shape, ring_degree))


def place_tile(shape: LinearShape, tile: GroupTile) -> Placement:
    """Return where everything goes with a given tile."""
    planes = np.arange(shape.in_channels // shape.groups * len(tile.grid.phases))
    spread = [planes[start : start + tile.planes] for start in range(0, len(planes), tile.planes)]
    inputs: list[Integers] = []
    outputs: list[Integers] = []
    factors: list[Factor] = []
    for first in range(0, shape.groups, len(tile.packing.inputs)):
        held = first_groups(tile.packing, shape.groups - first)
        for filters in held.filters:
            for channels, ends, groups in _outputs(shape, tile, filters, first):
                for source, part in enumerate(spread):
                    starts = (ends[:, None] - np.arange(len(part))) * tile.grid.pitch
                    read = (groups * len(planes))[:, None] + part
                    weights = [np.repeat(channels, len(part)), read.ravel(), starts.ravel()]
                    factors.append(Factor(len(outputs), len(inputs) + source, np.stack(weights, axis=1)))
                at = np.array(tile.packing.inputs)[groups - first] * tile.planes * tile.outputs
                outputs.append(np.stack([channels, (ends + at) * tile.grid.pitch + tile.grid.origin], axis=1))
        unit = np.array(held.inputs)[:, None] * tile.planes * tile.outputs
        owner = (first + np.arange(len(held.inputs)))[:, None] * len(planes)
        for part in spread:
            maps = (unit + np.arange(len(part))) * tile.grid.pitch
            inputs.append(np.stack([(owner + part).ravel(), maps.ravel()], axis=1))
    return Placement(tile.grid, tuple(inputs), tuple(outputs), tuple(factors))


def _outputs(
    shape: LinearShape, tile: GroupTile, filters: tuple[tuple[int, int], ...], first: int
) -> Iterator[tuple[Integers, Integers, Integers]]:
    """(output channels, unit of each one's last filter, their groups) of each weight polynomial: E of every group."""
    size = shape.out_channels // shape.groups
    group, unit = np.array(filters).T
    for start in range(0, size, tile.outputs):
        index = np.arange(min(tile.outputs, size - start))
        channels = (first + group)[:, None] * size + start + index
        ends = (unit[:, None] * tile.outputs + index) * tile.planes + tile.planes - 1
        yield channels.ravel(), ends.ravel(), np.repeat(first + group, len(index))


def _tiles(shape: LinearShape, ring_degree: int) -> Iterator[GroupTile]:
    channels, size = shape.in_channels // shape.groups, shape.out_channels // shape.groups
    for grid in _few(grids(shape, ring_degree)):
        maps, planes = ring_degree // grid.pitch, channels * len(grid.phases)
        for held in balanced(planes, min(planes, maps)):
            for outputs in balanced(size, min(size, maps // held)):
                units, rest = divmod(ring_degree, held * outputs * grid.pitch)
                packings = _side_by_side(shape.groups, units)
                if outputs == 1 or held == planes:  # the search takes too long for every split
                    packings += _scattered(shape.groups, units, rest == 0)
                for packing in packings:
                    yield GroupTile(grid, held, outputs, packing)


def _side_by_side(groups: int, units: int) -> list[Packing]:
    found = (side_by_side(channels, units) for channels in balanced(groups, min(groups, units)))
    return [packing for packing in found if packing is not None]


def _scattered(groups: int, units: int, whole: bool) -> list[Packing]:
    packing = scattered(units, whole)
    return [first_groups(packing, channels) for channels in balanced(groups, min(groups, len(packing.inputs)))]


def _few(found: list[Grid]) -> list[Grid]:
    return [grid for grid in found if grid.tiles <= _MORE_TILES * found[0].tiles]


def _cost(shape: LinearShape, tile: GroupTile) -> tuple[int, int]:
    """(bytes in polynomials down, products), without what no tile changes."""
    held, size = len(tile.packing.inputs), shape.out_channels // shape.groups
    spread = -(-shape.in_channels // shape.groups * len(tile.grid.phases) // tile.planes)
    full, rest = divmod(shape.groups, held)
    polynomials = full * len(tile.packing.filters) + len(first_groups(tile.packing, rest).filters)
    down = tile.grid.tiles * polynomials * -(-size // tile.outputs)
    return UP_WEIGHT * tile.grid.tiles * -(-shape.groups // held) * spread + down, down * spread


ENCODING = CoefficientEncoding(place, "is for channel groups", lambda shape: shape.groups > 1)
