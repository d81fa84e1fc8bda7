"""Sums, products and concatenations of values, of which one may be a constant."""

import math
import operator

import torch
from torch import Tensor, fx

from privcirnet.nn.activations import Square
from privcirnet.nn.affine import Affine
from privcirnet.nn.concat import Concat
from privcirnet.nn.moves import Move
from privcirnet.nn.tokens import HeadProduct, Tokens
from privcirnet.passes.surgery.changes import Change
from privcirnet.passes.surgery.edit import Edit, constant_of, path_of, shape_of
from privcirnet.passes.surgery.kinds import named
from privcirnet.passes.surgery.layout import channels_last
from privcirnet.passes.surgery.norms import scale

_LARGE = 2.0**40
"""A slope is measured over so much: a number that is added then changes no digit of it."""


def add(edit: Edit, node: fx.Node) -> None:
    """Make a sum one of two values; constants go into a :class:`Tokens` or a batch norm, numbers into an Affine."""
    values, constants = _terms(node)
    if len(node.all_input_nodes) == 1:
        with_numbers(edit, node)
    elif len(values) == 1 and len(constants) == 1 and len(node.args) == 2:
        _add_constant(edit, node, values[0], constants[0])
    elif len(values) != 2 or constants or node.kwargs or shape_of(values[0]) != shape_of(values[1]):
        edit.cannot(node, "add two values of one shape")
    else:
        node.op, node.target = "call_function", operator.add


def multiply(edit: Edit, node: fx.Node) -> None:
    """Replace a product with values that broadcast, as of squeeze-and-excitation, or of a map with constants."""
    values, constants = _terms(node)
    if len(values) == 2 and values[0] is values[1]:
        square(edit, node)
        return
    if len(node.all_input_nodes) == 1:
        with_numbers(edit, node)
        return
    shapes = [shape_of(value) for value in values]
    if len(values) == len(constants) == 1:
        factors = _of_channels(constants[0], shapes[0], last=channels_last(edit, values[0]))
        if factors is not None:
            node.args = (values[0],)
            scale(edit, node, factors, torch.zeros_like(factors), "")
            return
    elif len(values) == 2 and not constants and not node.kwargs:
        first, second = sorted(values, key=lambda value: -math.prod(shape_of(value)))
        if shape_of(first) == torch.broadcast_shapes(*shapes) and len(shapes[0]) == len(shapes[1]):
            _gated(edit, node, first, second)
            return
    edit.cannot(node, "multiply values by one for each channel or place")


def subtract(edit: Edit, node: fx.Node) -> None:
    """Make a difference the sum of a value and another times -1."""
    if len(node.all_input_nodes) == 1:
        with_numbers(edit, node)
        return
    if len(node.args) != 2 or node.kwargs or any(constant_of(each, 0) is not None for each in node.all_input_nodes):
        edit.cannot(node, "subtract values from each other, or add constants")
        return
    first, second = node.args if named(edit.graph, node) != "rsub" else node.args[::-1]
    assert isinstance(second, fx.Node)
    negative = edit.insert(second, edit.free(f"{node.name}_negative"), Affine(-1.0, 0.0), (second,))
    node.args = (first, negative)
    add(edit, node)


def with_numbers(edit: Edit, node: fx.Node) -> None:
    """Replace a value that numbers are added to, subtracted from, multiplied with or divided by."""
    shift = _at(edit, node, 0.0)
    scale = (_at(edit, node, _LARGE) - _at(edit, node, -_LARGE)) / (2 * _LARGE)
    if not math.isfinite(scale) or not scale or not math.isclose(_at(edit, node, 0.7), scale * 0.7 + shift):
        edit.cannot(node, "scale values by a number that is not 0, or add one")
    elif (scale, shift) == (1, 0):
        edit.skip(node)
    else:
        edit.replace(node, Affine(scale, shift), "")


def _at(edit: Edit, node: fx.Node, value: float) -> float:
    return float(edit.compute(node, torch.tensor(value, dtype=torch.float64)))


def square(edit: Edit, node: fx.Node) -> None:
    """Replace a value times itself: a product, a square or a power of two."""
    if named(edit.graph, node) == "pow" and node.args[1:] not in ((2,), (2.0,)):
        edit.cannot(node, "use squares")
    else:
        edit.replace(node, Square(), "")


def concat(edit: Edit, node: fx.Node) -> None:
    """Replace a concatenation of channels, or of a class token with tokens."""
    parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    rank, last = len(shape_of(node)), channels_last(edit, node)
    nodes = [part for part in parts if isinstance(part, fx.Node)] if isinstance(parts, list | tuple) else []
    constants = [constant_of(part, rank) for part in nodes]
    if rank == 3 and axis in (1, -2) and len(nodes) == 2 and constants[0] is not None and constants[1] is None:
        _put_class_token(edit, node, nodes[1], constants[0])
    elif rank == 3 and axis in (1, -2) and len(nodes) > 1 and constants == [None] * len(nodes):
        _join_tokens(edit, node, nodes)
    elif not nodes or axis not in ((rank - 1, -1) if last else (1, 1 - rank)) or any(c is not None for c in constants):
        edit.cannot(node, "concatenate channels")
    elif len(nodes) == 1:
        edit.skip(node)
    else:
        edit.put_for(node, edit.insert(node, edit.free(node.name), Concat(), tuple(nodes)))


def _terms(node: fx.Node) -> tuple[list[fx.Node], list[Tensor]]:
    """The values and constants among a node's arguments; one value twice is two."""
    given = [term for term in node.args if isinstance(term, fx.Node)]
    rank = len(shape_of(node))
    constants = [found for term in given if (found := constant_of(term, rank)) is not None]
    return [term for term in given if constant_of(term, rank) is None], constants


def _of_channels(constant: Tensor, shape: tuple[int, ...], *, last: bool) -> Tensor | None:
    """Return a constant that is the same at all places of a map or of tokens as (C,); None if it is none.

    Args:
        shape: of the value that it meets, the batch's axis included.
        last: whether channels are the value's last axis.
    """
    channels = shape[-1 if last else 1]
    wanted = (channels,) if last else (channels, 1, 1)
    if constant.numel() != 1 and (constant.numel() != channels or constant.shape[-len(wanted) :] != wanted):
        return None
    return constant.detach().flatten().expand(channels)


def _add_constant(edit: Edit, node: fx.Node, value: fx.Node, constant: Tensor) -> None:
    """Positions become the constants of the tokens that they are added to."""
    shape, made = shape_of(node)[1:], edit.module(value)
    last = channels_last(edit, value)
    shifts = None if last else _of_channels(constant, shape_of(value), last=False)
    if shifts is not None:
        node.args = (value,)
        scale(edit, node, torch.ones_like(shifts), shifts, "")
        return
    if shape_of(value)[1:] != shape or len(shape) < 2:
        edit.cannot(node, "add constants to tokens (N, T, C) or maps, or put them into a layer's bias")
        return
    full = constant.detach().expand(shape)
    if len(shape) == 3:
        _add_to_places(edit, node, value, full)
        return
    if isinstance(made, Tokens) and len(value.users) == 1:
        with torch.no_grad():
            made.bias.add_(full)
        edit.put_for(node, value)
        return
    first = _tokens(edit, node, value, torch.cat([torch.zeros_like(full[:1]), full]))
    rest = Move.like(lambda x: x[:, 1:], (shape[0] + 1, shape[1]), channels_last=True)
    edit.put_for(node, edit.insert(first, edit.free(f"{node.name}_rest"), rest, (first,)))


def _add_to_places(edit: Edit, node: fx.Node, value: fx.Node, constant: Tensor) -> None:
    """Constants of a map's places: as tokens it gets one more in front, which is taken away again."""
    channels, height, width = constant.shape
    made = _tokens(edit, node, value, torch.cat([constant.new_zeros(1, channels), constant.flatten(1).T]))
    back = Move.to_map(channels, height, width, first=1)
    edit.put_for(node, edit.insert(made, edit.free(f"{node.name}_map"), back, (made,)))


def _join_tokens(edit: Edit, node: fx.Node, parts: list[fx.Node]) -> None:
    """Tokens after tokens are channels after channels, with both axes exchanged before and behind."""
    turned: list[fx.Node] = []
    for part in parts:
        move = Move.like(lambda x: x.mT, shape_of(part)[1:], channels_last=True)
        turned.append(edit.insert(part, edit.free(f"{node.name}_turned"), move, (part,)))
    joined = edit.insert(node, edit.free(node.name), Concat(), tuple(turned))
    back = Move.like(lambda x: x.mT, shape_of(node)[:0:-1], channels_last=True)
    edit.put_for(node, edit.insert(joined, edit.free(f"{node.name}_tokens"), back, (joined,)))


def _put_class_token(edit: Edit, node: fx.Node, value: fx.Node, token: Tensor) -> None:
    count, width = shape_of(node)[1:]
    if token.numel() != width:
        edit.cannot(node, "put one class token in front")
        return
    constants = torch.zeros(count, width)
    constants[0] = token.detach().flatten()
    edit.put_for(node, _tokens(edit, node, value, constants))


def _tokens(edit: Edit, node: fx.Node, value: fx.Node, constants: Tensor) -> fx.Node:
    """Return tokens with one more in front, to which constants are added."""
    made = Tokens(*constants.shape)
    with torch.no_grad():
        made.bias.copy_(constants)
    name = edit.free(f"{node.name}_tokens")
    edit.changes.append(Change(path_of(node), "constants", f"Tokens at {name}"))
    return edit.insert(node, name, made, (value,))


def _gated(edit: Edit, node: fx.Node, values: fx.Node, gates: fx.Node) -> None:
    """Multiply by values that broadcast: each is the channel of a head, and the places that share it are tokens."""
    shape, axes = shape_of(values)[1:], range(1, len(shape_of(values)))
    shared = [axis for axis in axes if shape_of(gates)[axis] < shape[axis - 1]]
    order = [0, *shared, *(axis for axis in axes if axis not in shared)]
    heads, sizes = math.prod(shape_of(gates)[1:]), [shape[axis - 1] for axis in order[1:]]
    tokens = Move.like(lambda x: x.permute(order).reshape(len(x), -1, heads), shape, channels_last=True)
    one = Move.like(lambda x: x.reshape(len(x), 1, heads), shape_of(gates)[1:], channels_last=True)
    places = [order.index(axis) for axis in range(len(order))]
    back = Move.like(
        lambda x: x.reshape(len(x), *sizes).permute(places), tokens.after, channels_last=channels_last(edit, node)
    )
    left = edit.insert(node, edit.free(f"{node.name}_places"), tokens, (values,))
    right = edit.insert(left, edit.free(f"{node.name}_gates"), one, (gates,))
    product = edit.insert(right, edit.free(node.name), HeadProduct(heads), (left, right))
    edit.put_for(node, edit.insert(product, edit.free(f"{node.name}_moved"), back, (product,)))
    edit.changes.append(Change(path_of(node), "product with a gate", "HeadProduct"))
