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
from privcirnet.passes.surgery.edit import GraphEditor, arguments_of, shape_of

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


def _made(edit: GraphEditor, node: fx.Node) -> fx.Node | None:
    """Return the node of one module for the chain of moves that ends at a node, or of several where one has no grid."""
    chain = [node]
    while kind_of(edit.graph, chain[0].all_input_nodes[0]) == "move":
        chain.insert(0, chain[0].all_input_nodes[0])
    source = chain[0].all_input_nodes[0]
    if any(len(step.all_input_nodes) != 1 for step in chain):
        edit.cannot(node, "move one value at a time")
        return None
    moves, remedy = list[Rearrange](), "end in a map (N, C, H, W), tokens (N, T, C) or a vector (N, C)"
    try:
        moves = _moves(edit, source, chain)
    except RuleError as error:
        remedy = error.remedy
    except (RuntimeError, IndexError):
        remedy = "move the values of each image alone, without making parts of it images of their own"
    if not moves or len(moves[-1].after) > 3:
        edit.cannot(node, remedy)
        return None
    whole = moves[0] if len(moves) == 1 else None
    if whole and _own_shape(edit, source) == whole.after and _stays(whole, whole.after):
        return source
    flat = whole and len(_own_shape(edit, source)) == 3 and _stays(whole, (prod(_own_shape(edit, source)),))
    if flat and chain == [node] and type(edit.module(node)) is nn.Flatten:
        return node
    call = source
    for move in moves:
        call = edit.insert(call, edit.free(node.name), nn.Flatten() if flat else move, (call,))
        call.meta["shape"] = (shape_of(node)[0], *move.after)
    call.meta["shape"] = shape_of(node)
    return call


def _stays(move: Rearrange, after: tuple[int, ...]) -> bool:
    """Return whether a move keeps the order of all values, and gives them a shape."""
    grid = move.grid
    return move.after == after and grid.offset == 0 and grid.strides in ((1,), ()) and prod(grid.sizes) == prod(after)


def _moves(edit: GraphEditor, source: fx.Node, chain: list[fx.Node]) -> list[Rearrange]:
    """Return the moves of a chain: one, or where it has no grid that of its longest part which has one, and the others.

    Raises:
        RuleError: a step alone has no grid.
    """
    for count in range(len(chain), 0, -1):
        steps, rest = chain[:count], chain[count:]

        def moved(values: Tensor, steps: list[fx.Node] = steps) -> Tensor:
            for step in steps:  # a copy (`contiguous`) between two moves is gone, and a view needs it
                values = edit.compute(step, values.contiguous() if isinstance(values, Tensor) else values)
            return values

        if rest and (not shape_of(steps[-1]) or shape_of(steps[-1])[0] != shape_of(source)[0]):
            continue
        try:
            move = Rearrange.like(moved, shape_of(source)[1:], bool(rest) or channels_last(edit, chain[-1]))
            return [move, *(_moves(edit, steps[-1], rest) if rest else [])]
        except (RuleError, RuntimeError, IndexError):
            if count == 1:
                raise
    raise RuleError(
        "values must be moved along a grid, image by image", got=chain[-1].name, remedy="use reshapes and permutations"
    )


def _own_shape(edit: GraphEditor, node: fx.Node) -> tuple[int, ...]:
    """Return a value's shape in the network as it is now, without the batch: a map's, or that of tokens or a vector."""
    shape = shape_of(node)[1:]
    return (prod(shape[:-1]), shape[-1]) if channels_last(edit, node) and len(shape) > 1 else shape


_OF_CHANNELS = ("linear", "layer_norm", "rms_norm", "matmul")
"""Functions that work on the last axis alone."""
ALIKE = ("activation", "gate", "sum", "difference", "product", "numbers", "square")
"""Kinds of operations that work value by value."""


def put_images_first(edit: GraphEditor) -> None:
    """Let whatever works on single values or on channels read and give values whose first axis is that of images.

    Windows of images that stand along the first axis become places of their image. Moves before and behind take values
    there and back; :func:`settle_moves` makes nothing of most of them.
    """
    numbers: dict[fx.Node, Any] = {}
    for node in list(edit.graph.graph.nodes):
        if node.op == "output" or "constant" in node.meta:
            continue
        values = [source for source in node.all_input_nodes if "constant" not in source.meta]
        axes, counts = ([of(numbers.get(value)) for value in values] for of in (_axis, _parts))
        axis = 0 if node.op == "placeholder" else axes[0] if axes and len(set(axes)) == 1 else None
        if isinstance(edit.module(node), SoftmaxAttention) and any(axes):
            edit.cannot(node, "let attention be over the tokens of an image: batch_first=True for values (N, T, C)")
        kind = kind_of(edit.graph, node)
        if kind == "nothing" or (kind == "move" and len(values) == 1):
            numbers[node] = _moved(edit, node, numbers.get(values[0]))
        elif axis == 0 and shape_of(node):
            numbers[node] = _numbers(shape_of(node), 0)
        elif (axis and (back := _put_first(edit, node, kind, axis))) or (
            counts and counts[0] and len(set(counts)) == 1 and (back := _put_together(edit, node, kind, counts[0]))
        ):
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


def _put_together(edit: GraphEditor, node: fx.Node, kind: str, count: int) -> fx.Node | None:
    """Let a node whose first axis is that of windows, ``count`` of each image, read and give the windows of an image.

    Returns:
        The node that has its value as it was; None if it works on more than single values or channels.
    """
    shape, norm = shape_of(node), edit.module(node)
    rank = len(shape)
    values = [source for source in node.all_input_nodes if "constant" not in source.meta]
    channels = isinstance(norm, nn.Linear | nn.LayerNorm | nn.RMSNorm | nn.BatchNorm1d) and rank > 1
    channels |= kind == "function" and getattr(node.target, "__name__", "") in _OF_CHANNELS
    if isinstance(norm, nn.BatchNorm1d) and (rank != 2 or edit.calls(node.target) > 1):
        return None
    if not (channels or kind in ALIKE) or len({len(shape_of(source)) for source in values} | {rank}) > 1:
        return None
    for source in node.all_input_nodes:
        constant = source.meta.get("constant")
        if source in values or (isinstance(constant, Tensor) and constant.shape == shape and not channels):
            windows = move_behind(source, "unflatten", 0, (-1, count))
            if constant is not None:
                windows.meta["constant"] = constant.unflatten(0, (-1, count))
            node.replace_input_with(source, windows)
    if isinstance(norm, nn.BatchNorm1d):
        edit.graph.set_submodule(str(node.target), TokenBatchNorm.of_vectors(norm))
    node.meta["shape"] = (shape[0] // count, count, *shape[1:])
    back = move_behind(node, "flatten", 0, 1)
    node.replace_all_uses_with(back, delete_user_cb=lambda user: user is not back)
    return back


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
    named = arguments_of(node, "input", "dim", "keepdim")
    source = named.get("input")
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


def _parts(numbers: Any) -> int:
    """Return how many values along the first axis, such as windows, are each image's; 0 if they are not in order."""
    if not isinstance(numbers, Tensor) or not numbers.numel() or not numbers.any():
        return 0
    images = int(numbers.max()) + 1
    count = len(numbers) // images
    if count < 2 or count * images != len(numbers):
        return 0
    expected = _numbers((images, count, *numbers.shape[1:]), 0).flatten(0, 1)
    return count if torch.equal(numbers, expected) else 0


def _moved(edit: GraphEditor, node: fx.Node, numbers: Any) -> Any:
    """Return the numbers of the images of values in their new places."""
    try:
        return None if numbers is None else edit.compute(node, numbers)
    except Exception:  # settle_moves names a move that fits no values of an image
        return None
