"""Difference of a network from the network that it was made of, and numbers of a quantized one that round to nothing.

The quantized network carries some images and the logits that it had for them before, so that whoever trains, refines
or compiles it can compare. Changes of other verbs are compared at once, on the given images.
"""

import warnings
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import listed
from privcirnet.nn.graph import evaluating
from privcirnet.nn.quantization_steps import called_modules
from privcirnet.nn.quantizers import ActivationQuantizer

IMAGES = 64
"""Largest number of images that are compared."""
FEWEST = 16
"""Smallest number of images for which a share is meaningful."""
MOST_DIFFERENT = 0.1
"""Share of the images that may have another class without a warning."""
_ORIGIN = "origin"
"""Key of a graph's ``meta``: images and their logits before quantization."""


@dataclass(frozen=True)
class Difference:
    """Difference of a network's logits from those of the network that it was made of.

    Attributes:
        differ: number of images with another class.
        share: difference of the logits, root mean square, as a share of their distance from their mean over the images.
    """

    images: int
    differ: int
    share: float

    @property
    def large(self) -> bool:
        """Return whether more than a tenth of the images have another class."""
        return self.images >= FEWEST and self.differ > MOST_DIFFERENT * self.images

    def __str__(self) -> str:
        """Return it as a clause."""
        of = f"{'the first ' if self.images == IMAGES else ''}{self.images}"
        return f"{self.images - self.differ} of {of} images keep their class, logits {self.share:.1%} off"


@torch.no_grad()
def logits_of_some(model: nn.Module, images: Tensor) -> Tensor:
    """Return the logits, in evaluation mode, of the images that are compared: the first :data:`IMAGES`."""
    like = next(model.parameters(), images)
    with evaluating(model):
        return model(images[:IMAGES].to(like.device).clone())


@torch.no_grad()
def remember_(graph: fx.GraphModule, fused: fx.GraphModule, images: Tensor) -> None:
    """Let a quantized network carry some images and the logits that the fused one gives them."""
    graph.meta[_ORIGIN] = images[:IMAGES].clone(), logits_of_some(fused, images)


@torch.no_grad()
def difference(graph: fx.GraphModule) -> Difference | None:
    """Return how far a quantized network is from where it came from.

    None if it was quantized without images, or does not give a row of logits for each.
    """
    if _ORIGIN not in graph.meta:
        return None
    images, expected = graph.meta[_ORIGIN]
    return compared(logits_of_some(graph, images.to(next(graph.parameters(), images))), expected)


def compared(computed: Tensor, expected: Tensor) -> Difference | None:
    """Return how far logits are from those that a network gave before, both (N, classes); None of other values."""
    if expected.dim() != 2 or computed.shape != expected.shape:
        return None
    computed, expected = computed.double(), expected.to(computed.device).double()
    size = (
        (expected - expected.mean(0)).square().mean().sqrt() if len(expected) > 1 else expected.square().mean().sqrt()
    )
    share = (computed - expected).square().mean().sqrt() / size.clamp(min=1e-30)
    classes = (logits.argmax(1) if logits.shape[1] > 1 else logits > 0 for logits in (computed, expected))
    differ = int(torch.ne(*classes).sum())
    return Difference(len(expected), differ, share.item())


def warn_of_losses(graph: fx.GraphModule, remedy: str, stacklevel: int) -> Difference | None:
    """Warn if quantization changes the class of more than a tenth of the images, and name all that rounds to nothing.

    Returns:
        :func:`difference`.
    """
    change = difference(graph)
    if change and change.large:
        lost = rounded_away(graph)
        also = f"; {listed(lost)} round to nothing" if lost else ""
        warnings.warn(f"{change}{also}; {remedy}", stacklevel=stacklevel)
    return change


@torch.no_grad()
def rounded_away(graph: fx.GraphModule) -> list[str]:
    """Return the input channels and the rows of weights that are zero once they are rounded, but were not, in words."""
    lost: list[str] = []
    images, _ = graph.meta[_ORIGIN]
    for node, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer) and node.all_input_nodes[0].op == "placeholder":
            with evaluating(module):
                lost += _named("input channel", module(images).transpose(0, 1), images.transpose(0, 1))
    for node, layer in called_modules(graph):
        if isinstance(layer, nn.Linear | nn.Conv2d):
            weight = cast(Tensor, layer.parametrizations["weight"].original)  # type: ignore[index, union-attr]
            if len(weight) == len(layer.weight):  # else it is circulant
                lost += _named(f"row of {str(node.target)!r}", layer.weight, weight)
    return lost


def _named(kind: str, rounded: Tensor, values: Tensor) -> list[str]:
    """Return the rows whose values are all rounded to zero, in one entry."""
    lost = (values.flatten(1).abs().amax(1) > 0) & (rounded.flatten(1).abs().amax(1) == 0)
    numbers = lost.nonzero().flatten().tolist()
    return [f"{kind} {', '.join(map(str, numbers[:8]))}{', ...' if len(numbers) > 8 else ''}"] if numbers else []
