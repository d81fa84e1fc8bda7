"""Padding with a map's own values, reflected, repeated or wrapped: rows and columns are moved, which costs nothing.

The rows of a padded map are those of the map in another order. That order is cut into runs with one step each. A
:class:`Move` gives each run as channels, and a :class:`Concat` puts one after the other; then the columns likewise.
An image gets a layer that does nothing before, as it is not in shares.
"""

import copy
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from privcirnet.nn.concat import Concat
from privcirnet.nn.moves import Move
from privcirnet.passes.surgery.changes import Change
from privcirnet.passes.surgery.edit import Edit, path_of, shape_of
from privcirnet.passes.surgery.kinds import named

_REMEDY = "pad maps with reflected, repeated or wrapped values; let the convolution itself pad with zeros"


def pad(edit: Edit, node: fx.Node) -> None:
    """Replace padding with a map's own values."""
    padded = _padded(edit, node, lambda x: edit.compute(node, x))
    if padded is not None:
        edit.changes.append(Change(path_of(node), named(edit.graph, node), "Move and Concat"))
        edit.put_for(node, padded)


def pad_before(edit: Edit, node: fx.Node) -> None:
    """Put what a convolution pads with, other than zeros, around the map that it reads."""
    conv = edit.module(node)
    assert isinstance(conv, nn.Conv2d)
    if conv.padding_mode == "zeros":
        return
    around, mode = conv._reversed_padding_repeated_twice, conv.padding_mode
    if sum(each.target == node.target for each in edit.graph.graph.nodes) > 1:
        edit.cannot(node, "give each use of a convolution with such padding its own module")
        return
    padded = _padded(edit, node, lambda x: F.pad(x, around, mode))
    if padded is not None:
        made = copy.copy(conv)  # its parameters are those of the network's own
        made.padding, made.padding_mode = (0, 0), "zeros"
        edit.graph.set_submodule(path_of(node), made)
        node.replace_input_with(node.all_input_nodes[0], padded)
        edit.changes.append(Change(path_of(node), f"Conv2d with {mode} padding", "Move, Concat and Conv2d"))


def _padded(edit: Edit, node: fx.Node, function: Callable[[Tensor], Tensor]) -> fx.Node | None:
    """Return what a function that pads makes of the map that a node reads; note why not, if that cannot be said."""
    made, shape = node.all_input_nodes[0], shape_of(node.all_input_nodes[0])
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
    if made.op == "placeholder":
        made = edit.put_layer_before(node, made, named(edit.graph, node))
    for order in (rows, columns):
        made = _ordered(edit, node, made, order)
    return _insert(edit, node, Move.like(_rotated, shape_of(made)[1:], channels_last=False), made)


def _ordered(edit: Edit, node: fx.Node, source: fx.Node, order: Tensor) -> fx.Node:
    """Return (A, B, C) as (B, C, A), with the places of B in an order."""
    parts: list[fx.Node] = []
    for run in _runs(order.tolist()):
        taken = torch.tensor(run)
        move = Move.like(lambda x, taken=taken: _rotated(x[:, :, taken]), shape_of(source)[1:], channels_last=False)
        parts.append(_insert(edit, node, move, source))
    return parts[0] if len(parts) == 1 else _insert(edit, node, Concat(), *parts)


def _insert(edit: Edit, node: fx.Node, module: nn.Module, *inputs: fx.Node) -> fx.Node:
    made = edit.insert(inputs[0], edit.free(f"{node.name}_{type(module).__name__.lower()}"), module, inputs)
    first = [shape_of(each)[1] for each in inputs]
    after = module.after if isinstance(module, Move) else (sum(first), *shape_of(inputs[0])[2:])
    made.meta["shape"] = (shape_of(node)[0], *after)
    return made


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
