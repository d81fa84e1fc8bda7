"""Images on which a network explodes: unusual values grow from square to square until they are infinite."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from privcirnet.data.dataset import Examples
from privcirnet.nn.graph import evaluating

REMEDY = "train it longer, or with outlier_penalty=0.1"
_BATCH = 64


@dataclass(frozen=True)
class ExplosionCheck:
    """Predictions of a network in evaluation mode on training images.

    Attributes:
        exploding: number of images with logits that are not finite.
        layer: name of the first layer whose values are not; "" if all are.
    """

    images: int
    right: int
    exploding: int
    layer: str

    def __str__(self) -> str:
        """Return the number of exploding images and their layer in words."""
        place = f", from {self.layer} on" if self.layer else ""
        return f"NaN or infinity for {self.exploding} of {self.images} training images{place}"


@torch.no_grad()
def evaluated(model: nn.Module, data: Examples, count: int) -> ExplosionCheck:
    """Return a check of a network's predictions on training images.

    Args:
        model: network on any device; left in the mode it was in.
        count: largest number of images.
    """
    device, total, right, exploding, layer = next(model.parameters()).device, 0, 0, 0, ""
    with evaluating(model):
        for images, labels in data.sampled(count, _BATCH):
            logits, classes = model(images.to(device)), labels.argmax(1) if labels.ndim == 2 else labels
            finite = logits.isfinite().all(1)
            total += len(images)
            right += int((finite & (logits.argmax(1) == classes.to(device))).sum())
            exploding += int((~finite).sum())
            if exploding and not layer:
                layer = _first_exploding(model, images[~finite.to(images.device)][:1].to(device))
    return ExplosionCheck(total, right, exploding, layer)


def _first_exploding(model: nn.Module, images: Tensor) -> str:
    """Return the name of the first layer whose values on some images are not finite; "" if it is in none."""
    exploding: list[str] = []

    def see(name: str, values: object) -> None:
        if isinstance(values, Tensor) and not values.isfinite().all():
            exploding.append(name)

    layers = [(name, module) for name, module in model.named_modules() if not any(module.children())]
    handles = [m.register_forward_hook(lambda _, _i, values, name=name: see(name, values)) for name, m in layers]
    try:
        model(images)
    finally:
        for handle in handles:
            handle.remove()
    return next(iter(exploding), "")
