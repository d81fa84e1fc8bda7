"""Predicted latency of every layer at every block size in leveled inference, and the depth of the network.

Each layer is planned at each of its block sizes with the largest blocks in the others, at the parameters of that
network. Operations are those of the layer's part of the circuit and of the square behind it, for all plain moduli; a
square counts as :data:`planning.leveled.bfv.plans.SQUARE` rotations.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch

from privcirnet.blocksizes.latency import Figures
from privcirnet.errors import DoesNotFit
from privcirnet.functional.circulant import admissible_block_sizes, project
from privcirnet.he.circuits.bfv.network_circuit import NetworkCircuit
from privcirnet.he.planning.fit import scaled
from privcirnet.he.planning.leveled.bfv.exact_network import ExactLayer, ExactNetwork
from privcirnet.he.planning.leveled.bfv.plans import OWN, SQUARE, fastest, planner_of
from privcirnet.he.planning.profile import Profile
from privcirnet.he.schemes.bfv.parameters import ParameterSet
from privcirnet.he.schemes.bfv.plain_moduli import LeveledParameters


@dataclass(frozen=True)
class LeveledFigures:
    """Predictions for a network.

    Attributes:
        table: by layer and block size.
        log_q: bits of q, special prime included.
    """

    table: Mapping[str, Mapping[int, Figures]]
    planner: str
    ring_degree: int
    log_q: int
    plain_moduli: int
    bits: int
    depth_products: int
    depth_squares: int

    def facts(self) -> dict[str, object]:
        """Everything but the table, as plain data."""
        return {name: value for name, value in asdict(self).items() if name != "table"}


def leveled_figures(
    network: ExactNetwork,
    block_sizes: Sequence[int],
    profile: Profile,
    padded: Collection[str] = (),
    planners: tuple[str, ...] = (),
) -> LeveledFigures:
    """Return predictions by layer and admissible block size, those that the plan has room for.

    Args:
        profile: operation times; they are scaled to the network's parameters.
        padded: layers that may be padded where a block size does not divide.
        planners: names of the plans that compete; none: those of :data:`planning.leveled.bfv.plans.OWN`.

    Raises:
        DoesNotFit: no parameters carry the network.
        RuleError: none of the plans is for such a network.
    """
    sizes = {
        layer.name: admissible_block_sizes(
            (layer.shape.out_channels, layer.shape.in_channels), tuple(block_sizes), pad=layer.name in padded
        )
        for layer in network.layers
    }
    most = {name: max(some) for name, some in sizes.items()}
    largest = with_blocks(network, most)
    name, plan, parameters = fastest(largest, planners or OWN)
    at = scaled(profile, ParameterSet(parameters.ring_degree, parameters.coefficient_bits))
    table: dict[str, dict[int, Figures]] = {}
    for layer in network.layers:
        row: dict[int, Figures] = {}
        for b in sizes[layer.name]:
            try:
                made = planner_of(name)(with_blocks(network, most | {layer.name: b}), parameters.ring_degree)
            except DoesNotFit:
                continue
            row[b] = Figures(server=seconds_of(made.circuit, layer.name, at, parameters))
        table[layer.name] = row
    facts = parameters.ring_degree, sum(parameters.coefficient_bits), len(parameters.moduli), largest.bits
    return LeveledFigures(table, name, *facts, *plan.circuit.levels)


def seconds_of(circuit: NetworkCircuit, layer: str, profile: Profile, parameters: LeveledParameters) -> float:
    """Return the server's seconds of one layer and its square."""
    seconds = profile.seconds
    parts = [circuit.counts_of(name) for name in dict.fromkeys(circuit.layers) if name.split(" ")[-1] == layer]
    counts = sum(parts[1:], parts[0])
    each = (counts["rotate"] + SQUARE * counts["square"]) * seconds["rotate"] + counts["pmult"] * seconds["pmult"]
    return len(parameters.moduli) * each


def with_blocks(network: ExactNetwork, block_sizes: Mapping[str, int]) -> ExactNetwork:
    """Return a network with some of its layers made circulant: their nearest ones, rounded.

    Args:
        block_sizes: by layer name; others stay dense.
    """
    layers = tuple(_circulant(layer, block_sizes.get(layer.name, 1)) for layer in network.layers)
    return replace(network, layers=layers)


def _circulant(layer: ExactLayer, b: int) -> ExactLayer:
    if b == layer.block_size:
        return layer
    rows = project(torch.from_numpy(layer.weight).double(), b, pad=True).round().to(torch.int64)
    return replace(layer, block_size=b, rows=np.ascontiguousarray(rows.numpy()))
