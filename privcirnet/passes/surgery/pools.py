"""Pools and means of a map become averages over windows side by side."""

from math import isqrt

import torch
from torch import fx, nn

from privcirnet.nn.moves import Move
from privcirnet.nn.pooling import divisor_of
from privcirnet.passes.surgery.changes import TRAIN
from privcirnet.passes.surgery.edit import Edit, path_of, shape_of
from privcirnet.passes.surgery.kinds import named

_OVERLAP = "use pools without overlap"
_OF_MAPS = "average over the two axes of a map"


def pool(edit: Edit, node: fx.Node, average: bool) -> None:
    """Replace a pool by an average over side x side values without overlap, so that its sums are sums of shares.

    Args:
        average: whether it averages; else it takes the largest.
    """
    before, after = shape_of(node.all_input_nodes[0]), shape_of(node)
    module = edit.module(node)
    if len(before) == 3 and after in ((before[0], before[2]), (before[0], 1, before[2])) and average:
        _mean_of_tokens(edit, node)
        return
    if isinstance(module, nn.AvgPool2d) and divisor_of(module):
        return
    if len(before) != 4 or len(after) not in (2, 4) or before[:2] != after[:2]:
        edit.cannot(node, _OF_MAPS)
        return
    side = side_of(before, after)
    if not side:
        edit.cannot(node, f"pools must divide their maps: {edit.other_size() or _OVERLAP}")
        return
    if side == 1 and len(after) == 4:
        edit.skip(node)
        return
    same = average and _averages(edit, node, side)
    if named(edit.graph, node) == "mean" and not same:
        edit.cannot(node, _OF_MAPS)
        return
    _averaged(edit, node, side, "" if same else TRAIN)


def side_of(before: tuple[int, ...], after: tuple[int, ...]) -> int:
    """Return the side of windows side by side that give a map of this size; 0 if there are none.

    Args:
        before: (N, C, H, W) of the map.
        after: of the result, (N, C, H, W), or (N, C) for a mean.
    """
    height, width = after[2:] if len(after) == 4 else (1, 1)
    side = before[2] // height
    return side if (side * height, side * width) == before[2:] else 0


def _averaged(edit: Edit, node: fx.Node, side: int, effect: str) -> None:
    """Let an average take a node's place, and flatten it if the node gave a vector."""
    after, made = shape_of(node), edit.replace(node, nn.AvgPool2d(side), effect)
    if len(after) == 2:
        edit.append(made, edit.free(f"{path_of(made)}_flatten"), nn.Flatten())
        made.meta["shape"] = (*after, 1, 1)


def _mean_of_tokens(edit: Edit, node: fx.Node) -> None:
    """A mean over T tokens is one over a square map of them."""
    source = node.all_input_nodes[0]
    _, tokens, channels = shape_of(source)
    x, side = torch.rand(2, tokens, channels), isqrt(tokens)
    if side**2 != tokens or not torch.allclose(edit.compute(node, x).flatten(1), x.mean(1), atol=1e-5):
        edit.cannot(node, "average over all tokens of a square map, without a class token")
        return
    first = edit.insert(source, edit.free(f"{path_of(node)}_map"), Move.to_map(channels, side, side), (source,))
    first.meta["shape"] = (2, channels, side, side)
    node.replace_input_with(source, first)
    node.meta["shape"] = (2, channels)
    _averaged(edit, node, side, "")


def _averages(edit: Edit, node: fx.Node, side: int) -> bool:
    """Return whether a node averages over windows side by side, tried on random values."""
    x = torch.rand(shape_of(node.all_input_nodes[0]))
    found = edit.compute(node, x)
    return torch.allclose(found, nn.functional.avg_pool2d(x, side).reshape(found.shape), atol=1e-5)
