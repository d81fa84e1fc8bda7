"""Residual streams: sums of sums, as every block of a transformer adds to what the blocks before it added up.

All summands of a stream share one step, the coarsest that any of them wants. In a vision transformer that is one step
for the whole network, so its summands get more bits than other activations. Layers read the stream as it is, and their
sums become larger by these bits, which costs room in the plain modulus.

The stream is not truncated again before it is read, and programs that do so are refused: the bounds on truncation are
those of shares under a fresh mask, and shares of truncated values are no longer uniform (docs/mathematics.md,
"Truncation").

Convolutional networks are left as they are. In a ResNet an activation ends every sum; MobileNetV2 adds up at most four
convolutions before the next one begins anew.
"""

from torch import fx, nn

from privcirnet.nn.graph import is_sum, module_of
from privcirnet.nn.modules import row_of
from privcirnet.nn.steps import groups_of, origins


def stream_summands(graph: fx.GraphModule) -> list[fx.Node]:
    """Return the quantizers' nodes that feed residual streams: sums of sums with a linear layer among the summands.

    Raises:
        RuleError: a summand does not come from a quantized activation.
    """
    sums = (node for node in graph.graph.nodes if is_sum(node))
    chained = {origin for node in sums for s in node.all_input_nodes if _adds(graph, s) for origin in origins(graph, s)}
    groups = [group for group in groups_of(graph) if not chained.isdisjoint(group)]
    return [node for group in groups if any(_rounds_linear(graph, member) for member in group) for node in group]


def _rounds_linear(graph: fx.GraphModule, node: fx.Node) -> bool:
    return isinstance(module_of(graph, node.all_input_nodes[0]), nn.Linear)


def _adds(graph: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node's values are a sum's, at most rearranged."""
    while not is_sum(node):
        module = module_of(graph, node)
        if row_of(module).limits or not row_of(module).keeps_step:
            return False
        node = node.all_input_nodes[0]
    return True
