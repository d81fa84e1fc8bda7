"""Hidden channels in the order in which circulant weights lose least (:mod:`privcirnet.nn.functional.channel_order`).

Channels are hidden where one layer gives them and one other layer alone reads them, with nothing between but what works
on each channel by itself: batch norms, activations, pools, depthwise convolutions. Their order is nobody else's matter.
Streams that residuals add to keep theirs. So do the heads of attention: to move channels within each gains little.
"""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from privcirnet.nn.functional.batch_norm import fold_batch_norm
from privcirnet.nn.functional.channel_order import best_order, by_inputs, by_outputs
from privcirnet.nn.functional.least_squares import channel_axis, some_of
from privcirnet.nn.graph import evaluating, module_of
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.supported_modules import kind_of
from privcirnet.passes.ranges import show_values

_IMAGES, _SAMPLES = 256, 512
"""Number of images that statistics are of, and of positions of those that run at once."""
_LARGEST = 2**26
"""Largest number of values of all channels, places and weights of one: above, an order would take gigabytes."""
_ELEMENTWISE = frozenset({"activation", "gate", "nothing"})


class Hidden(NamedTuple):
    """Channels between two layers.

    Attributes:
        first: name of the layer that gives them.
        second: name of the layer that reads them.
        between: names of the modules between.
    """

    first: str
    second: str
    between: tuple[str, ...]


def hidden_channels(graph: fx.GraphModule) -> list[Hidden]:
    """Return the channels of a dense network whose order is nobody else's matter.

    >>> from privcirnet.nn.graph import trace
    >>> hidden_channels(trace(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))))
    [Hidden(first='0', second='2', between=('1',))]
    """
    calls = [str(node.target) for node in graph.graph.nodes if node.op == "call_module"]
    calls += [str(node.target).rpartition(".")[0] for node in graph.graph.nodes if node.op == "get_attr"]
    ends = [node for node in graph.graph.nodes if _mixes_channels(module_of(graph, node))]
    hidden = (_behind(graph, node) for node in ends)
    return [of for of in hidden if of and all(calls.count(name) == 1 for name in (of.first, of.second, *of.between))]


@torch.no_grad()
def order_channels_(
    model: nn.Module, dense: fx.GraphModule, block_sizes: Mapping[str, int], images: Tensor
) -> dict[str, Tensor]:
    """Put the hidden channels of a network into a better order, in place: it computes what it did.

    Args:
        model: dense network.
        dense: copy of it with plain weights, as traced in evaluation; its channels change, too.
        block_sizes: block sizes that its layers will have, by name.
        images: (N, ...) as the network reads them.

    Returns:
        The order of each layer's outputs that may have another one than before, by the layer's name.
    """
    sizes = {of: (block_sizes.get(of.first, 1), block_sizes.get(of.second, 1)) for of in hidden_channels(dense)}
    movable = [of for of, b in sizes.items() if max(b) > 1 and _can_move(model, of, b)]
    inputs = _inputs(dense, {name for of in movable for name in (of.first, of.second)}, images)
    orders = dict[str, Tensor]()
    for of in movable:
        (first, second), (b, into) = (_module(dense, name) for name in (of.first, of.second)), sizes[of]
        layers = [by_outputs(_scaled(dense, of).cpu(), inputs[of.first], b)] if b > 1 else []
        layers += [by_inputs(second.weight.cpu(), inputs[of.second].diagonal(), into)] if into > 1 else []
        order = orders[of.first] = best_order(layers)
        inputs[of.second] = inputs[of.second][order][:, order]
        for network in (model, dense):
            _move_(network, of, order.to(first.weight.device))
    return orders


def _module(network: nn.Module, name: str) -> Any:
    return network.get_submodule(name)


def _mixes_channels(module: nn.Module | None) -> bool:
    return isinstance(module, nn.Linear) or (isinstance(module, nn.Conv1d | nn.Conv2d) and module.groups == 1)


def _behind(graph: fx.GraphModule, node: fx.Node) -> Hidden | None:
    """Return the channels that a layer gives, if they are hidden."""
    first, name, between = module_of(graph, node), str(node.target), list[str]()
    while len(node.users) == 1:
        node = next(iter(node.users))
        module = module_of(graph, node)
        if len(node.all_input_nodes) != 1:
            return None
        if _mixes_channels(module):
            alike = isinstance(first, nn.Linear) == isinstance(module, nn.Linear)
            return Hidden(name, str(node.target), tuple(between)) if alike else None
        if not _works_by_channel(graph, node, isinstance(first, nn.Linear)):
            return None
        if module is not None:
            between.append(str(node.target))
    return None


def _works_by_channel(graph: fx.GraphModule, node: fx.Node, channels_last: bool) -> bool:
    """Return whether a node works on each channel by itself; what has an axis of its own takes channels to be first."""
    module, kind = module_of(graph, node), kind_of(graph, node)
    if module is None or channels_last:
        return isinstance(module, TokenBatchNorm) or (kind in _ELEMENTWISE and not (module and module.state_dict()))
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        return module.groups == module.in_channels == module.out_channels
    return kind in {*_ELEMENTWISE, "norm", "average", "maximum"} and not isinstance(module, TokenBatchNorm)


def _can_move(model: nn.Module, of: Hidden, block_sizes: tuple[int, int]) -> bool:
    """Return whether a network's modules have plain weights for each of the channels, and blocks divide them."""
    modules = [_module(model, name) for name in (of.first, of.second, *of.between)]
    if any(parametrize.is_parametrized(child) for module in modules for child in module.modules()):
        return False
    owners = Counter(id(value) for _, value in model.named_parameters(remove_duplicate=False))
    if any(owners[id(value)] > 1 for module in modules for value in module.parameters()):
        return False
    first, second = modules[:2]
    count, (b, into), run = len(first.weight), block_sizes, math.lcm(*block_sizes)
    values = [value for module in modules[2:] for value in (*module.parameters(), *module.buffers())]
    if max(b * first.weight.numel(), into * second.weight.numel()) > _LARGEST:
        return False
    whole = not (count % run or first.weight.shape[1] % b or len(second.weight) % into)
    return whole and all(value.numel() == 1 or len(value) == count for value in values)


def _scaled(graph: fx.GraphModule, of: Hidden) -> Tensor:
    """Return the weight of the first layer, times the scale of the batch norm behind it if there is one."""
    weight = _module(graph, of.first).weight
    norm = _module(graph, of.between[0]) if of.between else None
    if not isinstance(norm, _BatchNorm) or norm.weight is None or norm.running_mean is None or norm.running_var is None:
        return weight
    return fold_batch_norm(weight, None, norm.weight, norm.bias, norm.running_mean, norm.running_var, norm.eps)[0]


def _inputs(graph: fx.GraphModule, names: set[str], images: Tensor) -> dict[str, Tensor]:
    """Return the covariances of the input channels of layers, (in, in), by name."""
    rows: dict[str, list[Tensor]] = {name: [] for name in names}
    readers: dict[str, list[str]] = {}
    for node in graph.graph.nodes:
        if node.op == "call_module" and str(node.target) in names:
            readers.setdefault(node.all_input_nodes[0].name, []).append(str(node.target))
    random = torch.Generator().manual_seed(0)

    def look(name: str, values: Tensor) -> None:
        for reader in readers.get(name, ()):
            positions = values.movedim(channel_axis(_module(graph, reader)), -1).flatten(0, -2)
            rows[reader].append(some_of(_SAMPLES, random, positions)[0].cpu())

    with evaluating(graph):
        show_values(graph, images[:_IMAGES], look)
    return {name: torch.cat(values).double().T.cov(correction=0) for name, values in rows.items()}


def _move_(network: nn.Module, of: Hidden, order: Tensor) -> None:
    first, second, *between = (_module(network, name) for name in (of.first, of.second, *of.between))
    second.weight.copy_(second.weight[:, order])
    for module in (first, *between):
        for value in (*module.parameters(), *module.buffers()):
            if value.numel() > 1:
                value.copy_(value[order])
