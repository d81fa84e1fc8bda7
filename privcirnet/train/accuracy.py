"""Predictions of a network on images, their accuracy, and the loss that training lowers."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from privcirnet import distributed
from privcirnet.data.dataset import TEST_BATCH, Examples, ImageData
from privcirnet.nn.example import layout_of
from privcirnet.nn.graph import evaluating


@torch.no_grad()
def predict(model: nn.Module, data: ImageData, images: Tensor) -> Tensor:
    """Return logits in evaluation mode, on the CPU: (N, classes).

    Args:
        model: network on any device; left in the mode it was in.
        images: uint8 (N, C, H, W).
    """
    device = next(model.parameters()).device
    with evaluating(model):
        parts = (data.real(part).to(device, memory_format=layout_of(part)) for part in images.split(TEST_BATCH))
        return torch.cat([model(part).cpu() for part in parts])


@torch.no_grad()
def accuracy(model: nn.Module, data: Examples) -> float:
    """Return top-1 accuracy on the held-out images, percent.

    Under torchrun each process predicts its share of each batch, and all must call it.

    Args:
        model: network on any device; left in the mode it was in.
    """
    device = next(model.parameters()).device
    hits, count = torch.zeros((), dtype=torch.int64, device=device), 0
    with evaluating(model):
        for images, labels in data.tests():
            local = distributed.share(images).to(device, memory_format=layout_of(images))
            if len(local):
                hits += (model(local).argmax(dim=1) == distributed.share(labels).to(device)).sum()
            count += len(labels)
    return 100.0 * distributed.total(hits).item() / count


def training_loss(
    logits: Tensor, labels: Tensor, teacher_logits: Tensor | None, smoothing: float, distillation: float
) -> Tensor:
    """Return (1 - distillation) x cross-entropy + distillation x soft-label cross-entropy: Scalar, nats.

    Args:
        logits: (N, classes).
        labels: class indices (N,), or probabilities (N, classes).
        teacher_logits: (N, classes), or None for no teacher. A row that is not finite, as of a teacher with squares in
            which an image explodes, teaches nothing.
        smoothing: smoothing of the labels, in [0, 1).
        distillation: weight of the teacher's part, in [0, 1].
    """
    hard = functional.cross_entropy(logits, labels, label_smoothing=smoothing)
    if teacher_logits is None or distillation == 0:
        return hard
    finite = teacher_logits.isfinite().all(dim=-1, keepdim=True)
    targets = torch.where(finite, teacher_logits, logits.detach().to(teacher_logits))  # no gradient without a teacher
    soft = functional.cross_entropy(logits, targets.softmax(dim=-1))
    return (1 - distillation) * hard + distillation * soft
