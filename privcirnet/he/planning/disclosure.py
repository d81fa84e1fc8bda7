"""What a client is given of a program's values, and how wide those values are: fixed at export, never by the client."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from privcirnet.errors import RuleError
from privcirnet.he.program import bounds
from privcirnet.he.program import operations as op
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import masked_node


def rounded(
    nodes: Sequence[Node], intervals: Mapping[str, bounds.Interval], bits: int, largest: float
) -> tuple[tuple[Node, ...], dict[str, bounds.Interval]]:
    """Return a program's nodes and their bounds with a truncation behind the logits, which leaves a few bits of each.

    Args:
        nodes: of the program, in order; the last one has the logits.
        bits: of each logit, its sign included.
        largest: the largest absolute logit that such an answer can have, real.
    """
    output, known = nodes[-1], {node.name: node for node in nodes}
    if not masked_node(known, output.name).operation.masks:
        rule, remedy = "a rounded answer needs a last layer that masks it", "use he.answer=logits"
        raise RuleError(rule, got=f"{output.operation.kind()} {output.name}", remedy=remedy)
    step = math.ceil(math.log2(max(largest, 2.0**-64))) + 1 - bits
    if (dropped := step - output.log_step) < 1:
        rule, remedy = (
            "a rounded answer must be coarser than the logits",
            "lower he.answer_bits, or use he.answer=logits",
        )
        raise RuleError(rule, got=f"steps of 2^{step} for 2^{output.log_step}", remedy=remedy)
    name = next(name for name in ("answer", "answer_", "answer__") if name not in known)
    low, high = intervals[output.name]
    answer = Node(name, op.Truncate(dropped), (output.name,), output.shape, step)
    return (*nodes, answer), {**intervals, name: (low >> dropped, -(-high >> dropped))}


def published(nodes: Sequence[Node], intervals: Mapping[str, bounds.Interval]) -> tuple[Node, ...]:
    """Return the same nodes, client-aided ones with the width of the values that the client sees."""

    def with_width(node: Node) -> Node:
        if not isinstance(node.operation, op.ClientAided):
            return node
        bits = bounds.value_bits(intervals[node.inputs[0]])
        return replace(node, operation=replace(node.operation, value_bits=bits))

    return tuple(map(with_width, nodes))
