"""The loss: label-smoothed cross-entropy, and optionally a dense teacher's soft labels."""

import torch
from torch import Tensor
from torch.nn import functional


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
