"""Whether a quantized network is near the network that it was made of."""

import torch
from torch import Tensor, fx, nn

from privcirnet.errors import RuleError
from privcirnet.nn.agreement import node_values, returned
from privcirnet.nn.graph import evaluating, several_outputs
from privcirnet.passes.fuse import fuse_at

_COMPARED = 8
"""Images."""


@torch.no_grad()
def check_reference(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> None:
    """Raise unless the logits of a quantized network are near those of the network that it was made of.

    Args:
        reference: the other, not quantized; left as it was.
        images: real, (N, C, H, W); the first few are compared.
        tolerance: largest difference (root mean square), as a share of the distance of the reference's logits from the
            mean of their image: a bias that all classes have hides nothing.

    Raises:
        RuleError: they are not; names the first layer whose values differ as much.
    """
    shown = images[:_COMPARED]
    with evaluating(reference), evaluating(network):
        wanted, found = reference(_of_type(reference, shown).clone()), network(shown.clone())
        if not isinstance(wanted, Tensor):
            raise several_outputs(reference, type(wanted).__name__)
        share = _distance(_between_classes(found), _between_classes(wanted))
        if share <= tolerance:
            return
        try:
            said = f", from {_first(network, reference, shown, tolerance)!r} on"
        except RuleError as error:
            said = f"; of the reference, {error.rule}: got {error.got}"
    rule = f"a program's logits must be within {tolerance:g} of those of the reference"
    remedy = "give the network that was fused; train it quantized, with more bits, or give a larger tolerance"
    raise RuleError(rule, got=f"{share:.2g} of their size{said}", remedy=remedy)


def _of_type(model: nn.Module, images: Tensor) -> Tensor:
    """Images in the type of a network's weights."""
    return images.to(next(model.parameters(), images).dtype)


def _first(network: fx.GraphModule, reference: nn.Module, images: Tensor, tolerance: float) -> str:
    """The first node of both graphs whose values differ by more than the tolerance, else the output."""
    ours, given = node_values(network, images), _of_type(reference, images)
    theirs = node_values(fuse_at(reference, given), given)
    common = (name for name in theirs if name in ours and ours[name].shape == theirs[name].shape)
    return next((name for name in common if _distance(ours[name], theirs[name]) > tolerance), returned(network).name)


def _between_classes(logits: Tensor) -> Tensor:
    """What tells the classes of an image apart; a single output as it is."""
    return logits - logits.mean(-1, keepdim=True) if logits.shape[-1:].numel() > 1 else logits


def _distance(found: Tensor, wanted: Tensor) -> float:
    """Difference as a share of the size of what is wanted; infinite where shapes differ or values are no numbers."""
    if found.shape != wanted.shape:
        return float("inf")
    share = ((found - wanted).double().square().mean() / wanted.double().square().mean()).sqrt().item()
    return share if share == share else float("inf")  # noqa: PLR0124
