"""The ranges of values in a network's graph on images."""

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor, fx

from privcirnet.errors import RuleError

EXPLODED = 8.0
"""Multiple of a node's median peak above which an image is unusual."""
_BATCH = 32
"""Number of images that run together: few enough for their values to stay in the caches."""
_GROUP = 64
"""Number of images that run again together if one of them is unusual."""


class Range(NamedTuple):
    """The values that one node takes, each of the shape that the node has for one image."""

    low: Tensor
    high: Tensor
    size: Tensor
    """mean of the absolute values"""


class _Seen(NamedTuple):
    """Statistics of one node on some images: low, high and the sum of sizes, each of its shape, and peaks (N,)."""

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
    >>> extremes = ranges(trace(nn.Sequential(nn.ReLU())), torch.tensor([[-1.0, 2.0], [3.0, 1.0]]))
    >>> [end.tolist() for end in extremes["_0"]]
    [[0.0, 1.0], [3.0, 2.0], [1.5, 1.5]]
    """
    return _ranges([_seen(graph, images)], len(images))


def usual_ranges(graph: fx.GraphModule, images: Tensor) -> dict[str, Range]:
    """Return :func:`ranges` on the images that are :func:`typical_images`.

    Every image runs once; only a group of them in which some are unusual runs again, without those.

    Args:
        graph: A traced network, run in the mode that it is in.
        images: (N, ...), in one tensor; run in parts.
    """
    groups = images.split(_GROUP)
    observed = [_seen(graph, group) for group in groups]
    typical = typical_images({name: torch.cat([part[name].peaks for part in observed]) for name in observed[0]})
    if not typical.any():
        remedy = "train with outlier_penalty=0.1, or give more images"
        raise RuleError(
            "some images must have no value far above the usual", got=f"none of {len(images)}", remedy=remedy
        )
    of_group = zip(groups, typical.split(_GROUP), observed, strict=True)
    again = [part if which.all() else _seen(graph, group[which]) for group, which, part in of_group if which.any()]
    return _ranges(again, int(typical.sum()))


def peaks(graph: fx.GraphModule, images: Tensor) -> dict[str, Tensor]:
    """Return the largest absolute value that each node gave on each image, (N,), by node name.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.
    """
    peaks_by_name: dict[str, list[Tensor]] = {}
    show_values(graph, images, lambda name, values: peaks_by_name.setdefault(name, []).append(_peaks(values.abs())))
    return {name: torch.cat(parts) for name, parts in peaks_by_name.items()}


def typical_images(peaks: Mapping[str, Tensor]) -> Tensor:
    """Return which images give every node less than :data:`EXPLODED` times its median peak, and no NaN.

    In a row of squares an image whose values are somewhat large in the first may reach any size in the last. It must
    not set the scale for all. Peaks of zero do not count: a node that is silent on most images may speak on others.

    Returns:
        Booleans, (N,).

    >>> typical_images({"x": torch.tensor([1.0, 2.0, 3.0, 1e9, torch.nan])}).tolist()
    [True, True, True, False, False]
    >>> typical_images({"silent": torch.tensor([0.0, 0.0, 0.0, 1.0]), "dead": torch.zeros(4)}).tolist()
    [True, True, True, True]
    """
    sizes = torch.stack(list(peaks.values())).nan_to_num(nan=torch.inf)
    median = torch.where(sizes > 0, sizes, torch.nan).nanmedian(1, keepdim=True).values
    return (sizes <= EXPLODED * median.nan_to_num(nan=0.0, posinf=torch.inf)).all(0)


def by_channel(values: Tensor) -> Tensor:
    """Return values with their channels second, as maps have them: (N, C, positions).

    Args:
        values: maps (N, C, H, W), tokens (N, T, C), or (N, C).
    """
    return (values if values.dim() == 4 else values.movedim(-1, 1)).unsqueeze(-1).flatten(2)


def _seen(graph: fx.GraphModule, images: Tensor) -> dict[str, _Seen]:
    statistics: dict[str, _Seen] = {}

    def look(name: str, values: Tensor) -> None:
        sizes = values.abs()
        part = _Seen(values.amin(0), values.amax(0), sizes.sum(0), _peaks(sizes))
        statistics[name] = _joined(statistics[name], part) if name in statistics else part

    show_values(graph, images, look)
    return statistics


def _joined(first: _Seen, second: _Seen) -> _Seen:
    ends = torch.minimum(first.low, second.low), torch.maximum(first.high, second.high)
    return _Seen(*ends, first.total + second.total, torch.cat([first.peaks, second.peaks]))


def _ranges(groups: Sequence[Mapping[str, _Seen]], count: int) -> dict[str, Range]:
    """Return the ranges over all groups together, of ``count`` images."""
    joined = {name: reduce(_joined, (group[name] for group in groups)) for name in groups[0]}
    return {name: Range(part.low, part.high, part.total / count) for name, part in joined.items()}


def _peaks(sizes: Tensor) -> Tensor:
    """Return the largest value of each image, (N,)."""
    return sizes.flatten(1).amax(1)


@torch.no_grad()
def show_values(graph: fx.GraphModule, images: Tensor, look: Callable[[str, Tensor], None]) -> None:
    """Show every node's name and values, part by part of the images, as soon as they are there.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.
        look: callback with a node's name and its values on a part.
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
