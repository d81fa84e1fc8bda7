"""The ranges of values in a network's graph on images."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, fx

from privcirnet.errors import RuleError

EXPLODED = 8.0
"""An image is unusual if it gives a node more than this many times the median of its peaks."""
_BATCH = 32
"""Images that run together: few enough for their values to stay in the caches."""
_GROUP = 64
"""Images that run again together if one of them is unusual."""


class Range(NamedTuple):
    """The values that one node takes, each of the shape that the node has for one image."""

    low: Tensor
    high: Tensor
    size: Tensor
    """mean of the absolute values"""


class _Seen(NamedTuple):
    """What one node gave on some images: low, high and the sum of sizes, each of its shape, and peaks (N,)."""

    low: Tensor
    high: Tensor
    total: Tensor
    peaks: Tensor


def ranges(graph: fx.GraphModule, images: Tensor) -> dict[str, Range]:
    """Return the least and largest value that each node gave on images and its mean size, by node name.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.

    Returns:
        (least, largest, mean of the absolute values), each of the shape that the node has for one image.

    >>> from torch import nn
    >>> from privcirnet.nn.graph import trace
    >>> found = ranges(trace(nn.Sequential(nn.ReLU())), torch.tensor([[-1.0, 2.0], [3.0, 1.0]]))
    >>> [end.tolist() for end in found["_0"]]
    [[0.0, 1.0], [3.0, 2.0], [1.5, 1.5]]
    """
    return _ranges([_seen(graph, images)], len(images))


def usual_ranges(graph: fx.GraphModule, images: Tensor) -> dict[str, Range]:
    """Return :func:`ranges` on the images that are :func:`usual`.

    Every image runs once; only a group of them in which some are unusual runs again, without those.

    Args:
        graph: A traced network, run in the mode that it is in.
        images: (N, ...), in one tensor; run in parts.
    """
    groups = images.split(_GROUP)
    found = [_seen(graph, group) for group in groups]
    kept = typical_images({name: torch.cat([seen[name].peaks for seen in found]) for name in found[0]})
    if not kept.any():
        remedy = "train with outlier_penalty=0.1, or give more images"
        raise RuleError(
            "some images must have no value far above the usual", got=f"none of {len(images)}", remedy=remedy
        )
    of_group = zip(groups, kept.split(_GROUP), found, strict=True)
    again = [seen if which.all() else _seen(graph, group[which]) for group, which, seen in of_group if which.any()]
    return _ranges(again, int(kept.sum()))


def peaks(graph: fx.GraphModule, images: Tensor) -> dict[str, Tensor]:
    """Return the largest absolute value that each node gave on each image, (N,), by node name.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.
    """
    found: dict[str, list[Tensor]] = {}
    show_values(graph, images, lambda name, values: found.setdefault(name, []).append(_peaks(values.abs())))
    return {name: torch.cat(parts) for name, parts in found.items()}


def typical_images(found: Mapping[str, Tensor]) -> Tensor:
    """Return which images give every node less than :data:`EXPLODED` times its median peak, and no NaN.

    In a row of squares an image whose values are somewhat large in the first may reach any size in the last. It must
    not set the scale for all. Peaks of zero do not count: a node that is silent on most images may speak on others.

    Returns:
        Booleans, (N,).

    >>> usual({"x": torch.tensor([1.0, 2.0, 3.0, 1e9, torch.nan])}).tolist()
    [True, True, True, False, False]
    >>> usual({"silent": torch.tensor([0.0, 0.0, 0.0, 1.0]), "dead": torch.zeros(4)}).tolist()
    [True, True, True, True]
    """
    sizes = torch.stack(list(found.values())).nan_to_num(nan=torch.inf)
    median = torch.where(sizes > 0, sizes, torch.nan).nanmedian(1, keepdim=True).values
    return (sizes <= EXPLODED * median.nan_to_num(nan=0.0, posinf=torch.inf)).all(0)


def by_channel(values: Tensor) -> Tensor:
    """Return values with their channels second, as maps have them: (N, C, positions).

    Args:
        values: maps (N, C, H, W), tokens (N, T, C), or (N, C).
    """
    return (values if values.dim() == 4 else values.movedim(-1, 1)).unsqueeze(-1).flatten(2)


def _seen(graph: fx.GraphModule, images: Tensor) -> dict[str, _Seen]:
    found: dict[str, _Seen] = {}

    def look(name: str, values: Tensor) -> None:
        sizes = values.abs()
        seen = _Seen(values.amin(0), values.amax(0), sizes.sum(0), _peaks(sizes))
        found[name] = _joined(found[name], seen) if name in found else seen

    show_values(graph, images, look)
    return found


def _joined(seen: _Seen, more: _Seen) -> _Seen:
    ends = torch.minimum(seen.low, more.low), torch.maximum(seen.high, more.high)
    return _Seen(*ends, seen.total + more.total, torch.cat([seen.peaks, more.peaks]))


def _ranges(groups: Sequence[Mapping[str, _Seen]], count: int) -> dict[str, Range]:
    """What was seen on all groups together, ``count`` images."""
    joined = {name: reduce(_joined, (group[name] for group in groups)) for name in groups[0]}
    return {name: Range(seen.low, seen.high, seen.total / count) for name, seen in joined.items()}


def _peaks(sizes: Tensor) -> Tensor:
    """The largest of each image, (N,)."""
    return sizes.flatten(1).amax(1)


@torch.no_grad()
def show_values(graph: fx.GraphModule, images: Tensor, look: Callable[[str, Tensor], None]) -> None:
    """Show every node's name and values, part by part of the images, as soon as they are there.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.
        look: called with a node's name and its values on a part.
    """

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor) and n.op not in ("output", "get_attr"):
                look(n.name, result)
            return result

    recorder = Recorder(graph)
    for part in images.split(_BATCH):
        recorder.run(part)
