"""Signals, values (N, C, L) with their channels first, become maps (N, C, 1, L) of one row.

Convolutions, pools and norms along one axis become those of maps, with the same weights: a kernel of k values is one of
1 x k. Operations that work value by value on signals do so on the maps. Everything else, as a flatten, a mean or a
linear layer, reads the signal behind a move, and moves cost nothing.

A value of three axes is a signal if an operation of signals reads or gives it, at most behind operations that work
value by value. All others are tokens (N, T, C).
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.nn.circulant import take_weight_
from privcirnet.nn.graph import is_plain_layer
from privcirnet.nn.moves import Rearrange
from privcirnet.nn.norm import TokenBatchNorm, with_state_of
from privcirnet.nn.supported_modules import kind_of, named
from privcirnet.passes.surgery.edit import (
    GraphEditor,
    Replacement,
    arguments_of,
    path_of,
    shape_of,
    source_of,
    values_of,
)
from privcirnet.passes.surgery.layout import ALIKE, move_behind
from privcirnet.passes.surgery.norms import of_maps

_AXES = 3
"""Axes of a signal."""
MODULES: dict[type[nn.Module], type[nn.Module]] = {
    nn.Conv1d: nn.Conv2d,
    nn.ConvTranspose1d: nn.ConvTranspose2d,
    nn.AvgPool1d: nn.AvgPool2d,
    nn.MaxPool1d: nn.MaxPool2d,
    nn.AdaptiveAvgPool1d: nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool1d: nn.AdaptiveMaxPool2d,
    nn.InstanceNorm1d: nn.InstanceNorm2d,
    nn.Dropout1d: nn.Dropout2d,
    nn.ConstantPad1d: nn.ConstantPad2d,
    nn.ReflectionPad1d: nn.ReflectionPad2d,
    nn.ReplicationPad1d: nn.ReplicationPad2d,
    nn.CircularPad1d: nn.CircularPad2d,
    nn.Upsample: nn.Upsample,
}
"""Module of signals -> module of maps that does the same."""
_POOL = ("kernel_size", "stride", "padding")
_CONV = ("weight", "bias", "stride", "padding", "dilation", "groups")
FUNCTIONS: dict[Any, tuple[Callable[..., Any], tuple[str, ...]]] = {
    **dict.fromkeys((F.conv1d, torch.conv1d), (F.conv2d, _CONV)),
    **dict.fromkeys(
        (F.max_pool1d, torch.max_pool1d, F.max_pool1d_with_indices),
        (F.max_pool2d, (*_POOL, "dilation", "ceil_mode", "return_indices")),
    ),
    **dict.fromkeys((F.avg_pool1d, torch.avg_pool1d), (F.avg_pool2d, (*_POOL, "ceil_mode", "count_include_pad"))),
    **dict.fromkeys((F.adaptive_avg_pool1d, torch.adaptive_avg_pool1d), (F.adaptive_avg_pool2d, ("output_size",))),
    F.adaptive_max_pool1d: (F.adaptive_max_pool2d, ("output_size",)),
    F.dropout1d: (F.dropout2d, ("p", "training", "inplace")),
}
"""Function of signals -> function of maps that does the same, and the names of its arguments behind the first."""
_ONE_ROW = {
    **dict.fromkeys(("kernel_size", "stride", "dilation", "output_size", "size"), 1),
    **dict.fromkeys(("padding", "output_padding"), 0),
    "scale_factor": 1.0,
}
"""Setting that has a value for each axis -> its value for rows."""
_OF_CHANNELS = frozenset({"batch_norm", "group_norm", "instance_norm"})
"""Functions that read the second axis as channels, whatever axes follow."""
_ALONG_AN_AXIS = frozenset({"concat", "gated"})
"""Kinds of operations that name an axis."""


def as_maps(edit: GraphEditor) -> None:
    """Let operations of signals work on maps of one row, and report them."""
    nodes = list(edit.graph.graph.nodes)
    for node in _on_signals(edit, nodes):
        with edit.visiting(node):
            for source in list(node.all_input_nodes):
                _read_map(edit, node, source)
            _settle(edit, node)
            back = move_behind(_as_map(node), "squeeze", 2)
            node.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
    edit.graph.graph.eliminate_dead_code()
    _tokens_of_input(edit)


def joined(changes: Iterable[Replacement]) -> list[Replacement]:
    """Return changes, those of one module as one: an average of signals that became one of maps, and that another."""
    by_path: dict[str, Replacement] = {}
    result: list[Replacement] = []
    for change in changes:
        earlier = by_path.get(change.path)
        if earlier and earlier.after == change.before and not earlier.effect:
            result.remove(earlier)
            change = replace(change, before=earlier.before)  # noqa: PLW2901
        by_path[change.path] = change
        result.append(change)
    return result


def _on_signals(edit: GraphEditor, nodes: Iterable[fx.Node]) -> list[fx.Node]:
    """Return the nodes that work on signals, in order."""
    on_signals = {node for node in nodes if _reads_signals(edit, node)}
    candidates = {node for node in nodes if _keeps_layout(edit, node)} - on_signals
    while candidates:
        neighbours = {near for node in on_signals for near in (*values_of(node), *node.users)}
        neighbours |= {user for node in on_signals for source in values_of(node) for user in source.users}
        if not (further := neighbours & candidates):
            break
        on_signals |= further
        candidates -= further
    return [node for node in nodes if node in on_signals]


def _has_signal(node: fx.Node) -> bool:
    return len(shape_of(node)) == _AXES


def _reads_signals(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether an operation is one of signals, on a value of three axes."""
    if "constant" in node.meta or not values_of(node) or not _has_signal(values_of(node)[0]):
        return False
    module = edit.module(node)
    if isinstance(module, nn.Conv1d):
        return is_plain_layer(module)
    of_channels = isinstance(module, _BatchNorm | nn.GroupNorm) and not isinstance(module, TokenBatchNorm)
    of_signals = of_channels or _kind_for(module) not in (None, nn.Upsample)
    return of_signals or node.target in FUNCTIONS or named(edit.graph, node) in _OF_CHANNELS


def _keeps_layout(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether an operation works on signals as on maps: value by value, on channels, or along the last axis."""
    kinds = (*ALIKE, "nothing", "pad", "upsample", *_ALONG_AN_AXIS)
    values = values_of(node)
    fits = _has_signal(node) and bool(values) and all(_has_signal(value) for value in values)
    return fits and kind_of(edit.graph, node) in kinds and "constant" not in node.meta


def _kind_for(module: nn.Module | None) -> type[nn.Module] | None:
    return next((MODULES[kind] for kind in type(module).__mro__ if kind in MODULES), None)


def _as_map(node: fx.Node) -> fx.Node:
    shape = shape_of(node)
    node.meta["shape"] = (*shape[:2], 1, shape[2])
    return node


def _read_map(edit: GraphEditor, node: fx.Node, source: fx.Node) -> None:
    """Let a node read a value, or a constant that is no number, as a map of one row."""
    constant = source.meta.get("constant")
    if constant is not None:
        is_setting = node.target in FUNCTIONS or kind_of(edit.graph, node) == "function"
        if not is_setting and isinstance(constant, Tensor) and constant.ndim:
            shape = (1,) * (_AXES - constant.ndim) + tuple(constant.shape)
            row = move_behind(source, "reshape", (*shape[:-1], 1, shape[-1]))
            row.meta["constant"] = constant.reshape(row.meta["shape"])
            node.replace_input_with(source, row)
    elif source.target == "squeeze" and source.args[1:] == (2,) and len(shape_of(source_of(source))) == _AXES + 1:
        node.replace_input_with(source, source_of(source))
    else:
        rows = (user for user in source.users if user.target == "unsqueeze" and user.args[1:] == (2,))
        node.replace_input_with(source, next(rows, None) or move_behind(source, "unsqueeze", 2))


def _settle(edit: GraphEditor, node: fx.Node) -> None:
    """Let a node do on maps of one row what it did on signals."""
    module, kind, name = edit.module(node), kind_of(edit.graph, node), named(edit.graph, node)
    if node.target in FUNCTIONS:
        target, names = FUNCTIONS[node.target]
        settings = arguments_of(node, *names, behind=1)
        node.args, node.kwargs = node.args[:1], {key: _with_row(key, value) for key, value in settings.items()}
        node.target = target
        if "weight" in node.kwargs:
            _read_kernel(node)
    elif kind == "pad" and module is None:
        settings = arguments_of(node, "pad", behind=1)
        widths = settings.pop("pad")
        node.args, node.kwargs = (node.args[0], [*widths[:2], 0, 0, *widths[2:]], *node.args[2:]), settings
    elif kind == "upsample" and module is None:
        names = "size", "scale_factor"
        settings = arguments_of(node, *names, behind=1)
        node.args = (node.args[0], *(_with_row(key, settings.pop(key, None)) for key in names), *node.args[3:])
        node.kwargs = settings
    elif kind in _ALONG_AN_AXIS and module is None:
        axis = arguments_of(node, "dim", behind=1).get("dim", -1 if kind == "gated" else 0)
        node.args, node.kwargs = (*node.args[:1], _axis(axis)), {}
    elif module is not None:
        widened = _of_maps(module)
        if widened is not module:
            if edit.graph.get_submodule(path_of(node)) is module:
                edit.graph.set_submodule(path_of(node), widened)
            edit.changes.append(Replacement(path_of(node), name, type(widened).__name__))


def _axis(axis: int) -> int:
    """Return an axis of signals as that of maps."""
    return axis + 1 if axis == _AXES - 1 else axis - 1 if axis < -1 else axis


def _read_kernel(node: fx.Node) -> None:
    """Let a function read its constant kernel (K, C, k) as (K, C, 1, k)."""
    kernel = node.kwargs["weight"]
    if isinstance(kernel, fx.Node) and "constant" in kernel.meta:
        row = move_behind(kernel, "unsqueeze", 2)
        row.meta["constant"] = kernel.meta["constant"].unsqueeze(2)
        node.kwargs = node.kwargs | {"weight": row}


def _with_row(name: str, value: Any) -> Any:
    """Return a setting for maps of one row."""
    if name not in _ONE_ROW or value is None or isinstance(value, str):
        return value
    along = tuple(value) if isinstance(value, list | tuple) else (value,)
    return (*along, 0, 0) if len(along) > 1 else (_ONE_ROW[name], *along)


def _of_maps(module: nn.Module) -> nn.Module:
    """Return the module that does the same on maps of one row, with the same parameters; itself if it does."""
    if isinstance(module, nn.BatchNorm1d):
        return of_maps(module)
    if isinstance(module, nn.GLU) and _axis(module.dim) != module.dim:
        return nn.GLU(_axis(module.dim))
    if (kind := _kind_for(module)) is None:
        return module
    names = [name for name in inspect.signature(kind).parameters if hasattr(module, name)]
    options = {name: _with_row(name, getattr(module, name)) for name in names}
    if "bias" in options:
        options |= {"bias": module.bias is not None, "device": "meta"}
    widened = kind(**options)
    if not isinstance(module, nn.Conv1d | nn.ConvTranspose1d):
        return with_state_of(module, widened)
    assert isinstance(widened, nn.Conv2d | nn.ConvTranspose2d)
    take_weight_(widened, module, lambda rows: rows.unsqueeze(2))
    widened.bias = module.bias
    return widened.train(module.training)


def _tokens_of_input(edit: GraphEditor) -> None:
    """Let what reads an input (N, T, C) as tokens read it behind a move, as a program's input is a map (T, 1, C)."""
    image = next(node for node in edit.graph.graph.nodes if node.op == "placeholder")
    readers = [user for user in image.users if user.target != "unsqueeze" and user.op != "output"]
    if _has_signal(image) and readers:
        move = Rearrange.like(lambda x: x, shape_of(image)[1:], channels_last=True)
        tokens = edit.insert(image, edit.free(f"{image.name}_tokens"), move, (image,))
        for reader in readers:
            reader.replace_input_with(image, tokens)
