"""Norms, gates and scales become batch norms, which are folded into the layers around them."""

from functools import partial
from math import prod

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.moves import Rearrange
from privcirnet.nn.neighbours import place_of
from privcirnet.nn.norm import (
    OPTIONS,
    Affine,
    BlockBatchNorm2d,
    TokenBatchNorm,
    as_batch_norm,
    is_frozen_norm,
    with_state_of,
)
from privcirnet.nn.supported_modules import named
from privcirnet.passes.surgery.edit import ONE_MORE, TRAIN, GraphEditor, Replacement, path_of, shape_of, source_of
from privcirnet.passes.surgery.layout import channels_last

GATES = {"sigmoid": (1 / 4, 1 / 2), "hardsigmoid": (1 / 6, 1 / 2)}
"""Slope and value at 0 of functions into [0, 1]; by name in lower case."""


def inside(norm: nn.Module) -> dict[str, nn.Module]:
    """Return the modules that a norm runs after itself, by name."""
    return {name: child for name, child in norm.named_children() if not isinstance(child, nn.Identity)}


def split(edit: GraphEditor, node: fx.Node) -> list[fx.Node]:
    """Separate a norm from the drop and activation inside it (timm's BatchNormAct2d and GroupNormAct).

    Returns:
        The nodes of what was inside, in order.
    """
    norm = edit.module(node)
    if is_frozen_norm(norm):
        edit.graph.set_submodule(path_of(node), norm := as_batch_norm(norm))
        edit.changes.append(Replacement(path_of(node), "FrozenBatchNorm2d", "BatchNorm2d"))
    after = inside(norm) if norm else {}
    if not isinstance(norm, _BatchNorm | nn.GroupNorm):
        if after:
            edit.cannot(node, "give the activation inside it a module of its own")
        return []
    if not after and type(norm).__module__.startswith(("torch.", "privcirnet.")):
        return []
    path = str(node.target)
    edit.graph.add_submodule(path, _of_groups(norm) if isinstance(norm, nn.GroupNorm) else of_maps(norm))
    last, appended = node, list[fx.Node]()
    for name, child in after.items():
        appended.append(last := edit.append(last, f"{path}_{name}", child))
    return appended


def put_behind_layer(edit: GraphEditor, node: fx.Node) -> None:
    """Give a batch norm of maps that follows no convolution an identity convolution to fold into."""
    norm = edit.module(node)
    of_tokens = isinstance(norm, TokenBatchNorm)  # which may follow one once moves between them are settled
    if isinstance(norm, nn.BatchNorm2d) and not of_tokens and not place_of(edit.graph, node):
        edit.put_layer_before(node, node.all_input_nodes[0], "BatchNorm2d")


def layer_norm(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a layer norm over channels by a batch norm with its scales and shifts.

    Args:
        node: an nn.LayerNorm or nn.RMSNorm, or an nn.GroupNorm with one group.
    """
    if not _over_channels(edit, node):
        return
    norm, last = edit.module(node), channels_last(edit, node)
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm | nn.GroupNorm | nn.InstanceNorm2d)
    channels = shape_of(node)[-1 if last else 1]
    batch = TokenBatchNorm(channels) if last else nn.BatchNorm2d(channels)
    _set(batch, norm.weight, None if isinstance(norm, nn.RMSNorm) else norm.bias)
    call = edit.replace(node, batch, TRAIN)
    if not last:
        put_behind_layer(edit, call)


def keep_layer_norm(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a layer norm over the channels by torch's own, with two moves around one of a map.

    Group norms stay as they are.
    """
    norm, last = edit.module(node), channels_last(edit, node)
    if not isinstance(norm, nn.LayerNorm | nn.RMSNorm) or not _over_channels(edit, node):
        return
    kind = nn.LayerNorm if isinstance(norm, nn.LayerNorm) else nn.RMSNorm
    if type(norm) is not kind or not last:
        plain = kind(list(norm.normalized_shape), norm.eps, norm.elementwise_affine)  # type: ignore[arg-type]
        plain.weight = norm.weight
        if isinstance(norm, nn.LayerNorm):
            plain.bias = norm.bias
        call = edit.replace(node, plain, "")
        if not last:
            _on_tokens(edit, call)


def _on_tokens(edit: GraphEditor, node: fx.Node) -> None:
    """Let a node that reads a map read its places as tokens."""
    shape, path, source = shape_of(node), path_of(node), node.all_input_nodes[0]
    first = edit.insert(source, edit.free(f"{path}_places"), Rearrange.to_tokens(*shape[1:]), (source,))
    first.meta["shape"] = node.meta["shape"] = (shape[0], shape[2] * shape[3], shape[1])
    node.replace_input_with(source, first)
    edit.append(node, edit.free(f"{path}_moved"), Rearrange.to_map(*shape[1:])).meta["shape"] = shape


def _over_channels(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether a layer norm is over the channels, or note that it is not."""
    norm, channels = edit.module(node), shape_of(node)[-1 if channels_last(edit, node) else 1]
    layer = isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    over = norm.normalized_shape if isinstance(norm, nn.LayerNorm | nn.RMSNorm) else (channels,)
    one_group = layer or (isinstance(norm, nn.GroupNorm) and norm.num_groups == 1)
    if tuple(over) != (channels,) or not one_group:
        edit.cannot(
            node, f"normalize over the channels{'' if edit.exact else ', or keep group norms, without polynomial_'}"
        )
        return False
    return True


def gate(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a sigmoid by its tangent at 0, as a batch norm: its values stay around 1/2."""
    slope, middle = GATES[named(edit.graph, node).lower()]
    if channels_last(edit, node):
        last = all(user.op == "output" for user in node.users)
        remedy = (
            "leave the last sigmoid out: a client applies it to its logits" if last else "compute gates by convolutions"
        )
        edit.cannot(node, remedy)
        return
    ones = torch.ones(shape_of(node)[1])
    scale(edit, node, slope * ones, middle * ones, TRAIN)


def scale(edit: GraphEditor, node: fx.Node, factors: Tensor, shifts: Tensor, effect: str) -> None:
    """Replace a node that scales channels, of a map or of tokens, by a batch norm that does.

    In training it normalizes what it scales, so it starts with the statistics of the images that surgery was given.

    Args:
        factors: (C,).
        shifts: (C,).
        effect: see :mod:`.edit`.
    """
    last = channels_last(edit, node)
    batch = (TokenBatchNorm if last else nn.BatchNorm2d)(len(factors))
    _set(batch, factors, shifts)
    source = edit.value(source_of(node))
    if source is not None:
        _measure(batch, source.movedim(-1 if last else 1, 0).flatten(1))
    call = edit.replace(node, batch, effect)
    if not last:
        put_behind_layer(edit, call)


def put_unfoldable_behind_layers(edit: GraphEditor) -> None:
    """Give norms and scales that fold into no layer beside them a depthwise convolution of their own.

    Batch norms of tokens and vectors work on a map of them then.
    """
    for node in list(edit.graph.graph.nodes):
        module = edit.module(node)
        folded = TokenBatchNorm | nn.BatchNorm1d | Affine | PolynomialAttention
        if not isinstance(module, folded) or place_of(edit.graph, node):
            continue
        if isinstance(module, PolynomialAttention):
            _put_layer_behind(edit, node)
            continue
        if not channels_last(edit, node):
            edit.put_layer_before(node, node.all_input_nodes[0], type(module).__name__)
            continue
        _put_on_a_map(edit, node)
        if isinstance(module, _BatchNorm):
            edit.graph.set_submodule(path_of(node), of_maps(module))
            edit.changes.append(Replacement(path_of(node), type(module).__name__, "BatchNorm2d of a map", ONE_MORE))


def of_maps(norm: _BatchNorm) -> nn.BatchNorm2d:
    """Return a batch norm of maps with the parameters, statistics and blocks of another, whatever is inside of it."""
    b = getattr(norm, "block_size", 1)
    kind = partial(BlockBatchNorm2d, block_size=b) if b > 1 else nn.BatchNorm2d
    return with_state_of(norm, kind(norm.num_features * b, **{name: getattr(norm, name) for name in OPTIONS}))


def _of_groups(norm: nn.GroupNorm) -> nn.GroupNorm:
    """Return torch's own group norm with the parameters of another, whatever is inside of it."""
    return with_state_of(norm, nn.GroupNorm(norm.num_groups, norm.num_channels, norm.eps, norm.affine))


def _put_on_a_map(edit: GraphEditor, node: fx.Node) -> None:
    """Let a node that reads tokens or vectors read a map of them, behind a depthwise convolution."""
    shape, path, source = shape_of(node), path_of(node), node.all_input_nodes[0]
    count, channels = prod(shape[1:-1]), shape[-1]
    first = edit.insert(source, edit.free(f"{path}_map"), Rearrange.to_map(channels, count, 1), (source,))
    first.meta["shape"] = node.meta["shape"] = (shape[0], channels, count, 1)
    node.replace_input_with(source, first)
    edit.put_layer_before(node, first, type(edit.module(node)).__name__)
    back = Rearrange.to_tokens(channels, count, 1) if len(shape) > 2 else nn.Flatten()
    edit.append(node, edit.free(f"{path}_tokens"), back).meta["shape"] = shape


def _put_layer_behind(edit: GraphEditor, node: fx.Node) -> None:
    """Put a depthwise convolution, on a map of them, behind the tokens of an attention."""
    shape, path = shape_of(node), path_of(node)
    size = shape[2], shape[1], 1
    first = edit.append(node, edit.free(f"{path}_map"), Rearrange.to_map(*size))
    first.meta["shape"] = (shape[0], *size)
    last = edit.append(first, edit.free(f"{path}_tokens"), Rearrange.to_tokens(*size))
    last.meta["shape"] = shape
    edit.put_layer_before(last, first, type(edit.module(node)).__name__)


def _measure(batch: _BatchNorm, values: Tensor) -> None:
    """Give a batch norm the statistics of its input, (C, ...); in evaluation it computes the same as before."""
    var, mean = torch.var_mean(values.detach().to(batch.weight), 1, correction=0)
    var = var.where(var > batch.eps, 1)  # of images that show nothing, as zeros
    with torch.no_grad():
        batch.running_mean.copy_(mean)  # type: ignore[union-attr]
        batch.running_var.copy_(var)  # type: ignore[union-attr]
        batch.bias.add_(batch.weight * mean)
        batch.weight.mul_((var + batch.eps).sqrt())


def _set(batch: _BatchNorm, weight: Tensor | None, bias: Tensor | None) -> None:
    """Give a new batch norm scales and shifts; without statistics yet, its variance is its epsilon alone."""
    with torch.no_grad():
        for parameter, initial in ((batch.weight, weight), (batch.bias, bias)):
            if initial is not None:
                parameter.copy_(initial)
            if isinstance(initial, nn.Parameter):
                parameter.requires_grad_(initial.requires_grad)
