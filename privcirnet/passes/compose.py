"""Two 1 x 1 convolutions in a row as one: an inverted residual's project and the next one's expand.

Nothing but a residual sum is between them. Without one, W2 (W1 h + b1) + b2 = (W2 W1) h + (W2 b1 + b2). With a residual
r, y1 = W1 h + b1 + r and y2 = W2 y1 + b2 are::

    [y1 - r]   [ W1     0 ] [h]   [ b1         ]
    [  y2  ] = [ W2 W1  W2] [r] + [ W2 b1 + b2 ]

of which the upper rows are there only if something else reads y1, as the next residual does. If both weights are block
circulant with the same b, so is this one. Under encryption one round takes the place of two, and y1 is not truncated
before it is read. Done on a fused network, so batch norms are in the weights; the composed weights are quantized and
trained as they are.

All sums of a layer count one step. Where the largest of W1 and of W2 W1 differ, the lower rows are
multiplied by a power of two, if only squares read y2: (2^k y)^2 = 4^k y^2, which the layers behind them take back.

Cost: as many blocks as the new matrix has in place of those of two factors, often more.

Source: PrivCirNet (NeurIPS 2024), Section 3.4 and Figure 6b, which runs both layers in one round with a product each.
Departure: one product with the composed weights; two in a row would want a longer modulus (docs/fusion.md).
"""

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Square
from privcirnet.nn.circulant import BlockCirculant, block_size_of, make_circulant_
from privcirnet.nn.functional.quantize import log_step_for
from privcirnet.nn.graph import is_plain_layer, is_sum, module_of
from privcirnet.nn.moves import Concat, SliceChannels
from privcirnet.nn.neighbours import readers, uses
from privcirnet.nn.windows import Zeros, zeros_around
from privcirnet.passes.folding import scale_input_

_MOST = 8
"""Largest log2 of the factor on y2: with 8-bit weights, more would be for a part that is zero."""


@dataclass(frozen=True)
class Pair:
    """Two layers that can be one.

    Attributes:
        first: name of the layer that computes y1, or a summand of it.
        second: name of the layer that reads y1; the composed layer has this name.
        residual: whether something is added to the first one's result.
        kept: whether something besides the second layer reads y1.
    """

    first: str
    second: str
    residual: bool
    kept: bool


def pairs(fused: fx.GraphModule) -> list[Pair]:
    """Return the pairs of layers that can be composed if their block sizes are equal.

    Returns:
        In order of execution; no layer is in two of them.

    >>> from privcirnet.nn.graph import trace
    >>> pairs(trace(nn.Sequential(nn.Conv2d(8, 4, 1), nn.Conv2d(4, 16, 1))))
    [Pair(first='0', second='1', residual=False, kept=False)]
    """
    calls = Counter(node.target for node in fused.graph.nodes if node.op == "call_module")
    composable: list[Pair] = []
    paired: set[fx.Node] = set()
    for node in fused.graph.nodes:
        first = _first(fused, node) if _is_pointwise(fused, node, calls) else None
        if first is not None and _is_pointwise(fused, first, calls) and first not in paired:
            paired |= {first, node}
            read = node.all_input_nodes[0]
            composable.append(Pair(str(first.target), str(node.target), read is not first, len(read.users) > 1))
    return composable


def compose_(fused: fx.GraphModule, seconds: Collection[str]) -> fx.GraphModule:
    """Compose layers with those before them, in place; the network computes the same up to rounding.

    Args:
        fused: result of :func:`privcirnet.passes.fuse.fuse`, its weights not quantized.
        seconds: names of the layers, each the second one of a pair.

    Returns:
        `fused` itself.

    >>> from privcirnet.nn.graph import trace
    >>> compose_(trace(nn.Sequential(nn.Conv2d(8, 4, 1), nn.Conv2d(4, 16, 1))), ["1"])
    Sequential(
      (1): Conv2d(8, 16, kernel_size=(1, 1), stride=(1, 1))
    )
    """
    if isinstance(seconds, str) or not isinstance(seconds, Collection):
        got, remedy = type(seconds).__name__, "give a list of names, or composed of a search"
        raise RuleError("composed layers must be given by their names", got=got, remedy=remedy)
    by_second = {pair.second: pair for pair in pairs(fused)}
    if unknown := [name for name in seconds if name not in by_second]:
        rule = "a composed layer must be a 1 x 1 convolution behind another, with at most a sum between"
        raise RuleError(
            rule, got=", ".join(unknown), remedy=f"use some of {', '.join(by_second) or 'none: there is none'}"
        )
    for pair in [by_second[name] for name in by_second if name in seconds]:
        _compose_pair_(fused, pair)
    fused.graph.lint()
    fused.recompile()
    return fused


def _is_pointwise(fused: fx.GraphModule, node: fx.Node, calls: Counter[object]) -> bool:
    """Return whether a node alone calls a 1 x 1 convolution whose weights are whole blocks and not quantized."""
    layer = module_of(fused, node)
    if not is_plain_layer(layer) or not isinstance(layer, nn.Conv2d) or calls[node.target] > 1:
        return False
    structures = layer.parametrizations["weight"] if parametrize.is_parametrized(layer, "weight") else ()  # type: ignore[index]
    whole = all(isinstance(structure, BlockCirculant) and structure.size is None for structure in structures)
    sizes = layer.kernel_size, layer.stride, layer.groups
    return whole and sizes == ((1, 1), (1, 1), 1) and zeros_around(layer) == Zeros()


def _first(fused: fx.GraphModule, second: fx.Node) -> fx.Node | None:
    """Return the layer whose result a layer reads, alone or with another value added to it."""
    read = second.all_input_nodes[0]
    if not is_sum(read):
        return read
    layers = [s for s in read.all_input_nodes if isinstance(module_of(fused, s), nn.Conv2d) and len(s.users) == 1]
    return layers[-1] if layers else None


def _compose_pair_(fused: fx.GraphModule, pair: Pair) -> None:
    first_layer, second_layer = (fused.get_submodule(name) for name in (pair.first, pair.second))
    assert isinstance(first_layer, nn.Conv2d)
    assert isinstance(second_layer, nn.Conv2d)
    sizes = block_size_of(first_layer), block_size_of(second_layer)
    if sizes[0] != sizes[1]:
        got, remedy = f"{sizes[0]} and {sizes[1]} at {pair.first!r} and {pair.second!r}", "search with them equal"
        raise RuleError("composed layers must have one block size", got=got, remedy=remedy)
    nodes = {node.target: node for node in fused.graph.nodes if node.op == "call_module"}
    first, second = nodes[pair.first], nodes[pair.second]
    read = second.all_input_nodes[0]
    residual = next((source for source in read.all_input_nodes if source is not first), None) if pair.residual else None
    behind = _behind_squares(fused, second) if pair.kept else []
    layer, scale = _composed(first_layer, second_layer, pair, balanced=bool(behind))
    make_circulant_(layer, sizes[0])
    fused.set_submodule(pair.second, layer)
    for name in behind:
        scale_input_(fused.get_submodule(name), scale**-2, name)  # type: ignore[arg-type]
    source = first.all_input_nodes[0]
    if residual is not None:
        source = _call_behind(fused, read, f"{pair.second}_inputs", Concat(), source, residual)
    (read if residual is None else source).append(second)
    second.args = (source,)
    if pair.kept:
        _split_(fused, pair, second, first_layer.out_channels, second_layer.out_channels)
        upper = _call_behind(fused, second, f"{pair.second}_kept", SliceChannels(0, first_layer.out_channels), second)
        if residual is None:
            first.replace_all_uses_with(upper)
        else:
            upper.append(read)
            read.args = (upper, residual)
    elif residual is not None:
        fused.graph.erase_node(read)
    fused.graph.erase_node(first)
    fused.delete_submodule(pair.first)


def _split_(fused: fx.GraphModule, pair: Pair, second: fx.Node, before: int, count: int) -> None:
    """Let the readers of the second layer read its rows of the composed one."""
    users = list(second.users)
    result = _call_behind(fused, second, f"{pair.second}_result", SliceChannels(before, count), second)
    for user in users:
        user.replace_input_with(second, result)


def _call_behind(fused: fx.GraphModule, place: fx.Node, name: str, module: nn.Module, *inputs: fx.Node) -> fx.Node:
    fused.set_submodule(name, module)
    with fused.graph.inserting_after(place):
        return fused.graph.call_module(name, inputs)


def _behind_squares(fused: fx.GraphModule, second: fx.Node) -> list[str]:
    """Return the layers behind the squares that alone read a layer; none if anything else reads it or them."""
    squares = [user for user in second.users if isinstance(module_of(fused, user), Square)]
    layers = {user: readers(fused, user) for user in squares}
    alone = len(squares) == len(second.users) and all(set(uses(fused, user)) == set(layers[user]) for user in squares)
    return [str(layer.target) for user in squares for layer in layers[user]] if alone else []


@torch.no_grad()
def _composed(
    first_layer: nn.Conv2d, second_layer: nn.Conv2d, pair: Pair, *, balanced: bool
) -> tuple[nn.Conv2d, float]:
    """Return the layer [W1 0; W2 W1, W2] without the columns and rows that nothing needs, and the factor on y2.

    Computed in float64.
    """
    first, second = (layer.weight.double().flatten(1) for layer in (first_layer, second_layer))
    weight, bias = second @ first, second @ _bias(first_layer) + _bias(second_layer)
    if pair.residual:
        weight = torch.cat([weight, second], 1)
    upper, lower = (log_step_for(part.abs().max().item(), 8) for part in (first, weight))
    scale = 2.0 ** max(-_MOST, min(_MOST, upper - lower)) if balanced else 1.0
    weight, bias = scale * weight, scale * bias
    if pair.kept:
        weight = torch.cat([nn.functional.pad(first, (0, weight.shape[1] - first.shape[1])), weight])
        bias = torch.cat([_bias(first_layer), bias])
    layer = nn.Conv2d(weight.shape[1], weight.shape[0], 1).to(second_layer.weight).train(second_layer.training)
    layer.weight.copy_(weight[..., None, None])
    assert layer.bias is not None
    layer.bias.copy_(bias)
    return layer, scale


def _bias(layer: nn.Conv2d) -> Tensor:
    return torch.zeros(layer.out_channels).to(layer.weight).double() if layer.bias is None else layer.bias.double()
