"""Residual streams: sums of sums, as every block of a transformer adds to what the blocks before it added up.

All summands of a stream share one step, the coarsest that any of them wants. In a vision transformer that is one step
for the whole network, so its summands get more bits than other activations. Layers read the stream as it is: their sums
become larger by these bits, which costs room in the plain modulus.

A value of the stream cannot be truncated again before it is read. Truncation needs shares under a fresh mask, and those
of truncated values are not uniform any more (docs/mathematics.md, "Truncation").

A sum whose activation comes before the next sum, as in a ResNet, is no stream.
"""

from torch import fx, nn

from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.steps import PASSES_STEP, groups_of, origin


def stream_summands(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the quantizers' nodes that feed residual streams.

    Args:
        graph: with quantizers.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    sums = (node for node in graph.graph.nodes if is_sum(node))
    chained = {origin(graph, source) for node in sums for source in node.all_input_nodes if _adds(graph, source)}
    return [node for group in groups_of(graph) if not chained.isdisjoint(group) for node in group]


def _adds(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node's values are a sum's, at most rearranged."""
    while not is_sum(node):
        module = module_of(graph, node)
        if isinstance(module, nn.ReLU) or not isinstance(module, PASSES_STEP):
            return False
        node = node.all_input_nodes[0]
    return True
