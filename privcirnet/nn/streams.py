"""Residual streams: sums of sums, as every block of a transformer adds to what the blocks before it added up.

All summands of a stream share one step, the coarsest that any of them wants. In a vision transformer that is one step
for the whole network, so it needs more bits than other activations. Layers that read the stream need no more than
usual: each gets its own step, in front of it, fit to what the stream holds there.

A sum whose activation comes before the next sum, as in a ResNet, begins and ends by itself; it is no stream.
"""

from torch import fx, nn

from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.steps import PASSES_STEP, groups_of, origin


def stream_summands(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the quantizers' nodes that feed residual streams, in order.

    Args:
        graph: with quantizers.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    chained = {
        origin(graph, source)
        for node in graph.graph.nodes
        if is_sum(node)
        for source in node.all_input_nodes
        if _adds(graph, source)
    }
    return [node for group in groups_of(graph) if not chained.isdisjoint(group) for node in group]


def readers_of_streams(graph: fx.GraphModule) -> dict[fx.Node, list[fx.Node]]:
    """Return the nodes that compute with a stream's values, by the node that hands them these values.

    Sums and modules that only rearrange values belong to the stream itself, and so does the network's output.

    Args:
        graph: with quantizers.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    carriers = dict.fromkeys(stream_summands(graph))
    for node in graph.graph.nodes:
        if carriers.keys() & node.all_input_nodes and _carries(graph, node):
            carriers[node] = None
    strangers = {node: [user for user in node.users if not (user in carriers or user.op == "output")] for node in carriers}
    return {node: users for node, users in strangers.items() if users}


def _adds(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node's values are a sum's, at most rearranged."""
    while not is_sum(node):
        module = module_of(graph, node)
        if isinstance(module, nn.ReLU) or not isinstance(module, PASSES_STEP):
            return False
        node = node.all_input_nodes[0]
    return True


def _carries(graph: fx.GraphModule, node: fx.Node) -> bool:
    return is_sum(node) or isinstance(module_of(graph, node), PASSES_STEP)
