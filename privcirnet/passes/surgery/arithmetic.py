"""Arithmetic: sums, products and concatenations of values, of which one may be a constant; and reductions.

Reductions are sums, means and maxima over the places of a map, over tokens or over a stack, in one or several steps.
"""

import math
import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import map_arg

from privcirnet.nn.activations import Square
from privcirnet.nn.moves import Concat, HeadProduct, Rearrange, ToTokens
from privcirnet.nn.neighbours import layer_before
from privcirnet.nn.norm import Affine
from privcirnet.nn.supported_modules import kind_of, named
from privcirnet.passes.surgery import norms, padding
from privcirnet.passes.surgery.edit import (
    GraphEditor,
    Replacement,
    arguments_of,
    constant_of,
    path_of,
    shape_of,
    source_of,
    values_of,
)
from privcirnet.passes.surgery.layout import channels_last

_LARGE = 2.0**40
"""Half the interval over which a slope is measured: an added number then changes no digit of it."""


def add(edit: GraphEditor, node: fx.Node) -> None:
    """Make a sum or difference one of two values of one shape; constants and numbers go where :func:`affine` says."""
    values = values_of(node)
    if len(values) == 1:
        affine(edit, node)
        return
    shape, factors = shape_of(node), _factors(edit, node) if len(values) == 2 else None
    fits = all(len(shape_of(value)) == len(shape) and shape_of(value)[0] == shape[0] for value in values)
    if factors is None or not fits:
        edit.cannot(node, "add two values, or subtract one from the other")
        return
    terms = [_spread(edit, node, value) for value in values]
    for place, factor in enumerate(factors):
        if factor != 1:
            scaled = edit.insert(terms[place], edit.free(f"{node.name}_factor"), Affine(factor, 0.0), (terms[place],))
            terms[place] = scaled
    node.op, node.target, node.args, node.kwargs = "call_function", operator.add, tuple(terms), {}


def multiply(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a product with values that broadcast, as of squeeze-and-excitation, or of a map with constants."""
    values = values_of(node)
    if len(values) == 1 and sum(term is values[0] for term in node.args) == 2:
        square(edit, node)
    elif len(values) == 1:
        affine(edit, node)
    else:
        values = [_unrepeated(value) for value in values]
        shapes = [shape_of(value) for value in values]
        first, second = sorted(values, key=lambda value: -math.prod(shape_of(value)))
        fits = shape_of(first) == shape_of(node) == torch.broadcast_shapes(*shapes)
        if fits and len(shapes[0]) == len(shapes[1]) and not node.kwargs:
            _gated(edit, node, first, second)
        else:
            edit.cannot(node, "multiply values by one for each channel or place")


def _unrepeated(value: fx.Node) -> fx.Node:
    """Return the value before it is repeated along axes of one place, as a product repeats it itself."""
    while getattr(value.target, "__name__", value.target) in ("expand", "broadcast_to"):
        if len(shape_of(source_of(value))) != len(shape_of(value)):
            break
        value = source_of(value)
    return value


def divide(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a value that numbers and constants divide, or whose sign changes."""
    if len(values_of(node)) == 1:
        affine(edit, node)
    else:
        norms = "nn.LayerNorm, nn.GroupNorm or nn.RMSNorm"
        edit.cannot(node, f"divide by numbers, parameters or buffers alone; write norms of values as {norms}")


def affine(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a value that constants and numbers are added to, or that they multiply or divide.

    Numbers become an Affine, factors of channels a batch norm, and constants of each place a :class:`ToTokens`.
    """
    value = source_of(node)
    shape = shape_of(value)
    at = [edit.compute(node, torch.full(shape, number, dtype=torch.float64)) for number in (0.0, 0.7, _LARGE, -_LARGE)]
    shift, scale = at[0], (at[2] - at[3]) / (2 * _LARGE)
    if len(shape) < 2 or not scale.isfinite().all() or not torch.allclose(at[1], 0.7 * scale + shift):
        edit.cannot(node, "let numbers and constants scale values, or be added to them")
        return
    if shift.shape != shape:
        node.replace_input_with(value, _spread(edit, node, value))
    if not torch.equal(scale[:1].expand_as(scale), scale) or not torch.equal(shift[:1].expand_as(shift), shift):
        edit.cannot(node, "take constants that are alike for all images")
        return
    _affine(edit, node, scale[0], shift[0])


def _affine(edit: GraphEditor, node: fx.Node, scale: Tensor, shift: Tensor) -> None:
    """Replace a value by scale x + shift, both of the shape of an image's values."""
    last, trained = channels_last(edit, node), any(_is_trained(source) for source in node.all_input_nodes)
    (factor, one_factor), (term, one_term) = _number(scale), _number(shift)
    factors, shifts = _of_channels(scale, last=last), _of_channels(shift, last=last)
    free = last or not (trained or source_of(node).op == "placeholder" or layer_before(edit.graph, node))
    positions = one_factor and factor == 1 and free and shift.ndim > 1
    if one_factor and one_term and factor and not trained:
        if (factor, term) == (1, 0):
            edit.skip(node)
        else:
            edit.replace(node, Affine(factor, term), "")
    elif factors is not None and shifts is not None and not positions and (factor or not one_factor):
        norms.scale(edit, node, factors, shifts, "")
    elif not one_factor or not factor or shift.ndim < 2:
        edit.cannot(node, "multiply values by constants of channels, or by a number that is not 0")
    else:
        value = source_of(node)
        if factor != 1:
            value = edit.insert(value, edit.free(f"{node.name}_factor"), Affine(factor, 0.0), (value,))
        _add_to_places(edit, node, value, shift, trained=trained)


def _number(constants: Tensor) -> tuple[float, bool]:
    """Return the first of some constants, and whether all are like it."""
    first = constants.flatten()[0]
    return first.item(), torch.equal(first.expand_as(constants), constants)


def _is_trained(node: fx.Node) -> bool:
    """Return whether a constant depends on parameters that training changes."""
    if "constant" not in node.meta:
        return False
    value = node.meta["constant"]
    return (isinstance(value, nn.Parameter) and value.requires_grad) or any(map(_is_trained, node.all_input_nodes))


def _factors(edit: GraphEditor, node: fx.Node) -> tuple[float, float] | None:
    """Return the factors of the two values that a sum reads; None if it is no sum."""
    unit, zero = torch.ones((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    first, second = float(edit.compute(node, unit, zero)), float(edit.compute(node, zero, unit))
    whole = float(edit.compute(node, 0.3 * unit, 0.7 * unit))
    return (first, second) if first and second and math.isclose(whole, 0.3 * first + 0.7 * second) else None


def _spread(edit: GraphEditor, node: fx.Node, value: fx.Node) -> fx.Node:
    """Return a value repeated along the axes where a node's result is longer."""
    shape = shape_of(node)
    if shape_of(value) == shape:
        return value
    move = Rearrange.like(lambda x: x.expand(len(x), *shape[1:]), shape_of(value)[1:], channels_last(edit, node))
    repeated = edit.insert(value, edit.free(f"{node.name}_repeated"), move, (value,))
    repeated.meta["shape"] = shape
    return repeated


def square(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a value times itself: a product, a square or a power of two."""
    if named(edit.graph, node) == "pow" and node.args[1:] not in ((2,), (2.0,)):
        edit.cannot(node, "use squares")
    else:
        edit.replace(node, Square(), "")


def concat(edit: GraphEditor, node: fx.Node) -> None:
    """Replace a concatenation of channels, or of a class token with tokens."""
    parts, axis = node.args[0], node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    rank, last = len(shape_of(node)), channels_last(edit, node)
    nodes = [part for part in parts if isinstance(part, fx.Node)] if isinstance(parts, list | tuple) else []
    constants = [constant_of(part, rank) for part in nodes]
    if rank == 3 and axis in (1, -2) and len(nodes) == 2 and constants[0] is not None and constants[1] is None:
        _put_class_token(edit, node, nodes[1], constants[0])
    elif rank == 3 and axis in (1, -2) and len(nodes) > 1 and constants == [None] * len(nodes):
        _join_tokens(edit, node, nodes)
    elif not nodes or axis not in ((rank - 1, -1) if last else (1, 1 - rank)):
        edit.cannot(node, "concatenate channels")
    elif any(c is not None for c in constants):
        _join_constants(edit, node, [part if c is None else c for part, c in zip(nodes, constants, strict=True)])
    elif len(nodes) == 1:
        edit.skip(node)
    else:
        edit.put_for(node, edit.insert(node, edit.free(node.name), Concat(), tuple(nodes)))


def pad(edit: GraphEditor, node: fx.Node) -> None:
    """Replace padding: constants for channels by a concatenation, padding of a map by :mod:`.pads`."""
    source = source_of(node)
    widths = arguments_of(node, "input", "pad").get("pad")
    channels = widths[4:] if isinstance(widths, list | tuple) and len(widths) == 6 and not any(widths[:4]) else []
    if len(shape_of(source)) != 4 or not any(channels) or min(channels) < 0 or channels_last(edit, source):
        padding.pad(edit, node)
        return
    shape, front = shape_of(source), channels[0]
    constants = edit.compute(node, torch.zeros(shape))[0]
    parts = (constants[:front], source, constants[front + shape[1] :])
    _join_constants(edit, node, [part for part in parts if isinstance(part, fx.Node) or len(part)])


def _join_constants(edit: GraphEditor, node: fx.Node, parts: list[fx.Node | Tensor]) -> None:
    """Replace a concatenation of a map's channels with constant ones, such as zeros."""
    value = next((part for part in parts if isinstance(part, fx.Node)), None)
    shape = () if value is None else shape_of(value)
    fits = [isinstance(part, fx.Node) or len(part) <= shape[1] or _number(part)[1] for part in parts if len(shape) == 4]
    if value is None or channels_last(edit, node) or not all(fits) or not fits:
        edit.cannot(node, "concatenate channels with no more constant ones than a map has")
        return
    if value.op == "placeholder":
        image = value
        value = edit.put_layer_before(node, value, named(edit.graph, node))
        parts = [value if part is image else part for part in parts]
    joined = [part if isinstance(part, fx.Node) else _constant_map(edit, node, value, part) for part in parts]
    concatenated = edit.insert(node.prev, edit.free(node.name), Concat(), tuple(joined))
    concatenated.meta["shape"] = shape_of(node)
    edit.put_for(node, concatenated)


def _constant_map(edit: GraphEditor, node: fx.Node, value: fx.Node, constants: Tensor) -> fx.Node:
    """Return a map of constants, in shares: the values of a token in front of the token that a map becomes."""
    (_, *shape), count = shape_of(value), len(constants)
    size = math.prod(shape)
    alone = constants[:1] if _number(constants)[1] else constants
    bias = torch.zeros(2, size)
    bias[0, : alone.numel()] = alone.flatten()
    enter = Rearrange.like(lambda x: x.reshape(len(x), 1, size), tuple(shape), channels_last=True)
    back = Rearrange.like(
        lambda x: x[:, 0, : alone.numel()].unflatten(1, alone.shape).expand(-1, count, -1, -1), (2, size), False
    )
    first = edit.insert(value, edit.free(f"{node.name}_values"), enter, (value,))
    tokens = _tokens(edit, node, first, bias)
    edit.module(tokens).requires_grad_(False)  # type: ignore[union-attr]
    last = edit.insert(tokens, edit.free(f"{node.name}_constants"), back, (tokens,))
    last.meta["shape"] = (shape_of(value)[0], count, *shape[1:])
    return last


def _of_channels(constants: Tensor, *, last: bool) -> Tensor | None:
    """Return constants that are the same at all places of a map or of tokens as (C,); None if they are not.

    Args:
        constants: values of the shape of an image's values.
        last: whether channels are their last axis.
    """
    channels = constants.movedim(-1 if last else 0, 0).flatten(1) if constants.ndim > 1 else constants[:, None]
    return channels[:, 0] if torch.equal(channels[:, :1].expand_as(channels), channels) else None


def _add_to_places(edit: GraphEditor, node: fx.Node, value: fx.Node, constants: Tensor, *, trained: bool) -> None:
    """Make positions constants of the tokens that they are added to; those of a map have one more token in front."""
    module, last = edit.module(value), channels_last(edit, value)
    tokens = constants.flatten(0, -2) if last else constants.flatten(1).T
    if isinstance(module, ToTokens) and len(value.users) == 1:
        with torch.no_grad():
            module.bias.add_(tokens)
        edit.original.pop(value.name, None)
        edit.put_for(node, value)
        return
    if value.op == "placeholder":
        value = edit.put_layer_before(node, value, named(edit.graph, node))
    first = _tokens(edit, node, value, nn.functional.pad(tokens, (0, 0, 1, 0)))
    edit.module(first).requires_grad_(trained)  # type: ignore[union-attr]
    if last:
        rest = Rearrange.like(lambda x: x[:, 1:], (len(tokens) + 1, tokens.shape[1]), channels_last=True)
    else:
        rest = Rearrange.to_map(*constants.shape, first=1)
    result = edit.insert(first, edit.free(f"{node.name}_rest"), rest, (first,))
    result.meta["shape"] = shape_of(node)
    edit.put_for(node, result)


def _join_tokens(edit: GraphEditor, node: fx.Node, parts: list[fx.Node]) -> None:
    """Concatenate tokens as channels, with both axes exchanged before and behind."""
    turned: list[fx.Node] = []
    for part in parts:
        move = Rearrange.like(lambda x: x.mT, shape_of(part)[1:], channels_last=True)
        turned.append(edit.insert(part, edit.free(f"{node.name}_turned"), move, (part,)))
    joined = edit.insert(node, edit.free(node.name), Concat(), tuple(turned))
    back = Rearrange.like(lambda x: x.mT, shape_of(node)[:0:-1], channels_last=True)
    edit.put_for(node, edit.insert(joined, edit.free(f"{node.name}_tokens"), back, (joined,)))


def _put_class_token(edit: GraphEditor, node: fx.Node, value: fx.Node, token: Tensor) -> None:
    count, width = shape_of(node)[1:]
    if token.numel() != width:
        edit.cannot(node, "put one class token in front")
        return
    constants = torch.zeros(count, width)
    constants[0] = token.detach().flatten()
    edit.put_for(node, _tokens(edit, node, value, constants))


def _tokens(edit: GraphEditor, node: fx.Node, value: fx.Node, constants: Tensor) -> fx.Node:
    """Return tokens with one more in front, to which constants are added."""
    module = ToTokens(*constants.shape)
    with torch.no_grad():
        module.bias.copy_(constants)
    name = edit.free(f"{node.name}_tokens")
    edit.changes.append(Replacement(path_of(node), "constants", f"Tokens at {name}"))
    tokens = edit.insert(value, name, module, (value,))
    tokens.meta["shape"] = (shape_of(node)[0], *constants.shape)
    return tokens


def _gated(edit: GraphEditor, node: fx.Node, values: fx.Node, gates: fx.Node) -> None:
    """Multiply by values that broadcast: each is the channel of a head, and the places that share it are tokens."""
    shape, axes = shape_of(values)[1:], range(1, len(shape_of(values)))
    shared = [axis for axis in axes if shape_of(gates)[axis] < shape[axis - 1]]
    order = [0, *shared, *(axis for axis in axes if axis not in shared)]
    heads, sizes = math.prod(shape_of(gates)[1:]), [shape[axis - 1] for axis in order[1:]]
    tokens = Rearrange.like(lambda x: x.permute(order).reshape(len(x), -1, heads), shape, channels_last=True)
    gate_token = Rearrange.like(lambda x: x.reshape(len(x), 1, heads), shape_of(gates)[1:], channels_last=True)
    places = [order.index(axis) for axis in range(len(order))]
    back = Rearrange.like(
        lambda x: x.reshape(len(x), *sizes).permute(places), tokens.after, channels_last=channels_last(edit, node)
    )
    left = edit.insert(node, edit.free(f"{node.name}_places"), tokens, (values,))
    right = edit.insert(left, edit.free(f"{node.name}_gates"), gate_token, (gates,))
    product = edit.insert(right, edit.free(node.name), HeadProduct(heads), (left, right))
    edit.put_for(node, edit.insert(product, edit.free(f"{node.name}_moved"), back, (product,)))
    edit.changes.append(Replacement(path_of(node), "product with a gate", "HeadProduct"))


_REDUCTIONS = frozenset({"mean", "sum", "amax", "max"})
_PLACES: dict[Any, Callable[[Tensor], Tensor]] = {
    torch.mean: lambda x: x.mean((2, 3)),
    F.adaptive_max_pool2d: lambda x: x.amax((2, 3)),
}


def settle_reduction(edit: GraphEditor, node: fx.Node) -> fx.Node | None:
    """Let a reduction, with all moves and reductions before it, be one of a map's places, of tokens or of a stack.

    Returns:
        The node of a mean or of a max pool in its place, which is left to replace; None if nothing is left to do.
    """
    last = _result(node)
    if last is None:
        return node
    if _feeds_reductions(edit, last):
        return None
    chain = [last]
    while _is_part(edit, chain[0]) and len(values_of(chain[0])) == 1:
        chain.insert(0, values_of(chain[0])[0])
    source, *steps = chain

    def reduced(x: object) -> Tensor:
        for step in steps:  # a copy (`contiguous`) between two moves is gone, and a view needs it
            x = edit.compute(step, x.contiguous() if isinstance(x, Tensor) else x)
        assert isinstance(x, Tensor)
        return x

    alone = steps == [node] and named(edit.graph, node) == "mean" and kind_of(edit.graph, source) != "stack"
    if alone and (len(shape_of(source)) != 4 or _is_mean(source, reduced, (2, 3))):
        return node
    if kind_of(edit.graph, source) == "stack":
        return None if _add_stacked(edit, last, source, reduced) else node
    return _reduce(edit, last, source, reduced) or node


def stack(edit: GraphEditor, node: fx.Node) -> list[fx.Node]:
    """Replace a stack by a concatenation and moves; sums over it are replaced where they are.

    Returns:
        The node of the concatenation, if there is one, which is left to replace.
    """
    if all(named(edit.graph, user) in _REDUCTIONS for user in node.users):
        return []
    parts = node.args[0]
    dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
    rank, shape = len(shape_of(node)), shape_of(node)
    assert isinstance(parts, list | tuple)
    assert isinstance(dim, int)
    dim %= rank
    if dim == 0:
        edit.cannot(node, "stack values of an image along its channels or places")
        return []
    part = [size for axis, size in enumerate(shape) if axis != dim]
    cat = call(edit, node, torch.cat, (parts, 1), (part[0], len(parts) * part[1], *part[2:]))
    split = call(edit, node, torch.unflatten, (cat, 1, (len(parts), -1)), (part[0], len(parts), *part[1:]))
    moved = call(edit, node, torch.movedim, (split, 1, dim), shape)
    edit.put_for(node, moved)
    return [cat]


def _result(node: fx.Node) -> fx.Node | None:
    """Return the node of a reduction's values: for a maximum with its places that of its first part."""
    if node.meta.get("shape") is not None:
        return node
    users = list(node.users)
    first = [user for user in users if user.args[1:] in ((0,), ("values",))]
    return first[0] if len(first) == len(users) == 1 else None


def _is_part(edit: GraphEditor, node: fx.Node) -> bool:
    return kind_of(edit.graph, node) == "move" or named(edit.graph, node) in _REDUCTIONS


def _feeds_reductions(edit: GraphEditor, node: fx.Node) -> bool:
    """Return whether all that read a node are reductions, at most moved before: they are settled with it."""
    users = list(node.users)
    return bool(users) and all(
        named(edit.graph, user) in _REDUCTIONS
        or (kind_of(edit.graph, user) == "move" and _feeds_reductions(edit, user))
        for user in users
    )


def _reduce(edit: GraphEditor, node: fx.Node, source: fx.Node, reduced: Callable[[Tensor], Tensor]) -> fx.Node | None:
    """Replace a chain of nodes on a source by a mean or maximum of its places or tokens, times a number."""
    shape, after = shape_of(source), shape_of(node)
    x = torch.linspace(-1, 1.3, max(1, torch.Size(shape).numel())).sin().view(shape)
    x = x.flatten()[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(0))].view(shape)
    values, factor = reduced(x), reduced(torch.ones(shape)).flatten()[0].item()
    if len(shape) == 3 and after in ((shape[0], shape[2]), (shape[0], 1, shape[2])):
        ways: dict[Any, Callable[[Tensor], Tensor]] = {torch.mean: lambda x: x.mean(1)}
    elif len(shape) == 4 and after == (shape[0], shape[3]) and _is_mean(source, lambda x: reduced(x) / factor, (1, 2)):
        ways, shape = {torch.mean: lambda x: x.mean((1, 2))}, (shape[0], shape[1] * shape[2], shape[3])
        source = call(edit, node, torch.flatten, (source, 1, 2), shape)
    elif len(shape) == 4 and after in (shape[:2], (*shape[:2], 1), (*shape[:2], 1, 1)):
        ways = _PLACES
    elif len(shape) == 4 and not channels_last(edit, source):
        return _reduce_axis(edit, node, source, reduced)
    else:
        return None
    same = (torch.allclose(factor * of(x).view(values.shape), values, atol=1e-5) for of in ways.values())
    target = next((target for target, alike in zip(ways, same, strict=True) if alike), None)
    if target is None:
        return None
    if len(shape) == 3:
        reduction = last = call(edit, node, target, (source, 1, len(after) == 3), after)
    elif target is torch.mean:
        reduction = last = call(edit, node, target, (source, (2, 3), True), (*shape[:2], 1, 1))
    else:
        reduction = last = call(edit, node, target, (source, 1), (*shape[:2], 1, 1))
    if after != shape_of(last):
        last = call(edit, node, torch.flatten, (last, len(after) - 1), after)
    if factor != 1:
        last = edit.insert(last, edit.free(f"{node.name}_factor"), Affine(factor, 0.0), (last,))
    _put_for(edit, node, last)
    return reduction


def _reduce_axis(
    edit: GraphEditor, node: fx.Node, source: fx.Node, reduced: Callable[[Tensor], Tensor]
) -> fx.Node | None:
    """Replace a mean or a sum over the rows, or over the columns, of a map by an average or a sum over windows."""
    shape, after = shape_of(source), shape_of(node)
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0))
    for axis in (2, 3):
        window = (shape[2], 1) if axis == 2 else (1, shape[3])
        size = (*shape[:axis], 1, *shape[axis + 1 :])
        if after not in (size, (*size[:axis], *size[axis + 1 :])):
            continue
        for pool in (nn.AvgPool2d(window), nn.AvgPool2d(window, divisor_override=1)):
            if torch.allclose(pool(x).view(after), reduced(x), atol=1e-5):
                last = first = edit.insert(source, edit.free(node.name), pool, (source,))
                last.meta["shape"] = size
                if after != size:
                    last = call(edit, node, torch.squeeze, (last, axis), after)
                _put_for(edit, node, last)
                return first
    return None


def _is_mean(source: fx.Node, reduced: Callable[[Tensor], Tensor], axes: tuple[int, int]) -> bool:
    """Return whether a value is reduced to its means over two axes."""
    x = torch.rand(shape_of(source), generator=torch.Generator().manual_seed(0))
    computed, expected = reduced(x).flatten(), x.mean(axes).flatten()
    return computed.shape == expected.shape and torch.allclose(computed, expected, atol=1e-5)


def _add_stacked(edit: GraphEditor, node: fx.Node, source: fx.Node, reduced: Callable[[Tensor], Tensor]) -> bool:
    """Replace a chain of nodes on a stack by a sum of its parts times a number, if it is one."""
    parts, shape = source.args[0], shape_of(node)
    assert isinstance(parts, list | tuple)
    values = [torch.rand(shape) for _ in parts]
    if any(not isinstance(part, fx.Node) or shape_of(part) != shape for part in parts):
        return False
    stacked = torch.stack(values, *source.args[1:], **source.kwargs)  # type: ignore[arg-type]
    factor = reduced(torch.ones_like(stacked)).flatten()[0].item() / len(parts)
    if not torch.allclose(reduced(stacked), factor * sum(values, torch.zeros(())), atol=1e-5):
        return False
    first, *terms = [part for part in parts if isinstance(part, fx.Node)]
    last = first
    for term in terms:
        last = call(edit, node, operator.add, (last, term), shape)
    if factor != 1:
        last = edit.insert(last, edit.free(f"{node.name}_factor"), Affine(factor, 0.0), (last,))
    _put_for(edit, node, last)
    return True


def call(edit: GraphEditor, node: fx.Node, target: Callable[..., Any], args: tuple[Any, ...], shape: Any) -> fx.Node:
    """Return the node of a new call of a function before a node; ``shape``: shape of its value."""
    with edit.graph.graph.inserting_before(node):
        new_node = edit.graph.graph.call_function(target, args)
    new_node.meta["shape"] = shape
    sources = [edit.original.get(source.name, "") for source in new_node.all_input_nodes]
    for values in (edit.values, edit.noisy):  # what takes its place may differ from it
        if all(source in values for source in sources):
            values[new_node.name] = target(*map_arg(args, lambda source, of=values: of[edit.original[source.name]]))
    edit.original[new_node.name] = new_node.name
    return new_node


def _put_for(edit: GraphEditor, node: fx.Node, replacement: fx.Node) -> None:
    """Let all that read a node read another, and remove it with all that it alone has read."""
    pending = node.all_input_nodes
    edit.put_for(node, replacement)
    while pending:
        source = pending.pop()
        if not source.users and source.op != "placeholder":
            pending += source.all_input_nodes
            edit.graph.graph.erase_node(source)
