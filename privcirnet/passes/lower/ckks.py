"""A trained network becomes one that CKKS runs: batch norms and AESPA folded away, real weights, squares.

What is folded: :mod:`privcirnet.passes.fuse`. What is left are sums of convolutions and squares, each squared, and a
classifier of the means of the last maps. Values are scaled afterwards (:meth:`program.real.Network.normalized`).
"""

import numpy as np
import torch
from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.he.program.real import IMAGE, Layer, Network, Node, Term
from privcirnet.nn.activations import Square
from privcirnet.nn.graph import module_of
from privcirnet.nn.summands import summands
from privcirnet.passes.fuse import fuse
from privcirnet.passes.lower.layers import Shape


@torch.no_grad()
def lower_ckks(model: nn.Module, input_shape: Shape) -> Network:
    """Return the network of real numbers.

    Args:
        model: convolutions with squares or AESPA between them, residuals of squares, an average pool of whole maps and
            a linear layer; circulant or not; left as it was.
        input_shape: (C, H, H) of an image.

    Raises:
        RuleError: the network has something else.
    """
    graph, channels, size = fuse(model).double(), input_shape[0], input_shape[1]
    numbers: dict[fx.Node, int] = {}
    nodes: list[Node] = []
    last: list[nn.Module] = []
    head = ""
    for node in graph.graph.nodes:
        module = module_of(graph, node)
        if isinstance(module, Square):
            nodes.append(_node(graph, node, numbers))
            numbers[node] = len(nodes) - 1
            last = []
        elif node.op == "placeholder":
            numbers[node] = IMAGE
        elif isinstance(module, nn.AvgPool2d | nn.AdaptiveAvgPool2d | nn.Flatten | nn.Linear):
            last.append(module)
            head = str(node.target)
    if not nodes:
        rule, remedy = "a network in CKKS must have squares or AESPA", "train it with +model.arguments.activation=aespa"
        raise RuleError(rule, got="none of them", remedy=remedy)
    match last:
        case [pool, nn.Flatten(), nn.Linear() as classifier]:
            pass
        case _:
            raise _refused("the end", "an average pool of whole maps, and one linear layer")
    bias = np.zeros(classifier.out_features) if classifier.bias is None else classifier.bias.numpy()
    network = Network(channels, size, tuple(nodes), classifier.weight.numpy(), bias, head)
    network.check()
    channels, width = network.shapes()[-1]
    if (classifier.in_features, _window(pool, width)) != (channels, width):
        raise _refused("the average pool", "windows as large as the maps")
    return network


def _node(graph: fx.GraphModule, node: fx.Node, numbers: dict[fx.Node, int]) -> Node:
    """The sum that a square reads."""
    found = summands(graph, node)
    sources = [each.all_input_nodes[0] for each in found.layers]
    if not found.layers or found.others or any(each not in numbers for each in (*sources, *found.squares)):
        raise _refused(str(node.target), "sums of convolutions of squares, and of squares")
    terms = [Term(numbers[source], _layer(graph, each)) for source, each in zip(sources, found.layers, strict=True)]
    return Node(str(node.target), (*terms, *(Term(numbers[each]) for each in found.squares)))


def _layer(graph: fx.GraphModule, node: fx.Node) -> Layer:
    module, name = module_of(graph, node), str(node.target)
    if not isinstance(module, nn.Conv2d) or module.groups != 1:
        raise _refused(name, "convolutions that are not grouped")
    size, alike = module.kernel_size[0], all(len({*pair}) == 1 for pair in (module.kernel_size, module.stride))
    half = module.padding == (size // 2, size // 2) and module.padding_mode == "zeros"
    if not alike or not half or module.dilation != (1, 1):
        raise _refused(name, "a padding of half the kernel with zeros, and rows like columns")
    bias = np.zeros(module.out_channels) if module.bias is None else module.bias.numpy()
    return Layer(name, module.weight.numpy(), bias, module.stride[0])


def _window(pool: nn.Module, width: int) -> object:
    return pool.kernel_size if isinstance(pool, nn.AvgPool2d) else width


def _refused(name: str, rule: str) -> RuleError:
    return RuleError(f"a network in CKKS must have {rule}", got=repr(name), remedy="infer it with the client's help")
