"""The plans that papers publish for a layer. The planner's are better: these are what they are held against.

:func:`published_layer` gives what PrivCirNet, Bolt and NeuJeans do with one layer (Cheetah and Iron:
:mod:`layouts.published`):

* One lane length for the whole layer: next_pow2((H + 2 padding)^2 b) for a convolution, and for a GEMM as many tokens
  as d1 or the ciphertext has.
* d lanes with d at most min(C, K) / b, without copies of the input.
* A strided convolution at full resolution, of which the client keeps every s-th output.
* Baby and giant steps for the least HE-Rot + 0.135 HE-Pmult, every sum under encryption.

Source: PrivCirNet, sections 3.2 and 4.1 and its published cost model.

Departures: lanes come in powers of two and ciphertexts in whole numbers. The cost model has neither rule, so its totals
can be lower than what can be run. A map that no ciphertext holds is split into strips of rows.
"""

from dataclasses import replace

from papers.layouts.published import MAPS, PublishedLayer
from privcirnet.errors import RuleError
from privcirnet.he.layers import bsgs as plans
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout, next_power_of_two
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import LayerChoice, Objective, linear_cost, plan_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED


def plan_published(name: str, shape: LinearShape, block_size: int, goal: Objective) -> LayerChoice:
    """Return the one candidate that a paper publishes, as a layout of :data:`planning.planner.LAYOUTS`.

    Args:
        name: see :func:`published_named`.
        goal: gives the ring degree, and what the cost is predicted with.

    Raises:
        RuleError: see :func:`published_named`.
    """
    layer = published_named(name, shape, block_size, goal.profile.ring_degree)
    return LayerChoice(layer, goal, ((linear_cost(layer, goal.profile, goal.link), layer),))


def published_named(encoding: str, shape: LinearShape, block_size: int, ring_degree: int) -> Layer:
    """Return the layer with a paper's plan, by name of the encoding.

    Args:
        encoding: "cheetah" or "iron" (:mod:`layouts.published`); all others are those of programs.

    Raises:
        RuleError: see :func:`published_layer`, and a stride in a coefficient encoding.
    """
    if encoding in MAPS:
        return PublishedLayer(shape, block_size, ring_degree, "cheetah", maps=MAPS[encoding])
    return published_layer(shape, block_size, ring_degree)


def published_layer(shape: LinearShape, block_size: int, ring_degree: int) -> SpectralLayer:
    """Return the layer with the papers' plan; its stride is 1 (see the module's text).

    Raises:
        RuleError: channel groups, which the papers' encodings do not have, or a row that no ciphertext holds.
    """
    if shape.groups > 1:
        raise RuleError("a published plan has no channel groups", got=shape.groups, remedy="use layout=best")
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
        raise RuleError("a block must fit a ciphertext in a published plan", got=got, remedy="use layout=best")
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
        "a row of a map must fit a ciphertext in a published plan", got=f"{width} columns", remedy="use layout=best"
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


def _layer(layout: SpectralLayout, ring_degree: int, plan: plans.BsgsPlan, tiles: int) -> SpectralLayer:
    sizes = [min(tiles, layout.tiles - start) for start in range(0, layout.tiles, tiles)]
    pieces = tuple(Piece(1, size, plan.lanes, plan.baby_steps, folds_on_shares=False) for size in sizes)
    return SpectralLayer(layout.shape, layout.block_size, ring_degree, layout.tile, pieces)


def _units(layer: SpectralLayer) -> float:
    """HE-Rot + 0.135 HE-Pmult."""
    return sum(plan_cost(placed.plan, COUNTED, LINKS["local"]).total for placed in layer.placed)
