"""What a client is given of a program's values, and how wide those values are: fixed at export, never by the client."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from privcirnet.errors import RuleError
from privcirnet.he.planning.target import Target
from privcirnet.he.program import bounds
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Network, masked_node

Bounds = dict[str, bounds.Interval]
"""Of a network's values, by node."""


def rounded(network: Network, known: Bounds, target: Target) -> tuple[Network, Bounds]:
    """Return a network and its bounds with a truncation behind the logits, which leaves a few bits of each."""
    output, by_name = network.output, {node.name: node for node in network.nodes}
    if not masked_node(by_name, output.name).operation.masks:
        rule, remedy = "a rounded answer needs a last layer that masks it", "use he.answer=logits"
        raise RuleError(rule, got=f"{output.operation.kind()} {output.name}", remedy=remedy)
    step = math.ceil(math.log2(max(target.largest_logit, 2.0**-64))) + 1 - target.answer_bits
    if (dropped := step - output.log_step) < 1:
        rule, remedy = (
            "a rounded answer must be coarser than the logits",
            "lower he.answer_bits, or use he.answer=logits",
        )
        raise RuleError(rule, got=f"steps of 2^{step} for 2^{output.log_step}", remedy=remedy)
    low, high = known[output.name]
    return _ending(network, known, op.Truncate(dropped), step, (low >> dropped, -(-high >> dropped)))


def classified(network: Network, known: Bounds, target: Target) -> tuple[Network, Bounds]:
    """Return a network and its bounds with the class behind the logits, the first of those with the largest."""
    count, (low, high) = network.output.shape[0], known[network.output.name]
    if network.output.shape != (count, 1, 1) or count < 2:
        rule, remedy = "the class alone needs two logits or more", "use he.answer=logits"
        raise RuleError(rule, got=f"values of shape {network.output.shape}", remedy=remedy)
    largest = op.Top1(count, int(low.min()), int(high.max()))
    return _ending(network, known, largest, 0, largest.interval(low, high))


def _ending(
    network: Network, known: Bounds, operation: op.Operation, log_step: int, interval: bounds.Interval
) -> tuple[Network, Bounds]:
    """The network and its bounds with one operation more."""
    output = network.output
    name = next(name for name in ("answer", "answer_", "answer__") if name not in known)
    node = Node(name, operation, (output.name,), operation.shape_after([output.shape]), log_step)
    return Network((*network.nodes, node), network.weights), {**known, name: interval}


ANSWERING = {"rounded": rounded, "top1": classified}
"""What puts an answer behind the logits, by its name."""


def published(nodes: Sequence[Node], intervals: Mapping[str, bounds.Interval]) -> tuple[Node, ...]:
    """Return the same nodes, client-aided ones with the width of the values that the client sees."""

    def with_width(node: Node) -> Node:
        if not isinstance(node.operation, op.ClientAided):
            return node
        bits = bounds.value_bits(intervals[node.inputs[0]])
        return replace(node, operation=replace(node.operation, value_bits=bits))

    return tuple(map(with_width, nodes))
