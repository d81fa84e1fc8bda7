"""Predicted cost of composed layers: an inverted residual's project and the next one's expand in one product.

It saves a round and costs products (:mod:`privcirnet.passes.compose`); whether it pays depends on both sizes. The
integer program decides it with the block sizes (:mod:`privcirnet.blocksize_search.solve`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor, nn

from privcirnet.blocksize_search.assignment import LATENCY, Composable
from privcirnet.blocksize_search.constraints import CAPS
from privcirnet.blocksize_search.latency import CostPrediction, FigureTable, amounts_of, figures_of_layer, layer_shapes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import NetworkLink, Profile
from privcirnet.nn.circulant import block_size_of
from privcirnet.passes.compose import Pair, pairs
from privcirnet.passes.fuse import fuse


def composed_shape(pair: Pair, shapes: Mapping[str, LinearShape]) -> LinearShape:
    """Return the dimensions of the layer that takes the place of both."""
    first, second = shapes[pair.first], shapes[pair.second]
    inputs = first.in_channels + first.out_channels * pair.residual
    return replace(second, in_channels=inputs, out_channels=second.out_channels + first.out_channels * pair.kept)


def composed_figures(
    pairs: Sequence[Pair],
    shapes: Mapping[str, LinearShape],
    table: FigureTable,
    profile: Profile,
    link: NetworkLink,
) -> dict[str, dict[int, CostPrediction]]:
    """Return predictions for composed layers, by the second layer's name and block size, each with its cheapest plan.

    Args:
        table: predictions for the single layers; block sizes that both have and that divide the channels count.
    """
    composed: dict[str, dict[int, CostPrediction]] = {}
    for pair in pairs:
        shape, between = composed_shape(pair, shapes), shapes[pair.first].out_channels
        whole = (shape.in_channels, shape.out_channels, between)
        sizes = [b for b in table[pair.first] if b in table[pair.second] and not any(size % b for size in whole)]
        planned = {b: cheapest_layer(shape, b, profile, link) for b in sizes}
        composed[pair.second] = {b: figures_of_layer(layer, profile, link) for b, layer in planned.items()}
    return composed


def composables(pairs: Sequence[Pair], figures: FigureTable, limited: str) -> list[Composable]:
    """Return the pairs as the integer program knows them."""
    tables = {name: amounts_of(figures, what) for what, name in CAPS.items()} | {LATENCY: amounts_of(figures, limited)}
    return [
        Composable(pair.first, pair.second, {name: table[pair.second] for name, table in tables.items()})
        for pair in pairs
    ]


def worth_composing(
    model: nn.Module, image: Tensor, profile: Profile, link: NetworkLink, what: str = "seconds"
) -> list[str]:
    """Return the names of layers of a circulant network that are faster as one with the layer before, by prediction.

    Args:
        model: network that is not fused; left as it was.
        image: (1, C, H, W).
    """
    composable, shapes = pairs(fuse(model)), layer_shapes(model, image)
    table: dict[str, dict[int, CostPrediction]] = {}
    for name in (name for pair in composable for name in (pair.first, pair.second)):
        b = block_size_of(model.get_submodule(name))
        table[name] = {b: figures_of_layer(cheapest_layer(shapes[name], b, profile, link), profile, link)}
    composed = composed_figures(composable, shapes, table, profile, link)

    def gain(pair: Pair, b: int) -> float:
        separate = table[pair.first][b] + table[pair.second][b]
        return getattr(separate, what) - getattr(composed[pair.second][b], what)

    return [pair.second for pair in composable for b in composed[pair.second] if gain(pair, b) > 0]
