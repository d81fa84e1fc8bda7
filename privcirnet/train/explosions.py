"""Images on which a network explodes: what is far from the usual grows from square to square until it is infinite."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privcirnet.data.dataset import Examples
from privcirnet.nn.graph import evaluating

REMEDY = "train it longer, or with outlier_penalty=0.1"
_BATCH = 64


@dataclass(frozen=True)
class ExplosionCheck:
    """What a network in evaluation mode makes of training images.

    Attributes:
        exploding: of how many the logits are not finite.
        layer: the first one whose values are not; "" if all are.
    """

    images: int
    right: int
    exploding: int
    layer: str

    def __str__(self) -> str:
        """Return in words how many explode, and where."""
        place = f", from {self.layer} on" if self.layer else ""
        return f"NaN or infinity for {self.exploding} of {self.images} training images{place}"


@torch.no_grad()
def evaluated(model: nn.Module, data: Examples, count: int) -> ExplosionCheck:
    """Return what a network makes of training images.

    Args:
        model: on any device; left in the mode it was in.
        count: of images at most.
    """
    device, seen, right, exploding, layer = next(model.parameters()).device, 0, 0, 0, ""
    with evaluating(model):
        for images, labels in data.sampled(count, _BATCH):
            logits, classes = model(images.to(device)), labels.argmax(1) if labels.ndim == 2 else labels
            finite = logits.isfinite().all(1)
            seen += len(images)
            right += int((finite & (logits.argmax(1) == classes.to(device))).sum())
            exploding += int((~finite).sum())
            if exploding and not layer:
                layer = _first_exploding(model, images[~finite.to(images.device)][:1].to(device))
    return ExplosionCheck(seen, right, exploding, layer)


def _first_exploding(model: nn.Module, images: Tensor) -> str:
    """Return the name of the first layer whose values on some images are not finite; "" if it is in none."""
    found: list[str] = []

    def see(name: str, values: object) -> None:
        if isinstance(values, Tensor) and not values.isfinite().all():
            found.append(name)

    layers = [(name, module) for name, module in model.named_modules() if not any(module.children())]
    handles = [m.register_forward_hook(lambda _, _i, values, name=name: see(name, values)) for name, m in layers]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return next(iter(found), "")
