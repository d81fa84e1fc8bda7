"""Predicted latency of every layer at every block size: the LAT of the integer program (PrivCirNet, Equation 3).

For a profile and a link, equal shapes are planned once: the planner caches its results. An inverted residual's project
and the next one's expand may be composed to one product (:mod:`privcirnet.passes.compose`), which saves a round and
costs products; whether it pays depends on both sizes, so the integer program decides it with these
(:mod:`privcirnet.blocksize_search.solve`).
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cache
from math import prod

import torch
from torch import Tensor, nn

from privcirnet.blocksize_search.assignment import LATENCY, Composable
from privcirnet.errors import Errors, RuleError
from privcirnet.he.layers.layer import Layer, stacked_shape
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Cost, Objective, linear_cost, online_cost, online_seconds, operation_cost
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import Profile
from privcirnet.he.planning.stacks import sizes
from privcirnet.he.program.operation import Node
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import admissible_block_sizes
from privcirnet.nn.graph import WeightedLayer, evaluating
from privcirnet.passes.compose import Pair, pairs
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.layers import linear_shape

_BYTES, _ROUNDS = NetworkLink(bandwidth=1.0, round_trip=0.0), NetworkLink(bandwidth=math.inf, round_trip=1.0)
"""Links with one second for each byte or for each round trip, to count these with the cost model."""
CAPS = {
    "sent": "bytes of traffic",
    "memory": "bytes of memory",
    "online": "online seconds",
    "seconds": "seconds of preparation",
}
"""Predictions of a layer that may be limited besides the budget -> their names in messages."""


@dataclass(frozen=True)
class CostPrediction:
    """The predictions for one encrypted linear layer or activation, or for several together.

    Attributes:
        server: seconds.
        client: seconds, to encrypt and to decrypt.
        network: seconds, for the bytes and the round trips.
        sent: bytes, both ways.
        memory: bytes of weights that the server keeps encoded.
        online: seconds when the image comes, after all preparation: for a layer the server's, 0 if the profile was
            measured without; for an activation both parties', with the messages.
    """

    server: float = 0.0
    client: float = 0.0
    network: float = 0.0
    sent: float = 0.0
    rounds: int = 0
    memory: int = 0
    online: float = 0.0

    def __add__(self, other: "CostPrediction") -> "CostPrediction":
        return CostPrediction(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def seconds(self) -> float:
        """Server, client and network together, of the preparation."""
        return self.server + self.client + self.network

    @property
    def total(self) -> float:
        """Seconds of the preparation and with the image."""
        return self.seconds + self.online

    @property
    def total_server(self) -> float:
        """Seconds of the server alone."""
        return self.server + self.online


FigureTable = Mapping[str, Mapping[int, CostPrediction]]


def layer_shapes(model: nn.Module, image: torch.Tensor) -> dict[str, LinearShape]:
    """Return the dimensions of every linear layer and convolution, by module name, seen by running one image.

    A linear layer on T tokens is the GEMM (T, in, out).

    Args:
        image: (1, C, H, W).

    Raises:
        RuleError: a layer runs twice (its weights would be exported once), or has no encrypted form; of several layers
            the first error, which stands for all.
    """
    shapes, errors = dict[str, LinearShape](), Errors()

    def record(name: str, module: WeightedLayer, inputs: tuple[torch.Tensor, ...]) -> None:
        if name in shapes:
            raise RuleError("a layer must run once an image", got=name, remedy="give each use its own layer")
        size: tuple[int, ...] = tuple(inputs[0].shape[1:])
        if isinstance(module, nn.Linear) and len(size) > 1:
            shapes[name] = LinearShape.gemm(prod(size[:-1]), module.in_features, module.out_features)
        elif len(size) in (1, 3) and not isinstance(module, nn.Conv1d):
            channels, height, width = (*size, 1, 1)[:3]
            shapes[name] = linear_shape(module, (channels, height, width), name)
        else:
            got, remedy = f"{name} on {size}", "leave the layer out"
            raise RuleError("a layer's input must be an image, tokens or a vector", got=got, remedy=remedy)

    layers = [(name, m) for name, m in model.named_modules() if isinstance(m, WeightedLayer)]

    def see(name: str, module: WeightedLayer, inputs: tuple[torch.Tensor, ...]) -> None:
        with errors.collected():
            record(name, module, inputs)

    handles = [
        module.register_forward_hook(lambda _, inputs, output, name=name, module=module: see(name, module, inputs))
        for name, module in layers
    ]
    try:
        with evaluating(model), torch.no_grad():
            model(image)
    finally:
        for handle in handles:
            handle.remove()
    errors.check()
    return shapes


def figure_table(
    shapes: Mapping[str, LinearShape],
    block_sizes: Sequence[int],
    goal: Objective,
    padded: Collection[str] = (),
    together: int = 1,
) -> dict[str, dict[int, CostPrediction]]:
    """Return predictions by layer and admissible block size, each with its cheapest plan.

    Args:
        padded: layers that may be padded where a block size does not divide.
        together: number of images that are prepared at once: a layer is priced by the stack (:mod:`planning.stacks`)
            that takes the fewest seconds an image, if that is fewer than one image takes.
    """
    table: dict[str, dict[int, CostPrediction]] = {}

    @cache
    def figures(shape: LinearShape, b: int) -> CostPrediction:
        profile, link = goal.profile, goal.link
        single = figures_of_layer(cheapest_layer(shape, b, profile, link), profile, link)
        stacks = ((k, cheapest_layer(stacked_shape(shape, k), b, profile, link)) for k in sizes(together))
        several = (_stacked(single, figures_of_layer(layer, profile, link), k) for k, layer in stacks)
        return min((single, *several), key=lambda cost: cost.seconds)

    for name, shape in shapes.items():
        dimensions = (shape.out_channels, shape.in_channels)
        admissible = admissible_block_sizes(dimensions, tuple(block_sizes), pad=name in padded)
        table[name] = {b: figures(shape, b) for b in (admissible if shape.groups == 1 else (1,))}
    return table


def _stacked(single: CostPrediction, whole: CostPrediction, images: int) -> CostPrediction:
    """Return an image's part of a stack, whose weights the server keeps besides those of single images."""
    server, client, network, sent = (part / images for part in (whole.server, whole.client, whole.network, whole.sent))
    return CostPrediction(server, client, network, sent, 1, single.memory + whole.memory, single.online)


def seconds_of(table: FigureTable) -> dict[str, dict[int, float]]:
    """Return the latency of every entry, in seconds."""
    return amounts_of(table, "seconds")


def amounts_of(table: FigureTable, what: str) -> dict[str, dict[int, float]]:
    """Return one attribute of :class:`CostPrediction` of every entry."""
    return {name: {b: getattr(figures, what) for b, figures in row.items()} for name, row in table.items()}


def figures_of(table: FigureTable, block_sizes: Mapping[str, int]) -> CostPrediction:
    """Return the sum of an assignment's predictions over a network."""
    return sum((table[name][b] for name, b in block_sizes.items()), CostPrediction())


def figures_of_layer(layer: Layer, profile: Profile, link: NetworkLink) -> CostPrediction:
    """Return the predictions for one planned layer."""
    cost = linear_cost(layer, profile, link)
    sent = linear_cost(layer, profile, _BYTES).network
    memory = layer.circuit.weight_bytes(profile.ring_degree, profile.coefficient_bits)
    online = online_seconds(layer.shape, layer.block_size, profile)
    return CostPrediction(cost.server, cost.client_encrypt + cost.client_decrypt, cost.network, sent, 1, memory, online)


def figures_of_nodes(nodes: Sequence[Node], profile: Profile, link: NetworkLink) -> CostPrediction:
    """Return the predictions for nodes without layers, such as exact steps and squares."""

    def total(link: NetworkLink, cost: Callable[..., Cost] = operation_cost) -> Cost:
        return sum((cost(node.operation, node.shape, profile, link) for node in nodes), Cost())

    cost, online = total(link), total(link, online_cost).total
    sent, rounds = (total(count).network for count in (_BYTES, _ROUNDS))
    client = cost.client_encrypt + cost.client_decrypt
    return CostPrediction(cost.server, client, cost.network, sent, round(rounds), online=online)


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
