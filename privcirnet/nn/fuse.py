"""Batch norms and AESPA activations folded into the weights before them: the network that encrypted inference runs.

A batch norm behind a convolution scales its rows. An AESPA activation is (scale (x + shift))^2; behind a layer it is
folded in the same way. Behind a residual, x = f + g, the shift goes into one layer's bias and the scale into every
summand. A summand that is itself a square, g = u^2, takes the root into u, and the layers that read g divide by it::

    scale (f + u^2) = (scale f) + (sqrt(scale) u)^2         W g = (W / scale) (sqrt(scale) u)^2

so that the activations are handled from the last to the first. All of it is exact, and circulant weights stay circulant
as long as scales are shared by blocks, which :func:`privcirnet.nn.convert.circulant_` sees to.

Source: PrivCirNet (NeurIPS 2024), Section 3.4 for batch norms. The way through residuals is ours; AESPA's own code
keeps three coefficients for each channel, which costs another plaintext product.
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
from privcirnet.functional.fusion import fold_batch_norm, scale_inputs
from privcirnet.nn.activations import Aespa, Square
from privcirnet.nn.circulant import BlockCirculant, block_size_of
from privcirnet.nn.graph import module_of, trace
from privcirnet.nn.norm import BlockBatchNorm2d
from privcirnet.nn.summands import Summands, readers, summands


def fuse(model: nn.Module) -> fx.GraphModule:
    """Return the network for inference, every batch norm and AESPA folded into the layers around it.

    Circulant layers stay circulant, their rows scaled; the convolutions get a bias, the batch norms disappear, AESPA
    activations become squares, and all other modules keep their names. An activation that a batch norm carried (timm's
    BatchNormAct2d) stays in its place.

    Args:
        model: A network; left as it was.

    Returns:
        A graph module in evaluation mode that shares nothing with `model`.

    Raises:
        RuleError: The network cannot be traced, a batch norm does not directly follow a convolution or has no running
            statistics, an AESPA follows neither a layer nor a sum of layers and squares, a convolution feeds more than
            what is folded into it, either is used twice, what is folded into a circulant layer is not shared by its
            blocks, or weights are quantized already.

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
        if isinstance(norm := module_of(fused, node), _BatchNorm):
            _fold_norm_(_conv_before(fused, node, calls), norm, str(node.target))
            _drop_norm_(fused, node, norm)
        elif isinstance(module_of(fused, node), nn.Identity):
            _skip_(fused, node)
    _fold_squares_(fused, calls)
    fused.graph.lint()
    fused.recompile()
    return fused


def _fold_squares_(fused: fx.GraphModule, calls: Mapping[Any, int]) -> None:
    """Leave plain squares, from the last activation to the first."""
    pending: dict[fx.Node, Tensor] = {}
    for node in reversed(fused.graph.nodes):
        module = module_of(fused, node)
        if isinstance(module, Aespa):
            coefficients = module.coefficients(module.running_var.double(), module.running_square_var.double())
            scale, shift = (value.detach().repeat_interleave(module.b) for value in coefficients)
        elif node in pending:
            scale, shift = torch.ones_like(pending[node]), torch.zeros_like(pending[node])
        else:
            continue
        terms = _checked_summands(fused, node, calls)
        scale = scale * pending.pop(node, torch.ones_like(scale))
        for index, layer in enumerate(terms.layers):
            _scale_outputs_(fused, layer, scale, shift if index == 0 else torch.zeros_like(shift))
        for square in terms.squares:
            _check_readers(fused, square, terms)
            pending[square] = pending.get(square, torch.ones_like(scale)) * scale.sqrt()
            for reader in readers(fused, square):
                _divide_inputs_(fused, reader, scale)
        if isinstance(module, Aespa):
            fused.set_submodule(str(node.target), Square())


def _cannot_fold(node: fx.Node, rule: str, remedy: str) -> RuleError:
    return RuleError(rule, got=f"{str(node.target)!r} after {str(node.all_input_nodes[0].target)!r}", remedy=remedy)


def _conv_before(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> nn.Conv2d:
    """Return the convolution that a batch norm's node can be folded into."""
    before = node.all_input_nodes[0]
    layer = module_of(fused, before)
    if not isinstance(layer, nn.Conv2d):
        raise _cannot_fold(node, "a batch norm must directly follow a convolution", "reorder the layers")
    _check_single_use(node, [before], "batch norm", calls)
    return layer


def _check_single_use(node: fx.Node, before: list[fx.Node], kind: str, calls: Mapping[Any, int]) -> None:
    if any(len(source.users) > 1 for source in before):
        raise _cannot_fold(node, f"a convolution must feed only its {kind}", f"use the output of its {kind}")
    if any(calls[each.target] > 1 for each in [node, *before] if each.op == "call_module"):
        rule = f"a convolution and its {kind} must be used once"
        raise _cannot_fold(node, rule, "give each use its own module")


def _checked_summands(fused: fx.GraphModule, node: fx.Node, calls: Mapping[Any, int]) -> Summands:
    """Return what an activation's scale and shift can be folded into."""
    terms = summands(fused, node)
    if terms.others or not terms.layers:
        rule = "AESPA must directly follow a convolution, or a sum of convolutions and squares"
        raise _cannot_fold(node, rule, "reorder the layers")
    _check_single_use(node, [*terms.layers, *terms.sums], "AESPA", calls)
    return terms


def _check_readers(fused: fx.GraphModule, square: fx.Node, terms: Summands) -> None:
    strangers = set(square.users) - set(terms.sums) - set(readers(fused, square))
    if strangers:
        rule = "a square that is added before an AESPA must feed only that sum and layers"
        raise RuleError(
            rule, got=f"{square.name!r} feeds {', '.join(map(str, strangers))}", remedy="reorder the layers"
        )


def _fold_norm_(conv: nn.Conv2d, norm: _BatchNorm, name: str) -> None:
    """Scale a convolution's stored weight, dense or rows, and set its bias."""
    shared = norm.b if isinstance(norm, BlockBatchNorm2d) else 1
    if norm.running_mean is None or norm.running_var is None:
        raise RuleError(
            "a batch norm must have running statistics to be folded", got=repr(name), remedy="set track_running_stats"
        )
    gamma = torch.ones_like(norm.running_var) if norm.weight is None else norm.weight
    beta = torch.zeros_like(norm.running_mean) if norm.bias is None else norm.bias
    values = tuple(v.detach().repeat_interleave(shared) for v in (gamma, beta, norm.running_mean, norm.running_var))
    _fold_values_(conv, values, norm.eps, name)


def _scale_outputs_(fused: fx.GraphModule, node: fx.Node, scale: Tensor, shift: Tensor) -> None:
    """Let a layer compute scale (y + shift): a batch norm of mean -shift and variance 1."""
    layer = module_of(fused, node)
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    values = scale, torch.zeros_like(scale), -shift, torch.ones_like(scale)
    _fold_values_(layer, values, 0.0, str(node.target))


def _fold_values_(layer: nn.Conv2d | nn.Linear, values: tuple[Tensor, ...], eps: float, name: str) -> None:
    """Fold (gamma, beta, mean, variance), each (K,), into a layer."""
    stored, out = _stored_weight(layer, name), layer.weight.shape[0]
    gamma, beta, mean, var = (_by_block(value, block_size_of(layer), name) for value in values)
    bias = stored.new_zeros(out) if layer.bias is None else layer.bias
    with torch.no_grad():
        weight, bias = fold_batch_norm(stored, bias, gamma, beta, mean, var, eps)
        stored.copy_(weight)
    layer.bias = nn.Parameter(bias)


def _divide_inputs_(fused: fx.GraphModule, node: fx.Node, scale: Tensor) -> None:
    """Let a layer compute W (x / scale)."""
    layer = module_of(fused, node)
    assert isinstance(layer, nn.Conv2d | nn.Linear)
    name, stored = str(node.target), _stored_weight(layer, str(node.target))
    _by_block(scale, block_size_of(layer), name)
    with torch.no_grad():
        stored.copy_(scale_inputs(stored, 1 / scale, layer.groups if isinstance(layer, nn.Conv2d) else 1))


def _by_block(values: Tensor, b: int, name: str) -> Tensor:
    """One of every b values, (C / b,), which must be equal."""
    blocks = values.reshape(-1, b)
    if not torch.equal(blocks, blocks[:, :1].expand_as(blocks)):
        raise RuleError(
            "what is folded into a circulant layer must be shared by its blocks",
            got=f"values that differ within a block at {name!r} for block size {b}",
            remedy="convert the network with circulant_, or build it with blocks",
        )
    return blocks[:, 0]


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
    _skip_(fused, node)
    fused.delete_submodule(str(node.target))


def _skip_(fused: fx.GraphModule, node: fx.Node) -> None:
    """Take a node that does nothing out of the graph."""
    node.replace_all_uses_with(node.all_input_nodes[0])
    fused.graph.erase_node(node)
