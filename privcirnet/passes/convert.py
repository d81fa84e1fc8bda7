"""Conversion of whole networks: dense to block circulant, and back to plain dense weights.

`circulant_` changes a network in place and keeps its module names; `dense_state_dict` returns a new state dict. Layers
are addressed by module name. The batch norm that belongs to a convolution is the one that consumes its output in the
torch.fx graph; a batch norm of tokens or vectors belongs to the linear layer before it, or to those that read it. Names
and order of definition play no part.

Cost: one projection for each converted layer; one symbolic trace for networks with batch norms.

Source: PrivCirNet (NeurIPS 2024), Sections 3.3 and 3.4. Departure: the variance of a shared batch norm is that of
`privcirnet.nn.functional.batch_norm.block_variance`.
"""

import copy
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.nn.activations import AESPA_SHARED, Aespa
from privcirnet.nn.checks import check_module, value_of_one
from privcirnet.nn.circulant import block_size_of, checked_layer, find_layer, make_circulant_
from privcirnet.nn.example import example_for
from privcirnet.nn.functional.circulant import check_importance
from privcirnet.nn.graph import WeightedLayer, evaluating, module_of, trace
from privcirnet.nn.materialize import with_plain_weights
from privcirnet.nn.neighbours import FLATTEN, VECTORS, channel_readers, place_of, reached_by
from privcirnet.nn.norm import BlockBatchNorm2d, TokenBatchNorm, check_can_share
from privcirnet.passes.channel_order import order_channels_
from privcirnet.passes.least_squares_start import fit_circulant_
from privcirnet.passes.multihead import Multihead, attention_layers, planned_attentions, with_attention_layers
from privcirnet.passes.shape_tracing import trace_at

_SHARED_BY_BLOCK = ("weight", "bias", "running_mean", "running_var")


def circulant_(
    model: nn.Module,
    block_sizes: Mapping[str, int],
    importance: Mapping[str, Tensor] | None = None,
    *,
    pad: bool = False,
    images: Tensor | None = None,
    progress: Callable[[int, int], object] = lambda done, of: None,
) -> nn.Module:
    """Make layers block circulant in place, and share the batch norms behind them by blocks.

    With images, hidden channels change their order (:mod:`privcirnet.passes.channel_order`), and every layer gets the
    block-circulant weight whose outputs are nearest to those of the dense network
    (:mod:`privcirnet.passes.least_squares_start`): most of the accuracy stays without any training. Without them it
    gets the one nearest to its own weight, weighted by its importance where one is given. The batch norm that consumes
    a converted convolution's output becomes a `BlockBatchNorm2d` of the same block size, and an AESPA activation behind
    it is shared by the same blocks. A batch norm of tokens or vectors becomes a `TokenBatchNorm`, shared by the blocks
    of the linear layers that it is folded into (:mod:`privcirnet.nn.neighbours`). An nn.MultiheadAttention becomes a
    :class:`~privcirnet.passes.multihead.Multihead`, whose layers are ``qkv`` and ``out_proj``. Everything is checked
    before anything changes. Build the optimizer afterwards.

    Args:
        model: A network with dense weights; named layers that compute theirs (weight_norm, pruning) get plain ones.
        block_sizes: Block size for each layer, by module name; 1 leaves a layer dense.
        importance: Non-negative weights of the entries, by module name, each of its weight's shape; for example
            `privcirnet.blocksize_search.curvature.diagonal_fisher`. Layers without one have equal weights.
        pad: Whether a layer that its block size does not divide is padded; if not, it is an error. One whose channels a
            batch norm or AESPA shares by blocks cannot be.
        images: Some hundreds as the network reads them, (N, ...), on its device; they need no labels.
        progress: Callback with the number of nodes fitted, and of all nodes of the network.

    Returns:
        `model` itself.

    Raises:
        RuleError: A name is not in the model, a layer is none that can be circulant, is grouped (unless b = 1), shares
            its weight or is parametrized already, a block size or an importance does not fit, the model's batch norms
            cannot be found or shared, or the block sizes are not given by name; or the model is none.

    >>> model = circulant_(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), {"0": 4, "2": 2})
    >>> [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    [(2, 8), (1, 8)]
    """
    check_module(model)
    if not isinstance(block_sizes, Mapping):
        got, remedy = type(block_sizes).__name__, "give {name: b, ...}, or block_sizes of a search"
        raise RuleError("block sizes must be given by the layers' names", got=got, remedy=remedy)
    if importance and images is not None:
        rule, remedy = "circulant weights must be fitted to images or weighted by importance", "leave one out"
        raise RuleError(rule, got="both", remedy=remedy)
    importance, dense = importance or {}, None
    attentions, block_sizes = planned_attentions(model, block_sizes)
    with attention_layers(model, attentions):
        if images is not None:
            value_of_one(model, images)
            with evaluating(plain := copy.deepcopy(with_plain_weights(model))):
                dense = trace(plain)
        layers = {name: checked_layer(model, name, b, pad=pad) for name, b in block_sizes.items()}
        for name, values in importance.items():
            check_importance(find_layer(model, name, plain=False).weight, values)
        shared = _shared_behind(model, {name: b for name, b in block_sizes.items() if b > 1})
    if dense is not None and images is not None:
        order_channels_(model, dense, block_sizes, images)
    for name, layer in layers.items():
        make_circulant_(layer, block_sizes[name], importance.get(name), pad=pad)
    _share_(model, shared)
    if dense is not None and images is not None:
        fit_circulant_(model, dense, block_sizes, images, progress)
    return model


def share_by_blocks_(model: nn.Module) -> dict[str, int]:
    """Share the batch norms and AESPA that will be folded into a network's circulant layers by their blocks, in place.

    :func:`circulant_` does it by itself; those that come into a circulant network need it. Shared ones stay.

    Returns:
        Block size of each that was not shared so before, by module name.

    Raises:
        RuleError: one cannot be shared, or its layers have blocks of several sizes.
    """
    block_sizes = _shared_behind(model, {})
    _share_(model, block_sizes)
    return block_sizes


def _share_(model: nn.Module, block_sizes: Mapping[str, int]) -> None:
    signals = any(isinstance(module, nn.Conv1d) for module in model.modules()) and block_sizes
    of_signals = {
        folded.name
        for folded in (_folded(model) if signals else ())
        if any(isinstance(model.get_submodule(layer), nn.Conv1d) for layer in folded.layers)
    }
    for name, b in block_sizes.items():
        module = model.get_submodule(name)
        shared = _shared_by(module, b, maps=name in of_signals)
        for path, child in list(model.named_modules(remove_duplicate=False)):
            if child is module:
                model.set_submodule(path, shared)


def _shared_by(module: nn.Module, block_size: int, *, maps: bool) -> nn.Module:
    if isinstance(module, Aespa | TokenBatchNorm):
        return module.shared_by(block_size)
    assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d)
    kind = TokenBatchNorm if isinstance(module, nn.BatchNorm1d) and not maps else BlockBatchNorm2d
    return kind.from_batch_norm(module, block_size)


def _shared_behind(model: nn.Module, block_sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the block size of every batch norm and AESPA whose blocks are smaller than its layers need.

    One that is folded into several layers is shared by the smallest blocks that serve all of them.

    Args:
        block_sizes: block sizes of layers that become circulant; the others have their own.
    """
    sizes = {name: b for name, module in model.named_modules() if (b := block_size_of(module)) > 1} | dict(block_sizes)
    norm_sizes: dict[str, int] = {}
    for name, layers, channels_known in _folded(model) if sizes else ():
        b = math.lcm(*(sizes.get(layer, 1) for layer in layers))
        if b > 1 and not channels_known:
            raise RuleError(VECTORS, got=f"{name!r} beside {layers[0]!r}, which is circulant", remedy=FLATTEN)
        _agree(norm_sizes, name, b)
    norm_sizes = {name: b for name, b in norm_sizes.items() if getattr(model.get_submodule(name), "block_size", 1) % b}
    for name, b in norm_sizes.items():
        _check_shared(model.get_submodule(name), b, name)
    return norm_sizes


class _Folded(NamedTuple):
    """A batch norm or AESPA with the layers that it will be folded into, by name.

    Attributes:
        known: whether its values are known to have their channels where those of the layers are.
    """

    name: str
    layers: list[str]
    known: bool = True


def _folded(model: nn.Module) -> list[_Folded]:
    if not any(isinstance(module, _BatchNorm | Aespa) for module in model.modules()):
        return []
    with evaluating(model):
        graph = _traced(model)
    folded: list[_Folded] = []
    for node in graph.graph.nodes:
        module, place = module_of(graph, node), None
        if isinstance(module, Aespa):
            layers = reached_by(graph, node)
        elif isinstance(module, _BatchNorm):
            place = place_of(graph, node)
            layers = place.layers if place else _around(graph, node, module)
        else:
            continue
        channels_known = bool(place) or not isinstance(module, nn.BatchNorm1d)
        folded.append(_Folded(str(node.target), [str(layer.target) for layer in layers], channels_known))
    return folded


def _traced(model: nn.Module) -> fx.GraphModule:
    """Return the network as a graph, at some size of images if its forward branches on it."""
    try:
        return trace(model)
    except RuleError:
        if (images := example_for(model)) is None:
            raise
        return trace_at(model, images)


def _around(graph: fx.GraphModule, node: fx.Node, norm: _BatchNorm) -> list[fx.Node]:
    """Return the layers that a batch norm should be folded into, where that is not possible."""
    before = [neighbour for neighbour in node.all_input_nodes[:1] if neighbour.op == "call_module"]
    match norm:
        case TokenBatchNorm():
            return channel_readers(graph, node)
        case nn.BatchNorm1d():
            return [
                neighbour for neighbour in (*before, *node.users) if isinstance(module_of(graph, neighbour), nn.Linear)
            ]
        case _:
            return before


def paddable(model: nn.Module) -> frozenset[str]:
    """Return the names of the layers that can be padded: those that no batch norm or AESPA is folded into.

    >>> paddable(nn.Sequential(nn.Conv2d(1, 5, 3), nn.BatchNorm2d(5), nn.Conv2d(5, 3, 3)))
    frozenset({'2'})
    """
    shared = {layer for folded in _folded(model) for layer in folded.layers}
    layers = (name for name, module in model.named_modules() if isinstance(module, WeightedLayer))
    return frozenset(name for name in layers if name not in shared)


def _check_shared(module: nn.Module, block_size: int, name: str) -> None:
    if not isinstance(module, Aespa | TokenBatchNorm):
        check_can_share(module)
    channels = int(module.num_features) * getattr(module, "b", 1) if isinstance(module, _BatchNorm) else 0
    channels = module.num_features if isinstance(module, Aespa) else channels
    if channels % block_size:
        raise RuleError(
            "channels that a batch norm or AESPA shares by blocks must be whole blocks",
            got=f"{channels} at {name!r} for block size {block_size}",
            remedy="give the layer a block size that divides them",
        )


def _agree(sizes: dict[str, int], name: str, block_size: int) -> None:
    if sizes.setdefault(name, block_size) != block_size:
        raise RuleError(
            "a batch norm or AESPA shared by layers needs one block size",
            got=f"{sizes[name]} and {block_size} before {name!r}",
            remedy="give these layers the same block size",
        )


def dense_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Return the network's state with plain weights, for the architecture it was converted from.

    Parametrized tensors are expanded under their own names. The values of a shared batch norm or AESPA are repeated for
    each channel. Layers of an nn.MultiheadAttention are one with it again. The network's outputs in evaluation stay as
    they are.

    Args:
        model: A network; left as it was.

    Returns:
        Tensors by name, loadable strictly into the unconverted architecture.

    >>> model = circulant_(nn.Sequential(nn.Linear(4, 4)), {"0": 2})
    >>> sorted(model.state_dict())
    ['0.bias', '0.parametrizations.weight.original']
    >>> nn.Sequential(nn.Linear(4, 4)).load_state_dict(dense_state_dict(model))
    <All keys matched successfully>
    """
    model = with_plain_weights(model)
    state: dict[str, Tensor] = {key: value.clone() for key, value in model.state_dict().items()}
    for name, module in model.named_modules(remove_duplicate=False):
        prefix = f"{name}." if name else ""
        if parametrize.is_parametrized(module):
            structures: nn.ModuleDict = module.parametrizations  # type: ignore[assignment]
            state = {key: value for key, value in state.items() if not key.startswith(f"{prefix}parametrizations.")}
            with evaluating(structures), torch.no_grad():
                state |= {prefix + tensor: getattr(module, tensor).clone() for tensor in structures}
        if isinstance(module, BlockBatchNorm2d | Aespa):
            names = _SHARED_BY_BLOCK if isinstance(module, BlockBatchNorm2d) else AESPA_SHARED
            keys = [prefix + key for key in names if prefix + key in state]
            state |= {key: state[key].repeat_interleave(module.block_size) for key in keys}
    for name, module in model.named_modules(remove_duplicate=False):
        state = module.packed(state, f"{name}.") if isinstance(module, Multihead) else state
    return state


def candidates(model: nn.Module, block_size: int) -> dict[str, str]:
    """Say of every layer whether it can be converted at one block size.

    Each layer is judged alone, by the rules of :func:`circulant_`, and nothing is computed on tensors. That function
    has further conditions on the whole network: torch.fx must be able to trace it, and it must find the batch norms
    behind converted convolutions.

    Args:
        model: A network; left as it was.
        block_size: Block size b.

    Returns:
        For each linear layer and convolution, by module name and in order: an empty string where it can be converted,
        else the rule that it breaks and its value.

    >>> candidates(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3, groups=2), nn.Conv2d(8, 4, 1)), 4)["2"]
    ''
    >>> candidates(nn.Sequential(nn.Linear(3, 8)), 4)["0"]
    "block size must divide both weight dimensions: 4 for (8, 3) at '0'"
    """
    model = with_attention_layers(model)
    layers = [key for key, m in model.named_modules(remove_duplicate=False) if isinstance(m, WeightedLayer)]
    return {name: _reason(model, name, block_size) for name in layers}


def uniform_sizes(model: nn.Module, block_size: int, *, pad: bool = False) -> dict[str, int]:
    """Return one block size everywhere: for every layer the largest power of two up to b that it can have.

    Args:
        block_size: Block size b, a power of two.

    Returns:
        Block size for each linear layer and convolution by module name; 1 where it stays dense.

    >>> uniform_sizes(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 10, 1)), 4)
    {'0': 1, '1': 4, '2': 2}
    >>> uniform_sizes(nn.Sequential(nn.Linear(845, 100), nn.Linear(100, 10)), 8, pad=True)
    {'0': 8, '1': 8}
    """
    if block_size < 1 or block_size & (block_size - 1):
        raise RuleError("a uniform block size must be a power of two", got=block_size, remedy="use 2, 4, 8 or 16")
    model = with_attention_layers(model)
    sizes = dict.fromkeys(candidates(model, 1), 1)
    padded, size = paddable(model) if pad else frozenset[str](), 2
    while size <= block_size:
        sizes |= {name: size for name in sizes if not _reason(model, name, size, pad=name in padded)}
        size *= 2
    return sizes


def _reason(model: nn.Module, name: str, block_size: int, *, pad: bool = False) -> str:
    """Return why a layer must stay dense; empty if it need not."""
    try:
        checked_layer(model, name, block_size, pad=pad)
    except RuleError as error:
        return f"{error.rule}: {error.got}"
    return ""
