"""Attention and layer norms become their pieces, each of which is an operation of a program, in a traced network."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of, trace
from privcirnet.nn.normalization import LayerNormPieces, SoftmaxPieces
from privcirnet.nn.summands import channel_readers
from privcirnet.passes.folding import fold_before_, scale_outputs_, shared_by

SHAPE = "shape"
"""Key of a node's ``meta``: the shape of its value for one image."""


def unfold_(fused: fx.GraphModule, node: fx.Node, pieces: nn.Module) -> fx.Node:
    """Put the modules that another calls one after the other in the place of a node.

    Returns:
        The node of the last one.
    """
    name, known = str(node.target), dict[fx.Node, fx.Node]()
    fused.set_submodule(name, pieces.eval())
    with fused.graph.inserting_before(node):
        for part in trace(pieces).graph.nodes:
            if part.op == "placeholder":
                known[part] = node.all_input_nodes[0]
            elif part.op != "output":
                inputs = tuple(known[source] for source in part.args)
                known[part] = fused.graph.call_module(f"{name}.{part.target}", inputs)
    last = list(known.values())[-1]
    node.replace_all_uses_with(last)
    fused.graph.erase_node(node)
    return last


def unfold_softmax_(fused: fx.GraphModule, node: fx.Node, heads: int, calls: Mapping[Any, int]) -> None:
    """Replace softmax attention by its pieces; what scores are divided by goes into the layer of the queries.

    Args:
        calls: how often each module is called, by name.
    """
    before, (tokens, channels) = node.all_input_nodes[0], _shape_of(node, calls)
    layer = module_of(fused, before)
    if not isinstance(layer, nn.Linear) or len(before.users) > 1:
        got = f"{str(node.target)!r} after {str(before.target)!r}"
        raise RuleError("softmax attention must read a linear layer of its own", got=got, remedy="put one before it")
    scale = torch.ones(3 * channels, dtype=torch.float64)
    scale[:channels] = (heads / channels) ** 0.5
    scale_outputs_(layer, scale, torch.zeros_like(scale), str(before.target))
    unfold_(fused, node, SoftmaxPieces(channels, heads, tokens))


def unfold_layer_norm_(fused: fx.GraphModule, node: fx.Node, norm: nn.LayerNorm, calls: Mapping[Any, int]) -> None:
    """Replace a layer norm by its pieces; its scales and shifts go into the layers behind, or into one of their own.

    Args:
        calls: how often each module is called, by name.
    """
    *places, width = shape = _shape_of(node, calls)
    if tuple(norm.normalized_shape) != (width,) or len(places) > 1:
        got = f"one over {tuple(norm.normalized_shape)} of {shape} at {str(node.target)!r}"
        remedy = "use polynomial_(model, images, activation='own'), which rearranges maps"
        raise RuleError("a layer norm must be over the channels of tokens or vectors", got=got, remedy=remedy)
    ones = torch.ones(width, dtype=torch.float64)
    gamma = width**0.5 * (ones if norm.weight is None else norm.weight.detach().double())
    beta = 0 * ones if norm.bias is None else norm.bias.detach().double()
    behind = {str(each.target): module_of(fused, each) for each in channel_readers(fused, node)}
    folded = bool(behind) and all(
        isinstance(layer, nn.Linear) and calls[name] == 1 and shared_by(gamma, layer) for name, layer in behind.items()
    )
    for name, layer in behind.items() if folded else ():
        assert isinstance(layer, nn.Linear)
        fold_before_(layer, gamma, beta, name)
    pieces = LayerNormPieces(width, places[0] if places else 0, norm.eps, None if folded else (gamma, beta))
    unfold_(fused, node, pieces)


def _shape_of(node: fx.Node, calls: Mapping[Any, int]) -> tuple[int, ...]:
    name = str(node.target)
    if calls[name] > 1:
        rule, remedy = "an attention or a layer norm must be used once", "give each use its own module"
        raise RuleError(rule, got=repr(name), remedy=remedy)
    if SHAPE not in node.meta:
        rule = "fuse must see images to know how many tokens a network has"
        raise RuleError(rule, got=f"none for {name!r}", remedy="give fuse(model, images=images)")
    return node.meta[SHAPE]
