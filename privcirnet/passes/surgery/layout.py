"""Layout of values: channels first, as in a map (N, C, H, W), or last, as in tokens (N, ..., C) and vectors (N, C).

A layer defines the layout of its input and output; between layers, operations that work value by value keep it. Chains
of reshapes, permutations and slices become one module, or nothing. Images become the first axis of all values, as of
tokens (T, N, C) of torch's transformers.
"""

from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d
from privcirnet.nn.attention import PolynomialAttention, SoftmaxAttention
from privcirnet.nn.moves import HeadProduct, Rearrange, Take, ToTokens
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.supported_modules import kind_of
from privcirnet.passes.surgery.edit import GraphEditor, shape_of

_LAST = (nn.Linear, TokenBatchNorm, Aespa1d, PolynomialAttention, SoftmaxAttention, HeadProduct, ToTokens, Take)
_FIRST = (nn.Conv2d, nn.AvgPool2d, Aespa2d, nn.Flatten, _BatchNorm, nn.GroupNorm, nn.InstanceNorm2d)


def channels_last(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether the channels of a node's value are its last axis."""
    return _found(edit, node, set()) or False


def _found(edit: GraphEditor, node: fx.Node, visited: set[fx.Node]) -> bool | None:
    """Return whether channels are last, None if no node outside of ``visited`` defines it."""
    if len(shape_of(node)) < 4:
        return True
    is_last = _said_by(edit, node)
    if is_last is not None or node in visited:
        return is_last
    visited.add(node)
    sources = [] if kind_of(edit.graph, node) == "move" else node.all_input_nodes
    for source in sources:
        if kind_of(edit.graph, source) != "move" and "constant" not in source.meta:
            return _found(edit, source, visited)
    return _read_as_last(edit, node, visited)


def _read_as_last(edit: GraphEditor, node: fx.Node, visited: set[fx.Node]) -> bool | None:
    """Return whether the readers of a value have its channels last; None if they do not define it."""
    for user in node.users:
        if isinstance(edit.module(user), Rearrange):  # which says what it gives
            continue
        is_last = _said_by(edit, user)
        if is_last is None and kind_of(edit.graph, user) != "move":
            siblings = [s for s in user.all_input_nodes if s is not node and kind_of(edit.graph, s) not in ("move", "")]
            is_last = _found(edit, siblings[0], visited) if siblings else _read_as_last(edit, user, visited)
        if is_last is not None:
            return is_last
    return None


def _said_by(edit: GraphEditor, node: fx.Node) -> bool | None:
    """Return whether an operation has its channels last, None if it works on any layout."""
    module = edit.module(node)
    if isinstance(module, nn.LayerNorm | nn.RMSNorm):
        return not type(module).__name__.endswith("2d")
    if isinstance(module, Rearrange):
        return len(module.after) < 3
    if isinstance(module, _LAST):
        return True
    first = isinstance(module, _FIRST) or node.op == "placeholder"
    return False if first or kind_of(edit.graph, node) in ("average", "maximum") else None


def settle_moves(edit: GraphEditor) -> None:
    """Let whatever reads a chain of moves read one module instead, which takes the value before the chain.

    Args:
        edit: the network, all else replaced.
    """
    for node in list(edit.graph.graph.nodes):
        if kind_of(edit.graph, node) != "move" or "constant" in node.meta:
            continue
        readers = [user for user in node.users if kind_of(edit.graph, user) != "move"]
        if not readers or not shape_of(node):
            continue
        with edit.visiting(node):
            move = _made(edit, node)
            for reader in readers if move else ():
                reader.replace_input_with(node, move)
    edit.graph.graph.eliminate_dead_code()


def move_behind(node: fx.Node, target: Any, *arguments: Any) -> fx.Node:
    """Return the node of a move behind another node.

    Args:
        target: a method's name, or a function.
        arguments: its arguments behind the value.
    """
    method = isinstance(target, str)
    with node.graph.inserting_after(node):
        behind = node.graph.create_node("call_method" if method else "call_function", target, (node, *arguments))
    empty = torch.empty(shape_of(node), device="meta")
    behind.meta["shape"] = tuple((getattr(empty, target) if method else partial(target, empty))(*arguments).shape)
    return behind


def _made(edit: GraphEditor, node: fx.Node) -> fx.Node | None:  # noqa: PLR0911
    """Return the node of one module for the chain of moves that ends at a node."""
    chain = [node]
    while kind_of(edit.graph, chain[0].all_input_nodes[0]) == "move":
        chain.insert(0, chain[0].all_input_nodes[0])
    source = chain[0].all_input_nodes[0]
    if any(len(step.all_input_nodes) != 1 for step in chain):
        edit.cannot(node, "move one value at a time")
        return None

    def moved(values: Tensor) -> Tensor:
        for step in chain:  # a copy (`contiguous`) between two moves is gone, and a view needs it
            values = edit.compute(step, values.contiguous() if isinstance(values, Tensor) else values)
        return values

    try:
        move = Rearrange.like(moved, shape_of(source)[1:], channels_last(edit, node))
    except RuleError as error:
        edit.cannot(node, error.remedy)
        return None
    except (RuntimeError, IndexError):
        edit.cannot(node, "move the values of each image alone, without making parts of it images of their own")
        return None
    if len(move.after) > 3:
        edit.cannot(node, "end in a map (N, C, H, W), tokens (N, T, C) or a vector (N, C)")
        return None
    before = _own_shape(edit, source)
    if before == move.after and move.grid.offset == 0 and move.grid.strides in ((1,), ()):
        return source
    flat = len(before) == 3 and move.after == (prod(before),) and move.grid.strides in ((1,), ())
    flat = flat and move.grid.sizes in (move.after, ())
    if flat and chain == [node] and type(edit.module(node)) is nn.Flatten:
        return node
    call = edit.insert(node, edit.free(node.name), nn.Flatten() if flat else move, (source,))
    call.meta["shape"] = shape_of(node)
    return call


def _own_shape(edit: GraphEditor, node: fx.Node) -> tuple[int, ...]:
    """Return a value's shape in the network as it is now, without the batch: a map's, or that of tokens or a vector."""
    shape = shape_of(node)[1:]
    return (prod(shape[:-1]), shape[-1]) if channels_last(edit, node) and len(shape) > 1 else shape


ALIKE = ("activation", "gate", "sum", "difference", "product", "numbers", "square")
"""Kinds of operations that work value by value."""


def put_images_first(edit: GraphEditor) -> None:
    """Let whatever works on single values or on channels read and give values whose first axis is that of images.

    Moves before and behind take values there and back; :func:`settle_moves` makes nothing of most of them.
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
    if not (kind in ALIKE or channels) or sizes != {len(shape)}:
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
