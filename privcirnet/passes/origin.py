"""How far a network is from the network that it was made of, and which numbers of a quantized one round to nothing.

The quantized network carries some images and the logits that it had for them before, so that whoever trains, refines
or compiles it can compare. What other verbs change is compared at once, on the images that they are given.
"""

import warnings
from dataclasses import dataclass

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import listed
from privcirnet.nn.graph import evaluating
from privcirnet.nn.quantizers import ActivationQuantizer
from privcirnet.nn.steps import called_modules, weighted_modules

IMAGES = 64
"""Most that are compared."""
FEWEST = 16
"""Images that a share says something of."""
MOST_DIFFERENT = 0.1
"""Share of the images that may have another class without a warning."""
_ORIGIN = "origin"
"""Key of a graph's ``meta``: images and their logits before quantization."""


@dataclass(frozen=True)
class Difference:
    """Difference of a network's logits from those of the network that it was made of.

    Attributes:
        differ: images with another class.
        share: of the logits, root mean square, as a share of their distance from their mean over the images.
    """

    images: int
    differ: int
    share: float

    @property
    def large(self) -> bool:
        """Whether more than a tenth of the images have another class."""
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
    images, wanted = graph.meta[_ORIGIN]
    return compared(logits_of_some(graph, images.to(next(graph.parameters(), images))), wanted)


def compared(found: Tensor, wanted: Tensor) -> Difference | None:
    """Return how far logits are from those that a network gave before, both (N, classes); None of other values."""
    if wanted.dim() != 2 or found.shape != wanted.shape:
        return None
    found, wanted = found.double(), wanted.to(found.device).double()
    size = (wanted - wanted.mean(0)).square().mean().sqrt() if len(wanted) > 1 else wanted.square().mean().sqrt()
    share = (found - wanted).square().mean().sqrt() / size.clamp(min=1e-30)
    classes = (logits.argmax(1) if logits.shape[1] > 1 else logits > 0 for logits in (found, wanted))
    differ = int(torch.ne(*classes).sum())
    return Difference(len(wanted), differ, share.item())


def warn_of_losses(graph: fx.GraphModule, remedy: str, stacklevel: int) -> Difference | None:
    """Warn if quantization changes the class of more than a tenth of the images, and say what rounds to nothing.

    Returns:
        :func:`difference`.
    """
    found = difference(graph)
    if found and found.large:
        lost = rounded_away(graph)
        also = f"; {listed(lost)} round to nothing" if lost else ""
        warnings.warn(f"{found}{also}; {remedy}", stacklevel=stacklevel)
    return found


@torch.no_grad()
def rounded_away(graph: fx.GraphModule) -> list[str]:
    """Return the input channels and the rows of weights that are zero once they are rounded, but were not, in words."""
    found: list[str] = []
    images, _ = graph.meta[_ORIGIN]
    for node, module in called_modules(graph):
        if isinstance(module, ActivationQuantizer) and node.all_input_nodes[0].op == "placeholder":
            with evaluating(module):
                found += _named("input channel", module(images).transpose(0, 1), images.transpose(0, 1))
    for node, layer in called_modules(graph):
        if layer in weighted_modules(graph):
            weight = layer.parametrizations["weight"].original  # type: ignore[index, union-attr]
            if len(weight) == len(layer.weight):  # else it is circulant
                found += _named(f"row of {str(node.target)!r}", layer.weight, weight)
    return found


def _named(kind: str, rounded: Tensor, values: Tensor) -> list[str]:
    """Rows whose values are rounded to zero all, in one entry."""
    lost = (values.flatten(1).abs().amax(1) > 0) & (rounded.flatten(1).abs().amax(1) == 0)
    numbers = lost.nonzero().flatten().tolist()
    return [f"{kind} {', '.join(map(str, numbers[:8]))}{', ...' if len(numbers) > 8 else ''}"] if numbers else []
