"""Reductions: sums, means and maxima over the places of a map, over tokens or over a stack, in one or several steps."""

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx
from torch.fx.node import map_arg

from privcirnet.nn.modules import kind_of, named
from privcirnet.nn.norm import Affine
from privcirnet.passes.surgery.edit import GraphEditor, shape_of, values_of

_REDUCTIONS = frozenset({"mean", "sum", "amax", "max"})
_PLACES: dict[Callable[..., object], Callable[[Tensor], Tensor]] = {
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
    if steps == [node] and named(edit.graph, node) == "mean" and kind_of(edit.graph, source) != "stack":
        return node

    def reduced(x: object) -> Tensor:
        for step in steps:  # a copy (`contiguous`) between two moves is gone, and a view needs it
            x = edit.compute(step, x.contiguous() if isinstance(x, Tensor) else x)
        assert isinstance(x, Tensor)
        return x

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
        ways: dict[Callable[..., object], Callable[[Tensor], Tensor]] = {torch.mean: lambda x: x.mean(1)}
    elif len(shape) == 4 and after in (shape[:2], (*shape[:2], 1), (*shape[:2], 1, 1)):
        ways = _PLACES
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


def _add_stacked(edit: GraphEditor, node: fx.Node, source: fx.Node, reduced: Callable[[Tensor], Tensor]) -> bool:
    """Replace a chain of nodes on a stack by a sum of its parts times a number, if it is one."""
    parts, shape = source.args[0], shape_of(node)
    assert isinstance(parts, list | tuple)
    values = [torch.rand(shape) for _ in parts]
    if any(not isinstance(part, fx.Node) or shape_of(part) != shape for part in parts):
        return False
    stacked = torch.stack(values, *source.args[1:], **source.kwargs)  # type: ignore[arg-type]
    factor = reduced(torch.ones_like(stacked)).flatten()[0].item() / len(parts)
    if not torch.allclose(reduced(stacked), factor * sum(values), atol=1e-5):
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
