"""A teacher that is asked once: the same loss as one that is asked at every step, on images that are not augmented."""

import dataclasses

import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.train.accuracy import training_loss
from privcirnet.train.distillation import distill_labels, parts, teaching
from privcirnet.train.loop import fit
from tests.train.runs import DATA, RECIPE, small, without_times

TAUGHT = dataclasses.replace(RECIPE, distillation=0.7, label_smoothing=0.1, teach_once=True)


def test_mixed_labels_have_the_loss_of_label_and_teacher():
    teacher, calls = small(1).eval(), []
    data, recipe = distill_labels(DATA, TAUGHT, teacher, lambda: calls.append(0))
    assert len(calls) == parts(DATA) == 1
    assert torch.allclose(data.train_labels.sum(dim=1), torch.ones(DATA.count))
    logits = torch.randn(DATA.count, 2)
    with torch.no_grad():
        said = teacher(DATA.real(DATA.train_images))
    twice = training_loss(logits, DATA.train_labels, said, 0.1, 0.7)
    once = training_loss(logits, data.train_labels, None, recipe.label_smoothing, recipe.distillation)
    assert torch.allclose(once, twice)
    assert data.test_labels is DATA.test_labels


def test_an_image_that_explodes_in_the_teacher_keeps_its_label():
    teacher = small(1).eval()
    teacher.register_forward_hook(lambda _, inputs, logits: logits.index_fill(0, torch.tensor([1]), torch.nan))
    labels = distill_labels(DATA, TAUGHT, teacher)[0].train_labels
    expected = torch.full((2,), 0.05)
    expected[DATA.train_labels[1]] = 0.95
    torch.testing.assert_close(labels[1], expected)
    assert labels.isfinite().all()


def test_a_run_is_the_one_that_asks_at_every_step():
    teacher = small(1)
    fit(teacher, DATA, RECIPE, 0)
    asked, told = small(2), small(2)
    expected = fit(asked, DATA, TAUGHT, 3, teacher)
    data, recipe = distill_labels(DATA, TAUGHT, teacher)
    found = fit(told, data, recipe, 3)
    assert found[-1]["top1"] == pytest.approx(expected[-1]["top1"], abs=8)  # sums are rounded in another order
    assert without_times(found)[0]["loss"] == pytest.approx(without_times(expected)[0]["loss"], rel=1e-4)


def test_a_teacher_says_the_same_without_batch_norms():
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
    network(torch.rand(9, 1, 8, 8))
    lighter, images = teaching(network.eval()), torch.rand(4, 1, 8, 8)
    assert not any(isinstance(module, nn.BatchNorm2d) for module in lighter.modules())
    torch.testing.assert_close(lighter(images), network(images))
    assert isinstance(network[1], nn.BatchNorm2d)


def test_a_teacher_whose_batch_norms_cannot_be_folded_teaches_as_it_is():
    network = nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, 2)).eval()
    assert teaching(network) is network


@pytest.mark.parametrize("mixed", ["mixup", "cutmix"])
def test_images_mixed_in_either_way_are_refused(mixed):
    with pytest.raises(RuleError, match=f"mixed images .*: got teach_once=true .*{mixed}=0.2"):
        dataclasses.replace(TAUGHT, **{mixed: 0.2})
