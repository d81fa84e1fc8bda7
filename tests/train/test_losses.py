import pytest
import torch
from torch.testing import assert_close

from privcirnet.train.accuracy import training_loss
from tests import tolerances

GENERATOR = torch.Generator().manual_seed(0)
LOGITS = torch.randn(5, 4, generator=GENERATOR, dtype=torch.float64)
TEACHER = torch.randn(5, 4, generator=GENERATOR, dtype=torch.float64)
LABELS = torch.tensor([0, 3, 1, 1, 2])


def by_hand(smoothing: float, distillation: float) -> torch.Tensor:
    """Mean over samples of -sum over classes of target x log probability."""
    total = torch.zeros((), dtype=torch.float64)
    for logits, teacher, label in zip(LOGITS, TEACHER, LABELS, strict=True):
        log_probability = logits - logits.exp().sum().log()
        smooth = torch.full((4,), smoothing / 4, dtype=torch.float64)
        smooth[label] += 1 - smoothing
        soft = teacher.exp() / teacher.exp().sum()
        target = (1 - distillation) * smooth + distillation * soft
        total -= (target * log_probability).sum()
    return total / 5


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("distillation", [0.0, 0.3, 1.0])
def test_is_the_mixture_of_both_cross_entropies(smoothing, distillation):
    expected = by_hand(smoothing, distillation)
    loss = training_loss(LOGITS, LABELS, TEACHER, smoothing, distillation)
    bound = tolerances.network(torch.float64, 2, 20, 10 * expected.item())
    assert_close(loss, expected, rtol=0, atol=bound)


def test_without_a_teacher_only_labels_count():
    assert training_loss(LOGITS, LABELS, None, 0.1, 0.7) == training_loss(LOGITS, LABELS, TEACHER, 0.1, 0.0)


def test_the_teacher_alone_pulls_towards_its_own_logits():
    student = TEACHER.clone().requires_grad_()
    training_loss(student, LABELS, TEACHER, 0.0, 1.0).backward()
    assert student.grad.abs().max() < 1e-15


def test_an_image_that_explodes_in_the_teacher_is_taught_by_its_label_alone():
    teacher, student = TEACHER.clone(), LOGITS.clone().requires_grad_()
    teacher[2, 1], teacher[4] = float("nan"), float("inf")
    training_loss(student, LABELS, teacher, 0.0, 0.4).backward()
    alone = LOGITS.clone().requires_grad_()
    (0.6 * training_loss(alone, LABELS, None, 0.0, 0.0)).backward()
    both = LOGITS.clone().requires_grad_()
    training_loss(both, LABELS, TEACHER, 0.0, 0.4).backward()
    assert_close(student.grad[[2, 4]], alone.grad[[2, 4]])
    assert_close(student.grad[[0, 1, 3]], both.grad[[0, 1, 3]])
