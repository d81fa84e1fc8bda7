"""Search for an image size that a network takes where the present one does not fit its forward or its pools."""

import copy
from collections.abc import Iterator

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.modules import kind_of
from privcirnet.passes.shape_tracing import trace_at
from privcirnet.passes.surgery.pools import side_of, window_of

_USUAL = (32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 299, 320, 384)
_NEAR = 16
"""Number of sides above the present one that are tried, too: pools that round up want odd ones."""


def other_size(model: nn.Module, images: Tensor) -> str:
    """Return, as a remedy, a size that would do, a larger one if there is one. Only shapes are computed.

    Sizes in proportion are tried first, then squares.

    Args:
        images: images of a size that does not, (N, C, H, W).

    Returns:
        "" if the network runs at no other size.
    """
    try:
        shapes = copy.deepcopy(model).to("meta")
    except RuntimeError:  # something that torch cannot copy
        return ""
    remedy = ""
    for size in _sizes(*images.shape[-2:]):
        fits = _fits(shapes, images.shape[1], size)
        if fits:
            return f"use images of {size[0]} x {size[1]}"
        remedy = remedy if fits is None else "no usual image size would do, use pools whose windows are all of one size"
    return remedy


def _sizes(height: int, width: int) -> Iterator[tuple[int, int]]:
    if height != width:
        yield from ((side, max(1, round(side * width / height))) for side in _sides(height))
    yield from ((side, side) for side in _sides(width))


def _sides(current: int) -> Iterator[int]:
    yield from (side for side in _USUAL if current < side <= 2 * current)
    yield from range(current + 1, current + 1 + _NEAR)
    yield from (side for side in _USUAL if side > 2 * current)
    yield from (side for side in reversed(_USUAL) if side < current)


def _fits(model: nn.Module, channels: int, size: tuple[int, int]) -> bool | None:
    """Return whether all pools have windows of one size; None if the forward fails."""
    try:
        graph = trace_at(model, torch.zeros(2, channels, *size, device="meta"))
    except RuleError:
        return None
    pools = (node for node in graph.graph.nodes if kind_of(graph, node) in ("average", "maximum"))
    return all(window_of(graph, node) or _divides(node) for node in pools)


def _divides(node: fx.Node) -> bool:
    before, after = (value.meta.get("shape") or () for value in (node.all_input_nodes[0], node))
    return len(before) != 4 or len(after) not in (2, 4) or side_of(before, after) is not None
