"""The plan as the papers publish it, for comparison: what PrivCirNet, Bolt and NeuJeans do with one layer.

One lane length for the whole layer, next_pow2((H + 2 padding)^2 b) for a convolution and as many tokens as d1 or the
ciphertext has for a GEMM; d lanes with d at most min(C, K) / b, without copies of the input; a strided convolution at
full resolution, the client keeping every s-th output; baby and giant steps for the least HE-Rot + 0.135 HE-Pmult; every
sum under encryption. Source: PrivCirNet, sections 3.2 and 4.1 and its published cost model.

Departures: lanes come in powers of two and ciphertexts in whole numbers (the cost model has neither rule, so its totals
can be lower than what can be run), and a map that no ciphertext holds is cut into strips of rows.
"""

from dataclasses import replace

from privcirnet.errors import RuleError
from privcirnet.he.encodings import bsgs as plans
from privcirnet.he.encodings.layout import SpectralLayout, next_power_of_two
from privcirnet.he.encodings.pieces import Piece
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.encodings.spectral_layer import LinearLayer
from privcirnet.he.planning.cost import COUNTED, LINKS, plan_cost


def published_layer(shape: LinearShape, block_size: int, ring_degree: int) -> LinearLayer:
    """The layer with the papers' plan; its stride is 1 (see the module's text).

    Raises:
        RuleError: channel groups, which the papers' encodings do not have, or a row that no ciphertext holds.
    """
    if shape.groups > 1:
        raise RuleError("a published plan has no channel groups", got=shape.groups, remedy="use plan=best")
    dense = replace(shape, stride=1)
    layout = _layout(dense, block_size, ring_degree)
    options = [
        _layer(layout, ring_degree, plan, tiles)
        for lanes, tiles in _lanes(layout, ring_degree)
        for plan in plans.candidates(lanes, layout.blocks_in, layout.blocks_out, on_shares=False)
        if plan.copies == 1
    ]
    if not options:
        got = f"block size {block_size} at {shape.height} x {shape.width}"
        raise RuleError("a block must fit a ciphertext in a published plan", got=got, remedy="use plan=best")
    return min(options, key=_units)


def _layout(shape: LinearShape, block_size: int, ring_degree: int) -> SpectralLayout:
    whole = SpectralLayout.whole(shape, block_size)
    if shape.kernel == 1 or whole.cell <= ring_degree:
        return whole
    _, height, width = shape.output_shape
    for strips in range(2, height + 1):
        layout = SpectralLayout(shape, block_size, (-(-height // strips), width))
        if layout.cell <= ring_degree:
            return layout
    raise RuleError(
        "a row of a map must fit a ciphertext in a published plan", got=f"{width} columns", remedy="use plan=best"
    )


def _lanes(layout: SpectralLayout, ring_degree: int) -> list[tuple[int, int]]:
    """(lanes, tiles in a lane) for every d."""
    shape, found = layout.shape, list[tuple[int, int]]()
    lanes = 1
    while lanes <= min(layout.blocks_in, layout.blocks_out, ring_degree // 2):
        slots = ring_degree // lanes
        if shape.kernel == 1 and slots >= layout.block_size:
            found.append((lanes, min(layout.tiles, slots // layout.block_size)))
        padded = (shape.height + 2 * shape.padding) * (shape.width + 2 * shape.padding) * layout.block_size
        if shape.kernel > 1 and slots >= min(next_power_of_two(padded), ring_degree):
            found.append((lanes, 1))
        lanes *= 2
    return found


def _layer(layout: SpectralLayout, ring_degree: int, plan: plans.LinearPlan, tiles: int) -> LinearLayer:
    sizes = [min(tiles, layout.tiles - start) for start in range(0, layout.tiles, tiles)]
    pieces = tuple(Piece(1, size, plan.lanes, plan.baby_steps, folds_on_shares=False) for size in sizes)
    return LinearLayer(layout.shape, layout.block_size, ring_degree, layout.tile, pieces)


def _units(layer: LinearLayer) -> float:
    """HE-Rot + 0.135 HE-Pmult."""
    return sum(plan_cost(placed.plan, COUNTED, LINKS["local"]).total for placed in layer.placed)
