"""Comparison of a quantized network with the network that it was made of."""

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import node_values, returned
from privcirnet.nn.graph import evaluating, several_outputs
from privcirnet.passes.fuse import fuse_at

_COMPARED = 8
"""Number of images."""


@torch.no_grad()
def check_reference(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> None:
    """Raise unless the logits of a quantized network are near those of the network that it was made of.

    Args:
        reference: network that is not quantized; left as it was.
        images: real, (N, C, H, W); the first few are compared.
        tolerance: largest difference (root mean square), as a share of the distance of the reference's logits from the
            mean of their image: a bias that all classes have hides nothing.

    Raises:
        RuleError: the logits differ; names the first layer whose values differ as much.
    """
    sample = images[:_COMPARED]
    with evaluating(reference), evaluating(network):
        expected, computed = reference(_of_type(reference, sample).clone()), network(sample.clone())
        if not isinstance(expected, Tensor):
            raise several_outputs(reference, type(expected).__name__)
        share = _distance(_between_classes(computed), _between_classes(expected))
        if share <= tolerance:
            return
        try:
            detail = f", from {_first(network, reference, sample, tolerance)!r} on"
        except RuleError as error:
            detail = f"; of the reference, {error.rule}: got {error.got}"
    rule = f"a program's logits must be within {tolerance:g} of those of the reference"
    remedy = "give the network that was fused; train it quantized, with more bits, or give a larger tolerance"
    raise RuleError(rule, got=f"{share:.2g} of their size{detail}", remedy=remedy)


def _of_type(model: nn.Module, images: Tensor) -> Tensor:
    """Return images in the type of a network's weights."""
    return images.to(next(model.parameters(), images).dtype)


def _first(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> str:
    """Return the first node of both graphs whose values differ by more than the tolerance, else the output."""
    ours, inputs = node_values(network, images), _of_type(reference, images)
    theirs = node_values(fuse_at(reference, inputs), inputs)
    common = (name for name in theirs if name in ours and ours[name].shape == theirs[name].shape)
    return next((name for name in common if _distance(ours[name], theirs[name]) > tolerance), returned(network).name)


def _between_classes(logits: Tensor) -> Tensor:
    """Return logits without their mean over the classes of an image; a single output as it is."""
    return logits - logits.mean(-1, keepdim=True) if logits.shape[-1:].numel() > 1 else logits


def _distance(computed: Tensor, expected: Tensor) -> float:
    """Return the difference as a share of the expected size; infinite where shapes differ or values are no numbers."""
    if computed.shape != expected.shape:
        return float("inf")
    share = ((computed - expected).double().square().mean() / expected.double().square().mean()).sqrt().item()
    return share if share == share else float("inf")  # noqa: PLR0124
