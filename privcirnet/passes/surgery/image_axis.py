"""Reordering of axes: images become the first axis of all values, as of tokens (T, N, C) of torch's transformers."""

from typing import Any

import torch
from torch import Tensor, fx, nn

from privcirnet.nn.attention import SoftmaxAttention
from privcirnet.nn.modules import kind_of
from privcirnet.passes.surgery.edit import GraphEditor, shape_of
from privcirnet.passes.surgery.moves import move_behind

_ALIKE = ("activation", "gate", "sum", "difference", "product", "numbers", "square")
"""Kinds of operations that work value by value."""


def put_images_first(edit: GraphEditor) -> None:
    """Let whatever works on single values or on channels read and give values whose first axis is that of images.

    Moves before and behind take values there and back; :func:`.moves.settle_moves` makes nothing of most of them.
    """
    numbers: dict[fx.Node, Any] = {}
    for node in list(edit.graph.graph.nodes):
        if node.op == "output" or "constant" in node.meta:
            continue
        values = [source for source in node.all_input_nodes if "constant" not in source.meta]
        axes = [_axis(numbers.get(value)) for value in values]
        axis = 0 if node.op == "placeholder" else axes[0] if axes and len(set(axes)) == 1 else None
        if isinstance(edit.module(node), SoftmaxAttention) and any(axes):
            edit.cannot(node, "let attention be over the tokens of an image: batch_first=True for values (N, T, C)")
        kind = kind_of(edit.graph, node)
        if kind == "nothing" or (kind == "move" and len(values) == 1):
            numbers[node] = _moved(edit, node, numbers.get(values[0]))
        elif axis == 0 and shape_of(node):
            numbers[node] = _numbers(shape_of(node), 0)
        elif axis and (back := _put_first(edit, node, kind, axis)):
            first = _numbers(shape_of(node), 0)
            numbers[back] = first if back is node else _moved(edit, back, first)


def _put_first(edit: GraphEditor, node: fx.Node, kind: str, axis: int) -> fx.Node | None:
    """Return the node that has the value of one that now reads and gives images first; None if it cannot."""
    shape = shape_of(node)
    if kind == "average" and node.op != "call_module":
        return _average(node, axis)
    channels = isinstance(edit.module(node), nn.Linear | nn.LayerNorm) and axis < len(shape) - 1
    sizes = {len(shape_of(source)) for source in node.all_input_nodes if "constant" not in source.meta}
    if not (kind in _ALIKE or channels) or sizes != {len(shape)}:
        return None
    for source in list(node.all_input_nodes):
        _read_first(node, source, axis)
    return _give_first(node, axis)


def _read_first(node: fx.Node, source: fx.Node, axis: int) -> None:
    """Let a node read a value with another axis in front; of a constant, too, unless it is a number."""
    constant, value = source.meta.get("constant"), source
    if constant is not None:
        if not isinstance(constant, Tensor) or constant.ndim == 0:
            return
        value = move_behind(value, "reshape", (1,) * (len(shape_of(node)) - constant.ndim) + tuple(constant.shape))
        value.meta["constant"] = constant.reshape(value.meta["shape"])
    moved = move_behind(value, "movedim", axis, 0)
    if constant is not None:
        moved.meta["constant"] = value.meta["constant"].movedim(axis, 0)
    node.replace_input_with(source, moved)


def _give_first(node: fx.Node, axis: int) -> fx.Node:
    """Return the node that has a node's value as it was, whose first axis is to be another one."""
    shape = list(shape_of(node))
    node.meta["shape"] = (shape.pop(axis), *shape)
    back = move_behind(node, "movedim", 0, axis)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    return back


def _average(node: fx.Node, axis: int) -> fx.Node | None:
    """Let a mean over axes other than that of images read images first."""
    source, *options = (*node.args, *node.kwargs.values())
    named = dict(zip(("dim", "keepdim"), options, strict=False)) | dict(node.kwargs)
    rank, dims = len(shape_of(node.all_input_nodes[0])), named.get("dim")
    axes = {dim % rank for dim in ([dims] if isinstance(dims, int) else dims or ())}
    if not isinstance(source, fx.Node) or not axes or axis in axes:
        return None
    order = [axis, *(dim for dim in range(rank) if dim != axis)]
    _read_first(node, source, axis)
    keep = bool(named.get("keepdim", False))
    node.args, node.kwargs = (node.args[0], sorted(order.index(dim) for dim in axes), keep), {}
    at = axis if keep else axis - sum(dim < axis for dim in axes)
    return _give_first(node, at) if at else node


def _numbers(shape: tuple[int, ...], axis: int) -> Tensor:
    """Return the number of each value's image."""
    numbers = torch.arange(float(shape[axis]))
    return numbers.view(-1, *[1] * (len(shape) - axis - 1)).expand(shape)


def _axis(numbers: Any) -> int | None:
    """Return the axis of images, None if there is none."""
    if not isinstance(numbers, Tensor):
        return None
    shape = tuple(numbers.shape)
    fits = (axis for axis in range(len(shape)) if torch.equal(numbers, _numbers(shape, axis)))
    return next(fits, None) if numbers.any() else None


def _moved(edit: GraphEditor, node: fx.Node, numbers: Any) -> Any:
    """Return the numbers of the images of values in their new places."""
    try:
        return None if numbers is None else edit.compute(node, numbers)
    except Exception:  # settle_moves names a move that fits no values of an image
        return None
