"""What composed layers would cost: an inverted residual's project and the next one's expand in one product.

Whether that is faster depends on both layers' sizes: it saves a round and costs products (:mod:`privcirnet.nn.compose`).
The integer program decides it with the block sizes (:mod:`privcirnet.blocksizes.solve`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from privcirnet.blocksizes.assignment import LATENCY, Composable
from privcirnet.blocksizes.latency import Figures, FigureTable, amounts_of, figures_of_layer
from privcirnet.blocksizes.rules import CAPS
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import Link, Profile
from privcirnet.nn.compose import Pair


def composed_shape(pair: Pair, shapes: Mapping[str, LinearShape]) -> LinearShape:
    """Return the dimensions of the layer that takes the place of both.

    Args:
        pair: two layers.
        shapes: dimensions by layer name.
    """
    first, second = shapes[pair.first], shapes[pair.second]
    inputs = first.in_channels + first.out_channels * pair.residual
    return replace(second, in_channels=inputs, out_channels=second.out_channels + first.out_channels * pair.kept)


def composed_figures(  # noqa: PLR0913, PLR0917 - those of figure_table, and what they are for
    pairs: Sequence[Pair],
    shapes: Mapping[str, LinearShape],
    table: FigureTable,
    profile: Profile,
    link: Link,
    family: str = "spectral",
) -> dict[str, dict[int, Figures]]:
    """Return predictions for composed layers, by the second layer's name and block size, each with its cheapest plan.

    Args:
        pairs: that can be composed.
        shapes: dimensions by layer name.
        table: of the single layers; block sizes that both have and that divide the channels are looked at.
        profile: operation times.
        link: network between client and server.
        family: encodings to choose from.
    """
    found: dict[str, dict[int, Figures]] = {}
    for pair in pairs:
        shape, between = composed_shape(pair, shapes), shapes[pair.first].out_channels
        whole = (shape.in_channels, shape.out_channels, between)
        sizes = [b for b in table[pair.first] if b in table[pair.second] and not any(size % b for size in whole)]
        planned = {b: cheapest_layer(shape, b, profile, link, family) for b in sizes}
        found[pair.second] = {b: figures_of_layer(layer, profile, link) for b, layer in planned.items()}
    return found


def composables(pairs: Sequence[Pair], figures: FigureTable, limited: str) -> list[Composable]:
    """Return the pairs as the integer program knows them.

    Args:
        pairs: that can be composed.
        figures: predictions for composed layers.
        limited: name of the prediction that the budget limits.
    """
    tables = {name: amounts_of(figures, what) for what, name in CAPS.items()} | {LATENCY: amounts_of(figures, limited)}
    return [
        Composable(pair.first, pair.second, {name: table[pair.second] for name, table in tables.items()})
        for pair in pairs
    ]
