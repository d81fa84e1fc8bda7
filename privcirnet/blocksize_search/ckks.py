"""Predicted latency of every layer of a residual network on bootstrapped CKKS, and its depth.

A circulant layer runs as a dense one there: its blocks would need a transform over the channels and its inverse, a
level each, and so a bootstrapping for each convolution (papers/ckks.md). So every block size of a layer takes the same
seconds in the search.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from privcirnet.blocksize_search.latency import CostPrediction
from privcirnet.he.ckks.network import CkksNetwork
from privcirnet.he.ckks.program import CkksProgram, Rehearsed, part_of, predicted
from privcirnet.nn.functional.circulant import admissible_block_sizes

_BOOTSTRAPPING = " bootstrapping"


@dataclass(frozen=True)
class CkksFigures:
    """Predictions for a network.

    Attributes:
        table: predictions by layer and block size; all block sizes of a layer have the same.
    """

    table: Mapping[str, Mapping[int, CostPrediction]]
    rehearsed: Rehearsed

    def facts(self) -> dict[str, object]:
        """Return everything but the table, as plain data."""
        circuit, counting = self.rehearsed.circuit, self.rehearsed.counting
        parameters, seconds = circuit.bootstrapping.parameters, predicted(circuit, counting)
        layer_maps = [linear_map for linear_map in counting.maps if not part_of(linear_map.layer)]
        bootstrapping = sum(part_seconds for name, part_seconds in seconds.items() if name.endswith(_BOOTSTRAPPING))
        return {
            "ring_degree": parameters.ring_degree,
            "log_q": parameters.log_q,
            "levels": parameters.levels,
            "bootstrappings": self.rehearsed.bootstrappings,
            "precision_bits": self.rehearsed.reply.precision_bits,
            "depth_squares": len(circuit.network.nodes),
            "diagonals": sum(linear_map.products for linear_map in layer_maps),
            "rotations": sum(linear_map.rotations for linear_map in layer_maps),
            "bytes_keys_server": self.rehearsed.key_bytes,
            "seconds_bootstrapping": bootstrapping,
            "seconds_layers": sum(seconds.values()) - bootstrapping,
        }


def ckks_figures(program: CkksProgram, block_sizes: Sequence[int], padded: Collection[str] = ()) -> CkksFigures:
    """Return predictions by layer and admissible block size, in processor seconds.

    A layer's seconds are those of its linear maps. The first convolution of a sum also has the steps on the sum: its
    bootstrapping, and its phases before a stride.

    Args:
        padded: layers that may be padded where a block size does not divide.

    Raises:
        RuleError: the simulator refuses the circuit.
    """
    rehearsed = program.rehearsed(0)
    seconds, shapes = predicted(rehearsed.circuit, rehearsed.counting), _shapes(program.sums)
    for node in program.sums.nodes:
        first = next(term.layer.name for term in node.terms if term.layer)
        seconds[first] += sum(seconds.get(name, 0.0) for name in (node.name, f"{node.name}{_BOOTSTRAPPING}"))
    memory = {name: 0 for name in shapes}
    for linear_map in rehearsed.counting.maps:
        if linear_map.layer in memory:
            memory[linear_map.layer] += 16 * program.bootstrapping.parameters.ring_degree * linear_map.products
    table = {
        name: dict.fromkeys(
            admissible_block_sizes(shape, tuple(block_sizes), pad=name in padded),
            CostPrediction(server=seconds[name], memory=memory[name]),
        )
        for name, shape in shapes.items()
    }
    return CkksFigures(table, rehearsed)


def _shapes(network: CkksNetwork) -> dict[str, tuple[int, int]]:
    """Return the numbers of outputs and inputs of every layer."""
    layers = [term.layer for node in network.nodes for term in node.terms if term.layer]
    convolutions = {layer.name: layer.weights.shape[:2] for layer in layers}
    return {name: (k, c) for name, (k, c) in [*convolutions.items(), (network.head, network.weights.shape)]}
