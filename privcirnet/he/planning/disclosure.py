"""The part of a program's result that a client is given: fixed at export, never by the client."""

from privcirnet.errors import RuleError
from privcirnet.he.program import bounds
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Network

Bounds = dict[str, bounds.Interval]
"""Bounds of a network's values, by node."""


def classified(network: Network, intervals: Bounds) -> tuple[Network, Bounds]:
    """Return a network and its bounds with the class behind the logits, the first of those with the largest."""
    output, count, (low, high) = network.output, network.output.shape[0], intervals[network.output.name]
    if output.shape != (count, 1, 1) or count < 2:
        rule, remedy = "the class alone needs two logits or more", "use he.answer=logits"
        raise RuleError(rule, got=f"values of shape {output.shape}", remedy=remedy)
    largest = op.Top1(count, int(low.min()), int(high.max()))
    name = next(name for name in ("answer", "answer_", "answer__") if name not in intervals)
    node = Node(name, largest, (output.name,), largest.shape_after([output.shape]), 0)
    return Network((*network.nodes, node), network.weights), {**intervals, name: largest.interval(low, high)}
