"""The ranges of values in a network's graph on images."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor, fx

EXPLODED = 8.0
_BATCH = 64


class Range(NamedTuple):
    """The values that one node takes, each of the shape that the node has for one image."""

    low: Tensor
    high: Tensor
    size: Tensor
    """mean of the absolute values"""


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
    found: dict[str, Range] = {}
    for name, values in _values(graph, images):
        low, high, size = values.amin(0), values.amax(0), values.abs().sum(0) / len(images)
        before = found.get(name, Range(low, high, torch.zeros_like(size)))
        found[name] = Range(torch.minimum(low, before.low), torch.maximum(high, before.high), size + before.size)
    return found


def peaks(graph: fx.GraphModule, images: Tensor) -> dict[str, Tensor]:
    """Return the largest absolute value that each node gave on each image, (N,), by node name.

    Args:
        graph: A traced network, run in its present mode.
        images: (N, ...), in one tensor; run in parts.
    """
    found: dict[str, list[Tensor]] = {}
    for name, values in _values(graph, images):
        found.setdefault(name, []).append(values.flatten(1).abs().amax(1))
    return {name: torch.cat(parts) for name, parts in found.items()}


def usual(found: Mapping[str, Tensor]) -> Tensor:
    """Return which images give every node less than :data:`EXPLODED` times its median peak, and no NaN.

    In a row of squares an image whose values are somewhat large in the first may reach any size in the last. It must
    not set the scale for all.

    Args:
        found: :func:`peaks` of the images.

    Returns:
        Booleans, (N,).

    >>> usual({"x": torch.tensor([1.0, 2.0, 3.0, 1e9, torch.nan])}).tolist()
    [True, True, True, False, False]
    """
    sizes = torch.stack(list(found.values())).nan_to_num(nan=torch.inf)
    return (sizes <= EXPLODED * sizes.median(1, keepdim=True).values).all(0)


@torch.no_grad()
def _values(graph: fx.GraphModule, images: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yield every node's name and values, part by part of the images."""
    seen: list[tuple[str, Tensor]] = []

    class Recorder(fx.Interpreter):
        def run_node(self, n: fx.Node) -> object:
            result = super().run_node(n)
            if isinstance(result, Tensor) and n.op not in ("output", "get_attr"):
                seen.append((n.name, result))
            return result

    recorder = Recorder(graph)
    for part in images.split(_BATCH):
        recorder.run(part)
        yield from seen
        seen.clear()
