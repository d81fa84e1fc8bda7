"""Decomposition of attention and norms in a traced network into pieces, each an operation of a program."""

from collections.abc import Mapping
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.exact_functions import DecomposedLayerNorm, SeparateSoftmaxPieces, SoftmaxPieces
from privcirnet.nn.graph import module_of, trace
from privcirnet.nn.moves import Rearrange, SliceChannels
from privcirnet.nn.neighbours import channel_readers
from privcirnet.nn.windows import Zeros, zeros_around
from privcirnet.passes.folding import fold_before_, scale_outputs_

Norm = nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.InstanceNorm2d
SHAPE = "shape"
"""Key of a node's ``meta``: the shape of its value for one image."""


def decompose_(fused: fx.GraphModule, node: fx.Node, pieces: nn.Module) -> fx.Node:
    """Put a chain of modules, the pieces of another module, in the place of a node.

    Returns:
        The node of the last one.
    """
    name, copies, sources = str(node.target), dict[fx.Node, fx.Node](), iter(arguments(node))
    fused.set_submodule(name, pieces.eval())
    with fused.graph.inserting_before(node):
        for part in trace(pieces).graph.nodes:
            if part.op == "placeholder":
                copies[part] = next(sources)
            elif part.op != "output":
                inputs = tuple(copies[source] for source in part.args)
                copies[part] = fused.graph.call_module(f"{name}.{part.target}", inputs)
    last = list(copies.values())[-1]
    node.replace_all_uses_with(last)
    fused.graph.erase_node(node)
    return last


def arguments(node: fx.Node) -> list[fx.Node]:
    """Return the values that a module's node is given, in order; one may be there twice."""
    return [argument for argument in node.args if isinstance(argument, fx.Node)]


def unfold_softmax_(
    fused: fx.GraphModule, node: fx.Node, attention: SoftmaxAttention, calls: Mapping[Any, int]
) -> None:
    """Replace softmax attention by its pieces; the factor of the scores goes into the layer of the queries.

    Queries that have no layer of their own get one.

    Args:
        calls: number of calls of each module, by name.
    """
    before, (tokens, channels) = arguments(node), _shape_of(node, calls)
    heads, constants, layer = attention.heads, attention.constants, module_of(fused, before[0])
    if len(before) > 1:
        width = _width_of(fused, before[0])
        factor = (heads / width) ** 0.5 if attention.scale is None else attention.scale
        folded = _scale_queries_(fused, node, factor)
        ones = torch.ones(width, dtype=torch.float64)
        enter = [] if folded else _affine(factor * ones, 0 * ones, (tokens, width))
        decompose_(fused, node, SeparateSoftmaxPieces(heads, tokens, constants, enter))
        return
    if not isinstance(layer, nn.Linear) or len(before[0].users) > 1:
        got = f"{str(node.target)!r} after {str(before[0].target)!r}"
        raise RuleError("softmax attention must read a linear layer of its own", got=got, remedy="put one before it")
    scale = torch.ones(3 * channels, dtype=torch.float64)
    scale[:channels] = (heads / channels) ** 0.5 if attention.scale is None else attention.scale
    scale_outputs_(layer, scale, torch.zeros_like(scale), str(before[0].target))
    decompose_(fused, node, SoftmaxPieces(channels, heads, tokens, constants))


def _scale_queries_(fused: fx.GraphModule, node: fx.Node, factor: float) -> bool:
    """Scale the outputs of a layer that are queries of an attention and nothing else; return whether there are such."""
    queries, *keys_values = (_outputs_of(fused, argument) for argument in arguments(node))
    if queries is None:
        return False
    source, places = queries
    layer = module_of(fused, source)
    assert isinstance(layer, nn.Linear | nn.Conv2d)
    factors = torch.ones(len(layer.weight), dtype=torch.float64)
    factors[places] = factor
    read = [outputs[1] for outputs in keys_values if outputs is not None and outputs[0] is source]
    blocks = factors.split(block_size_of(layer))
    alone = _readers(fused, source) == {node} and not any(torch.isin(places, rows).any() for rows in read)
    if not alone or any((block != block[0]).any() for block in blocks):
        return False
    scale_outputs_(layer, factors, torch.zeros_like(factors), str(source.target))
    return True


def _outputs_of(fused: fx.GraphModule, node: fx.Node) -> tuple[fx.Node, Tensor] | None:
    """Return the layer that a value comes from through moves alone, and which of its outputs they are."""
    chain: list[nn.Module] = []
    while isinstance(module := module_of(fused, node), Rearrange | SliceChannels):
        chain.insert(0, module)
        node = node.all_input_nodes[0]
    if not isinstance(module, nn.Linear | nn.Conv2d):
        return None
    first, outputs = next(iter(chain), None), torch.arange(len(module.weight))
    shape = first.before if isinstance(first, Rearrange) else node.meta[SHAPE]
    values = (outputs if isinstance(module, nn.Linear) else outputs.view(-1, 1, 1)).expand(1, *shape)
    for move in chain:
        values = move(values)
    return node, values.unique()


def _width_of(fused: fx.GraphModule, node: fx.Node) -> int:
    """Return how many channels tokens have."""
    match module_of(fused, node):
        case Rearrange(after=after):
            return after[-1]
        case SliceChannels(count=count):
            return count
        case _:
            return node.meta[SHAPE][-1]


def _readers(fused: fx.GraphModule, node: fx.Node) -> set[fx.Node]:
    """Return the readers of a value; in place of moves, the readers of those."""
    moves = {user for user in node.users if isinstance(module_of(fused, user), Rearrange | SliceChannels)}
    return {user for user in node.users if user not in moves}.union(*(_readers(fused, move) for move in moves))


def unfold_norm_(fused: fx.GraphModule, node: fx.Node, norm: Norm, calls: Mapping[Any, int]) -> None:
    """Replace a norm by its pieces; its scales and shifts go into the layers behind, or into one of their own.

    Args:
        norm: a layer norm of tokens or vectors; a group norm of maps or vectors, whose groups are tokens here.
        calls: number of calls of each module, by name.
    """
    shape = _shape_of(node, calls)
    channels, tokens = _normalized(norm, shape, str(node.target))
    width = prod(shape) // tokens
    ones = torch.ones(channels, dtype=torch.float64)
    gamma = width**0.5 * (ones if norm.weight is None else norm.weight.detach().double())
    bias = _bias(norm)
    beta = 0 * ones if bias is None else bias.detach().double()
    readers = node.users if len(shape) == 3 else channel_readers(fused, node)
    behind = {str(reader.target): module_of(fused, reader) for reader in readers}
    folded = bool(behind) and all(calls[name] == 1 and _takes(layer, norm) for name, layer in behind.items())
    for name, layer in behind.items() if folded else ():
        assert isinstance(layer, nn.Linear | nn.Conv2d)
        fold_before_(layer, gamma, beta, name)
    enter, leave = None, list[nn.Module]()
    if shape != (tokens, width):
        enter = Rearrange.like(lambda x: x.reshape(-1, tokens, width), shape, channels_last=True)
        leave = [Rearrange.like(lambda x: x.reshape(-1, *shape), (tokens, width), channels_last=len(shape) < 3)]
    alike = folded or (torch.allclose(gamma, ones, 1e-12, 1e-12) and not beta.any())
    leave += [] if alike else _affine(gamma, beta, shape)
    pieces = DecomposedLayerNorm(
        width, tokens, epsilon_of(norm), enter, leave, centers=not isinstance(norm, nn.RMSNorm)
    )
    decompose_(fused, node, pieces)


def epsilon_of(norm: Norm) -> float:
    """Return the epsilon of a norm; None is the least step of numbers beside 1, as in torch."""
    return torch.finfo(torch.get_default_dtype()).eps if norm.eps is None else norm.eps


def _bias(norm: Norm) -> Tensor | None:
    return None if isinstance(norm, nn.RMSNorm) else norm.bias


def _normalized(norm: Norm, shape: tuple[int, ...], name: str) -> tuple[int, int]:
    """Return how many channels a norm has, and over how many parts of an image's values it takes its statistics."""
    if isinstance(norm, nn.LayerNorm | nn.RMSNorm):
        if tuple(norm.normalized_shape) != shape[-1:] or len(shape) > 2:
            got = f"one over {tuple(norm.normalized_shape)} of {shape} at {name!r}"
            remedy = "norm (N, tokens, C) or (N, C) over C; of maps GroupNorm(1, C) norms all values"
            raise RuleError("a layer norm must be over the channels of tokens or vectors", got=got, remedy=remedy)
        return norm.normalized_shape[0], prod(shape[:-1])
    if len(shape) == 2 or (isinstance(norm, nn.InstanceNorm2d) and norm.track_running_stats):
        got = f"{type(norm).__name__} of {shape} at {name!r}"
        remedy = "use maps (C, H, W), and a BatchNorm2d where statistics are not the image's own"
        raise RuleError("a group norm must take its statistics over the groups of a map", got=got, remedy=remedy)
    return shape[0], norm.num_groups if isinstance(norm, nn.GroupNorm) else shape[0]


def _takes(layer: nn.Module | None, norm: Norm) -> bool:
    """Return whether a norm's scales and shifts can go into a layer behind it, whatever their values are.

    A circulant layer has no scale for each channel, and padding is not shifted.
    """
    if not isinstance(layer, nn.Linear | nn.Conv2d) or (norm.weight is not None and block_size_of(layer) > 1):
        return False
    return isinstance(layer, nn.Linear) or _bias(norm) is None or zeros_around(layer) == Zeros()


def _affine(scale: Tensor, shift: Tensor, shape: tuple[int, ...]) -> list[nn.Module]:
    """Return a depthwise convolution that scales and shifts channels: the first axis of maps, else the last."""
    count = len(scale)
    layer = nn.Conv2d(count, count, 1, groups=count).to(scale)
    with torch.no_grad():
        layer.weight.copy_(scale.view(-1, 1, 1, 1))
        layer.bias.copy_(shift)  # type: ignore[union-attr]
    if len(shape) == 3:
        return [layer]
    to_map = Rearrange.to_map(count, prod(shape[:-1]), 1)
    return [
        to_map,
        layer,
        Rearrange.like(lambda x: x.flatten(2).mT.reshape(-1, *shape), to_map.after, channels_last=True),
    ]


def _shape_of(node: fx.Node, calls: Mapping[Any, int]) -> tuple[int, ...]:
    name = str(node.target)
    if calls[name] > 1:
        rule, remedy = "an attention or a norm must be used once", "give each use its own module"
        raise RuleError(rule, got=repr(name), remedy=remedy)
    if SHAPE not in node.meta:
        rule = "a norm or an attention is taken apart for one size of images"
        raise RuleError(rule, got=f"none for {name!r}", remedy="give quantize(model, images)")
    return node.meta[SHAPE]
