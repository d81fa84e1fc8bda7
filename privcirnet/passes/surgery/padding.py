"""Other maps: padding by zeros becomes that of the convolutions behind; padding by values and rolls, moves.

Zeros that anything but convolutions reads come from a depthwise convolution that does nothing else.

The rows of a padded or rolled map are those of the map in another order. That order is cut into runs with one step
each. A :class:`Rearrange` gives each run as channels, a :class:`Concat` joins them; then the same for columns.
An image gets a layer that does nothing before, as it is not in shares.

A convolution with a forward of its own, as for TensorFlow's SAME padding or with standardized weights, becomes torch's
if their results agree.
"""

from collections.abc import Callable, Iterator
from itertools import product
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_arg
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode

from privcirnet.nn.agreement import agree
from privcirnet.nn.moves import Concat, Rearrange
from privcirnet.nn.supported_modules import kind_of, named
from privcirnet.nn.windows import Zeros, reach_of, with_zeros, zeros_around
from privcirnet.passes.surgery.edit import GraphEditor, Replacement, path_of, shape_of
from privcirnet.passes.surgery.layout import channels_last, move_behind

_REMEDY = "pad maps with zeros, or with reflected, repeated or wrapped values, and roll their rows and columns"


def pad(edit: GraphEditor, node: fx.Node) -> None:
    """Replace padding with zeros, or a map's own values in another order."""
    numbers = torch.arange(prod(shape_of(node.all_input_nodes[0]))).reshape(shape_of(node.all_input_nodes[0]))
    if shape_of(node) == numbers.shape and torch.equal(edit.compute(node, numbers), numbers):
        edit.skip(node)
        return
    if _keeps(edit, node, -1) and (not _keeps(edit, node, 1) or channels_last(edit, node)):
        node = _channels_first(edit, node)
    if zeros := _zeros_of(edit, node):
        _pad_with_zeros(edit, node, zeros)
        return
    larger = padded(edit, node, lambda x: edit.compute(node, x))
    if larger is not None:
        edit.changes.append(Replacement(path_of(node), named(edit.graph, node), "Move and Concat"))
        edit.put_for(node, larger)


def _keeps(edit: GraphEditor, node: fx.Node, axis: int) -> bool:
    """Return whether a node leaves the values of a map where they are along an axis, but for zeros that it adds."""
    before = shape_of(node.all_input_nodes[0])
    if len(before) != 4 or shape_of(node)[axis] != before[axis]:
        return False
    places = torch.arange(1.0, before[axis] + 1).to(edit.like)
    numbers = places.view([-1 if i == axis % 4 else 1 for i in range(4)])
    after = edit.compute(node, numbers.expand(before))
    return bool(((after == numbers) | (after == 0)).all())


def _channels_first(edit: GraphEditor, node: fx.Node) -> fx.Node:
    """Return the node that does with channels first what one does with channels last, between two moves."""
    (batch, height, width, channels), source = shape_of(node), node.all_input_nodes[0]
    kind, target, arguments = node.op, node.target, (node.args, node.kwargs)

    def moved(x: Tensor) -> Tensor:
        args: Any = map_arg(arguments, lambda _: x.permute(0, 2, 3, 1))
        return getattr(fx.Interpreter(edit.graph), kind)(target, *args).permute(0, 3, 1, 2)

    moved.__name__ = named(edit.graph, node)
    first = move_behind(source, "permute", 0, 3, 1, 2)
    with edit.graph.graph.inserting_before(node):
        call = edit.graph.graph.call_function(moved, (first,))
    call.meta["shape"] = (batch, channels, height, width)
    edit.put_for(node, move_behind(call, "permute", 0, 2, 3, 1))
    return call


def padded(edit: GraphEditor, node: fx.Node, function: Callable[[Tensor], Tensor]) -> fx.Node | None:
    """Return the padded map of a node's input, by a function that pads; note a problem where it cannot be expressed."""
    current, shape = node.all_input_nodes[0], shape_of(node.all_input_nodes[0])
    if len(shape) != 4:
        edit.cannot(node, _REMEDY)
        return None
    height, width = shape[2:]
    numbers = torch.arange(1, height * width + 1, dtype=torch.float64).view(1, 1, height, width)
    places = function(numbers)[0, 0].long() - 1
    rows, columns = places[:, 0] // width, places[0] % width
    if places.min() < 0 or not torch.equal(places, rows[:, None] * width + columns):
        edit.cannot(node, _REMEDY)
        return None
    if current.op == "placeholder":
        current = edit.put_layer_before(node, current, named(edit.graph, node))
    for order in (rows, columns):
        current = _ordered(edit, node, current, order)
    return _insert(edit, node, Rearrange.like(_rotated, shape_of(current)[1:], channels_last=False), current)


def pad_before(edit: GraphEditor, node: fx.Node) -> None:
    """Put the padding of a convolution, other than zeros, around the map that it reads."""
    conv = edit.module(node)
    assert isinstance(conv, nn.Conv2d)
    if zeros_around(conv):
        return
    around, mode = conv._reversed_padding_repeated_twice, conv.padding_mode
    if sum(call.target == node.target for call in edit.graph.graph.nodes) > 1:
        edit.cannot(node, "give each use of a convolution with such padding its own module")
        return
    larger = padded(edit, node, lambda x: F.pad(x, around, mode))
    if larger is not None:
        edit.graph.set_submodule(path_of(node), with_zeros(conv, Zeros()))
        node.replace_input_with(node.all_input_nodes[0], larger)
        edit.changes.append(Replacement(path_of(node), f"Conv2d with {mode} padding", "Move, Concat and Conv2d"))


def plain_convolution(edit: GraphEditor, node: fx.Node) -> None:
    """Let torch's own convolution take the place of one whose forward pads or changes its weights, or note more."""
    conv, source = edit.module(node), shape_of(node.all_input_nodes[0])
    assert isinstance(conv, nn.Conv2d)
    alone = edit.calls(node.target) == 1 and not parametrize.is_parametrized(conv)
    forms = (conv, _with_forward_weights(conv, source)) if alone else ()
    x = torch.rand(source, generator=torch.Generator().manual_seed(0)).to(edit.like) if alone else torch.empty(0)
    for zeros, form in product(_needed(conv, source, shape_of(node)), forms):
        plain = with_zeros(form, zeros)
        plain.__class__ = nn.Conv2d
        if agree(plain(x), edit.compute(node, x)):
            edit.graph.set_submodule(path_of(node), plain)
            edit.changes.append(Replacement(path_of(node), type(conv).__name__, "Conv2d"))
            return
    edit.cannot(node, "use torch's Conv2d, with what its forward does besides as modules of their own")


def _with_forward_weights(conv: nn.Conv2d, shape: tuple[int, ...]) -> nn.Conv2d:
    """Return torch's convolution with the weights that a forward computes, such as standardized ones."""
    weights = _Weights()
    with torch.no_grad(), weights:
        conv(torch.zeros(shape).to(conv.weight))
    rows, bias = weights.last
    if rows is None or rows.shape != conv.weight.shape:
        return conv
    sizes = conv.in_channels, conv.out_channels, (conv.kernel_size[0], conv.kernel_size[1])
    options = {"padding": conv.padding, "padding_mode": conv.padding_mode}
    plain = nn.Conv2d(*sizes, conv.stride, dilation=conv.dilation, groups=conv.groups, **options)  # type: ignore[arg-type]
    plain.weight = nn.Parameter(rows.detach().clone(), conv.weight.requires_grad)
    plain.bias = None if bias is None else nn.Parameter(bias.detach().clone(), conv.weight.requires_grad)
    return plain.train(conv.training)


class _Weights(TorchFunctionMode):
    """A record of the weights and biases that convolutions run with.

    Attributes:
        last: those of the last convolution.
    """

    last: tuple[Tensor | None, Tensor | None] = None, None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if func in (F.conv2d, torch.conv2d):
            arguments = dict(zip(("input", "weight", "bias"), args, strict=False)) | options
            self.last = arguments["weight"], arguments.get("bias")
        return func(*args, **options)


def _needed(conv: nn.Conv2d, before: tuple[int, ...], after: tuple[int, ...]) -> Iterator[Zeros]:
    """Yield zeros with which a convolution gives a map of a size: its own, or as few as will do, half of them ahead."""
    if len(before) != 4 or len(after) != 4:
        return
    reach = reach_of(conv)
    few = [
        max((size - 1) * stride + covered - side, 0)
        for side, size, stride, covered in zip(before[2:], after[2:], conv.stride, reach, strict=True)
    ]
    same = Zeros(few[0] // 2, few[0] - few[0] // 2, few[1] // 2, few[1] - few[1] // 2)
    for zeros in dict.fromkeys((zeros_around(conv) or Zeros(), same)):
        if before[2] + zeros.top + zeros.bottom >= reach[0] and before[3] + zeros.left + zeros.right >= reach[1]:
            yield zeros


def _zeros_of(edit: GraphEditor, node: fx.Node) -> Zeros | None:
    """Return the zeros that a node puts around a map; None if it does something else."""
    before, after = shape_of(node.all_input_nodes[0]), shape_of(node)
    if len(before) != 4 or len(after) != 4:
        return None
    ones = torch.ones(before)
    padded = edit.compute(node, ones)
    rows, columns = (padded[0, 0].sum(axis).nonzero().flatten().tolist() for axis in (1, 0))
    top, left = min(rows, default=0), min(columns, default=0)
    zeros = Zeros(top, after[2] - before[2] - top, left, after[3] - before[3] - left)
    alike = min(zeros) >= 0 and torch.equal(padded, _with(zeros, ones))
    return zeros if alike and any(zeros) else None


def _with(zeros: Zeros, values: Tensor) -> Tensor:
    return F.pad(values, (zeros.left, zeros.right, zeros.top, zeros.bottom))


def _pad_with_zeros(edit: GraphEditor, node: fx.Node, zeros: Zeros) -> None:
    """Let the convolutions that read a node pad by themselves, or a depthwise one that does nothing else."""
    source, kind = node.all_input_nodes[0], named(edit.graph, node)
    padded = {
        path_of(user): with_zeros(conv, zeros.plus(inner))
        for user in node.users
        if isinstance(conv := edit.module(user), nn.Conv2d) and (inner := zeros_around(conv)) is not None
    }
    alone = all(edit.calls(user.target) == 1 and kind_of(edit.graph, user) == "layer" for user in node.users)
    if alone and len(padded) == len(node.users):
        for path, conv in padded.items():
            edit.graph.set_submodule(path, conv)
        edit.changes.append(Replacement(path_of(node), kind, "padding of the convolutions behind"))
    else:
        source = edit.put_layer_before(node, source, kind)
        layer = edit.module(source)
        assert isinstance(layer, nn.Conv2d)
        edit.graph.set_submodule(path_of(source), with_zeros(layer, zeros))
        source.meta["shape"] = shape_of(node)
    edit.put_for(node, source)


def _ordered(edit: GraphEditor, node: fx.Node, source: fx.Node, order: Tensor) -> fx.Node:
    """Return (A, B, C) as (B, C, A), with the places of B in an order."""
    parts: list[fx.Node] = []
    for run in _runs(order.tolist()):
        places = torch.tensor(run)
        move = Rearrange.like(
            lambda x, places=places: _rotated(x[:, :, places]), shape_of(source)[1:], channels_last=False
        )
        parts.append(_insert(edit, node, move, source))
    return parts[0] if len(parts) == 1 else _insert(edit, node, Concat(), *parts)


def _insert(edit: GraphEditor, node: fx.Node, module: nn.Module, *inputs: fx.Node) -> fx.Node:
    call = edit.insert(inputs[0], edit.free(f"{node.name}_{type(module).__name__.lower()}"), module, inputs)
    first = [shape_of(source)[1] for source in inputs]
    after = module.after if isinstance(module, Rearrange) else (sum(first), *shape_of(inputs[0])[2:])
    call.meta["shape"] = (shape_of(node)[0], *after)
    return call


def _rotated(x: Tensor) -> Tensor:
    return x.permute(0, 2, 3, 1)


def _runs(places: list[int]) -> list[list[int]]:
    """Cut places into as few runs with one step as going from left to right gives.

    >>> _runs([1, 0, 1, 2, 3, 2])
    [[1, 0], [1, 2, 3], [2]]
    """
    runs: list[list[int]] = []
    for place in places:
        last = runs[-1] if runs else []
        if last and (len(last) == 1 or place - last[-1] == last[1] - last[0]):
            last.append(place)
        else:
            runs.append([place])
    return runs


def transpose(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a transposed convolution of stride s by a convolution that gives all s x s phases, and their places.

    Row s i + r of the result takes tap t of row i + (r + p - t) / s, for each t that makes this an integer.
    """
    conv, (_, out, *after) = edit.module(node), shape_of(node)
    assert isinstance(conv, nn.ConvTranspose2d)
    assert isinstance(conv.padding, tuple)
    if conv.padding_mode != "zeros":
        edit.cannot(node, "pad a transposed convolution with zeros")
        return
    before, (down, right) = shape_of(node.all_input_nodes[0])[2:], conv.stride
    taps = [_taps(*axis) for axis in zip(conv.stride, conv.padding, conv.dilation, conv.kernel_size, strict=True)]
    counts = [-(-size // s) for size, s in zip(after, conv.stride, strict=True)]
    last = max(offset for axis in taps for _, _, offset in axis)
    first = max(-offset for axis in taps for _, _, offset in axis)
    around = max(first, *(count - size + last for count, size in zip(counts, before, strict=True)), 0)
    layer = nn.Conv2d(
        *(conv.in_channels, out * down * right, around + last + 1),
        padding=around,
        groups=conv.groups,
        bias=conv.bias is not None,
    )
    with torch.no_grad():
        kernels = conv.weight.unflatten(0, (conv.groups, -1)).transpose(1, 2).flatten(0, 1)
        phases = layer.weight.zero_().unflatten(0, (out, down, right))
        for (r, row, below), (c, column, beside) in product(*taps):
            phases[:, r, c, :, around + below, around + beside] = kernels[:, :, row, column]
        if conv.bias is not None:
            layer.bias.copy_(conv.bias.repeat_interleave(down * right))  # type: ignore[union-attr]
    for parameter in layer.parameters():
        parameter.requires_grad_(conv.weight.requires_grad)
    call = edit.replace(node, layer, "")
    call.meta["shape"] = (shape_of(node)[0], out * down * right, *(axis + around - last for axis in before))

    def joined(x: Tensor) -> Tensor:
        x = x[:, :, : counts[0], : counts[1]].unflatten(1, (out, down, right))
        return x.permute(0, 1, 4, 2, 5, 3).flatten(4).flatten(2, 3)

    for function in (joined, lambda x: x[:, :, : after[0], : after[1]]):
        move = Rearrange.like(function, shape_of(call)[1:], channels_last=False)
        if move.after != shape_of(call)[1:]:
            call = edit.append(call, edit.free(f"{path_of(call)}_joined"), move)
            call.meta["shape"] = (shape_of(call)[0], *move.after)


def _taps(stride: int, padding: int, dilation: int, kernel: int) -> list[tuple[int, int, int]]:
    """Return the phases r of an axis with each weight that they take, and the offset from i of its value."""
    all_taps = ((r, tap, r + padding - dilation * tap) for r, tap in product(range(stride), range(kernel)))
    return [(r, tap, distance // stride) for r, tap, distance in all_taps if distance % stride == 0]
