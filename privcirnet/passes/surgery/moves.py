"""Moves of values: chains of reshapes, permutations and slices become one module, or nothing."""

from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.modules import kind_of
from privcirnet.nn.moves import Rearrange
from privcirnet.passes.surgery.edit import GraphEditor, shape_of
from privcirnet.passes.surgery.layout import channels_last


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
