"""Whole networks: dense to block circulant, batch norms folded away, and back to plain dense weights.

`circulant_` changes a network in place and keeps its module names; `fuse` and `dense_state_dict` return something new.
Layers are addressed by module name. The batch norm that belongs to a convolution is the one that consumes its output in
the torch.fx graph; names and order of definition play no part.

Cost: one projection for each converted layer; one symbolic trace for networks with batch norms.

Source: PrivCirNet (NeurIPS 2024), Sections 3.3 and 3.4. Departure: the variance of a shared batch norm is that of
`privcirnet.functional.fusion.block_variance`.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from privcirnet.errors import RuleError
from privcirnet.functional.circulant import check_block_size, check_importance
from privcirnet.functional.fusion import fold_batch_norm
from privcirnet.nn.activations import AESPA_SHARED, Aespa, Square
from privcirnet.nn.circulant import BlockCirculant, block_size_of, check_groups, make_circulant_
from privcirnet.nn.graph import evaluating, find_layer, trace
from privcirnet.nn.norm import BlockBatchNorm2d, check_can_share

_SHARED_BY_BLOCK = ("weight", "bias", "running_mean", "running_var")


def circulant_(
    model: nn.Module, block_sizes: Mapping[str, int], importance: Mapping[str, Tensor] | None = None
) -> nn.Module:
    """Make layers block circulant in place, and share the batch norms behind them by blocks.

    Every layer gets the block-circulant weight nearest to its own, weighed by its importance where one is given. The
    batch norm that consumes a converted convolution's output becomes a `BlockBatchNorm2d` of the same block size, and
    an AESPA activation behind is shared by the same blocks.
    Everything is checked before anything changes. Build the optimizer afterwards.

    Args:
        model: A network with plain weights.
        block_sizes: Block size for each layer, by module name; 1 leaves a layer dense.
        importance: Non-negative weights of the entries, by module name, each of its weight's shape; for example
            `privcirnet.search.fisher.diagonal_fisher`. Layers without one are projected with equal weights.

    Returns:
        `model` itself.

    Raises:
        RuleError: A name is not in the model, a layer is neither Linear nor Conv2d, is grouped, shares its weight or is
            parametrized already, a block size or an importance does not fit, or the model's batch norms cannot be found
            or shared.

    >>> model = circulant_(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)), {"0": 4, "2": 2})
    >>> [tuple(p.shape) for p in model.parameters() if p.ndim == 2]
    [(2, 8), (1, 8)]
    """
    importance = importance or {}
    layers = {name: checked_layer(model, name, b) for name, b in block_sizes.items()}
    for name, values in importance.items():
        check_importance(find_layer(model, name).weight, values)
    shared = _shared_behind(model, {name: b for name, b in block_sizes.items() if b > 1})
    for name, layer in layers.items():
        make_circulant_(layer, block_sizes[name], importance.get(name))
    for name, b in shared.items():
        module = model.get_submodule(name)
        by_block = module.shared_by(b) if isinstance(module, Aespa) else None
        model.set_submodule(name, by_block or BlockBatchNorm2d.from_batch_norm(_batch_norm(model, name), b))
    return model


def checked_layer(model: nn.Module, name: str, b: int) -> nn.Linear | nn.Conv2d:
    """Return the layer of this name, which can become circulant.

    Args:
        model: A network.
        name: Module name.
        b: Block size.

    Returns:
        The layer, unchanged.

    Raises:
        RuleError: There is no such layer, it is of another type, grouped, parametrized already or shares its weight, or
            the block size does not fit.
    """
    layer = find_layer(model, name)
    owners = [key for key, value in model.named_parameters(remove_duplicate=False) if value is layer.weight]
    if len(owners) > 1:
        raise RuleError(
            "a circulant layer must not share its weight",
            got=" = ".join(owners),
            remedy="untie the weights or leave them dense",
        )
    try:
        check_groups(layer)
        check_block_size(layer.weight.shape, b)
    except RuleError as error:
        raise RuleError(error.rule, got=f"{error.got} at {name!r}", remedy=error.remedy) from None
    return layer


def _batch_norm(model: nn.Module, name: str) -> nn.BatchNorm2d:
    norm = model.get_submodule(name)
    check_can_share(norm)
    assert isinstance(norm, nn.BatchNorm2d)
    return norm


def _shared_behind(model: nn.Module, block_sizes: Mapping[str, int]) -> dict[str, int]:
    """Return the block size of every batch norm and AESPA that consumes the output of a named layer."""
    if not block_sizes or not any(isinstance(module, _BatchNorm | Aespa) for module in model.modules()):
        return {}
    with evaluating(model):
        graph = trace(model).graph
    found: dict[str, int] = {}
    sizes: dict[fx.Node, int] = {}
    for node in graph.nodes:
        b = sizes.get(node) or (block_sizes.get(str(node.target), 1) if node.op == "call_module" else 1)
        for user in node.users if b > 1 else ():
            module = model.get_submodule(user.target) if user.op == "call_module" else None
            if not isinstance(module, _BatchNorm | Aespa):
                continue
            if isinstance(module, _BatchNorm):
                _batch_norm(model, user.target)
                sizes[user] = b
            if found.setdefault(user.target, b) != b:
                raise RuleError(
                    "a batch norm or AESPA shared by layers needs one block size",
                    got=f"{found[user.target]} and {b} before {user.target!r}",
                    remedy="give these layers the same block size",
                )
    return found


def fuse(model: nn.Module) -> fx.GraphModule:
    """Return the network for inference with every batch norm folded into the convolution before it.

    Circulant layers stay circulant, their rows scaled; the convolutions get a bias, the batch norms disappear, AESPA
    activations become squares, and all other modules keep their names. An activation that a batch norm carried (timm's
    BatchNormAct2d) stays in its place.

    Args:
        model: A network; left as it was.

    Returns:
        A graph module in evaluation mode that shares nothing with `model`.

    Raises:
        RuleError: The network cannot be traced, a batch norm does not directly follow a convolution or has no running
            statistics, a convolution feeds more than its batch norm, either is used twice, the batch norm of a
            circulant convolution is not shared by its blocks, or weights are quantized already.

    >>> fuse(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU()))
    Sequential(
      (0): Conv2d(1, 2, kernel_size=(3, 3), stride=(1, 1))
      (2): ReLU()
    )
    """
    fused = trace(copy.deepcopy(model).eval())
    calls = Counter(node.target for node in fused.graph.nodes if node.op == "call_module")
    for node in list(fused.graph.nodes):
        if node.target in (nn.functional.batch_norm, torch.batch_norm):
            raise _cannot_fold(node, "a batch norm must be a module", "use nn.BatchNorm2d")
        if node.op == "call_module" and isinstance(norm := fused.get_submodule(node.target), _BatchNorm):
            _fold_(_conv_before(fused, node, calls), norm, node.target)
            _drop_norm_(fused, node, norm)
    for node in fused.graph.nodes:
        if node.op == "call_module" and isinstance(aespa := fused.get_submodule(node.target), Aespa):
            _fold_aespa_(_layer_before(fused, node, calls), aespa, node.target)
            fused.set_submodule(node.target, Square())
    fused.graph.lint()
    fused.recompile()
    return fused


def _cannot_fold(node: fx.Node, rule: str, remedy: str) -> RuleError:
    return RuleError(rule, got=f"{str(node.target)!r} after {str(node.all_input_nodes[0].target)!r}", remedy=remedy)


def _conv_before(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> nn.Conv2d:
    """Return the convolution that a batch norm's node can be folded into."""
    layer = _layer_before(fused, node, calls)
    if not isinstance(layer, nn.Conv2d):
        raise _cannot_fold(node, "a batch norm must directly follow a convolution", "reorder the layers")
    return layer


def _layer_before(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> nn.Conv2d | nn.Linear:
    """Return the layer that a batch norm's or AESPA's node can be folded into."""
    before = node.all_input_nodes[0]
    layer = fused.get_submodule(str(before.target)) if before.op == "call_module" else None
    kind = "batch norm" if isinstance(fused.get_submodule(str(node.target)), _BatchNorm) else "AESPA"
    if not isinstance(layer, nn.Conv2d | nn.Linear):
        article = "a " if kind == "batch norm" else ""
        raise _cannot_fold(node, f"{article}{kind} must directly follow a convolution", "reorder the layers")
    if len(before.users) > 1:
        raise _cannot_fold(node, f"a convolution must feed only its {kind}", f"use the output of its {kind}")
    if calls[before.target] > 1 or calls[node.target] > 1:
        rule = f"a convolution and its {kind} must be used once"
        raise _cannot_fold(node, rule, "give each use its own module")
    return layer


def _fold_(conv: nn.Conv2d, norm: _BatchNorm, name: str) -> None:
    """Scale a convolution's stored weight, dense or rows, and set its bias."""
    shared = norm.b if isinstance(norm, BlockBatchNorm2d) else 1
    if norm.running_mean is None or norm.running_var is None:
        raise RuleError(
            "a batch norm must have running statistics to be folded", got=repr(name), remedy="set track_running_stats"
        )
    gamma = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight
    beta = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
    _fold_values_(conv, (gamma, beta, norm.running_mean, norm.running_var), norm.eps, shared, name)


def _fold_aespa_(layer: nn.Conv2d | nn.Linear, aespa: Aespa, name: str) -> None:
    """Scale (x + shift) as a batch norm of mean -shift and variance 1; what is left of the activation is a square."""
    scale, shift = aespa.coefficients(aespa.running_var, aespa.running_square_var)
    values = scale, torch.zeros_like(scale), -shift, torch.ones_like(scale)
    _fold_values_(layer, values, 0.0, aespa.b, name)


def _fold_values_(
    layer: nn.Conv2d | nn.Linear, values: tuple[Tensor, Tensor, Tensor, Tensor], eps: float, shared: int, name: str
) -> None:
    """Fold (gamma, beta, mean, variance), each shared by so many channels, into a layer."""
    b, out = block_size_of(layer), layer.weight.shape[0]
    if shared % b:
        raise RuleError(
            "what is folded into a circulant layer must be shared by its blocks",
            got=f"blocks of {shared} at {name!r} for block size {b}",
            remedy="convert the network with circulant_, or build it with blocks",
        )
    stored = _stored_weight(layer, name)
    gamma, beta, mean, var = (value.detach().repeat_interleave(shared // b) for value in values)
    bias = stored.new_zeros(out) if layer.bias is None else layer.bias
    with torch.no_grad():
        weight, bias = fold_batch_norm(stored, bias, gamma, beta, mean, var, eps)
        stored.copy_(weight)
    layer.bias = nn.Parameter(bias)


def _stored_weight(conv: nn.Conv2d | nn.Linear, name: str) -> Tensor:
    """Return the tensor that holds a layer's weight: the rows of a circulant one."""
    if not parametrize.is_parametrized(conv, "weight"):
        return conv.weight
    structures = conv.parametrizations["weight"]  # type: ignore[index]
    if [type(structure) for structure in structures] != [BlockCirculant]:
        raise RuleError(
            "batch norms must be folded before weights are quantized",
            got=f"{', '.join(type(structure).__name__ for structure in structures)} before {name!r}",
            remedy="fuse first",
        )
    return structures.original  # type: ignore[union-attr]


def _drop_norm_(fused: fx.GraphModule, node: fx.Node, norm: nn.Module) -> None:
    """Take a folded batch norm out of the graph, leaving the modules that it ran afterwards."""
    after = {name: child for name, child in norm.named_children() if not isinstance(child, nn.Identity)}
    if after:
        rest = nn.Sequential()
        for name, child in after.items():
            rest.add_module(name, child)
        fused.set_submodule(str(node.target), rest.eval())
        return
    node.replace_all_uses_with(node.all_input_nodes[0])
    fused.graph.erase_node(node)
    fused.delete_submodule(str(node.target))


def dense_state_dict(model: nn.Module) -> dict[str, Tensor]:
    """Return the network's state with plain weights, for the architecture it was converted from.

    Parametrized tensors are written out under their own names, and the values of a shared batch norm or AESPA are
    repeated for each channel, which leaves the network's outputs in evaluation as they are.

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
            state |= {key: state[key].repeat_interleave(module.b) for key in keys}
    return state
