"""Networks that explode on some images: how many, and from which layer on."""

import pytest
import torch
from torch import nn

from privcirnet.data.dataset import OwnImages
from privcirnet.nn.activations import Square
from privcirnet.train.recalibration import evaluated
from tests.nn.networks import assert_unchanged, snapshot

LABELS = torch.arange(80) % 2
IMAGES = (2.0 * LABELS - 1).reshape(-1, 1, 1, 1) * torch.ones(80, 2, 1, 1)
IMAGES[[3, 70]] *= 1e10


def squares() -> nn.Module:
    """Of an image x: logits (x^4, (x + 1)^4), the first of which is larger where x is negative."""
    model = nn.Sequential(nn.Conv2d(2, 2, 1, groups=2), Square(), nn.Sequential(Square()), nn.Flatten())
    with torch.no_grad():
        model[0].weight.fill_(1)
        model[0].bias.copy_(torch.tensor([0.0, 1.0]))
    return model.train()


@pytest.mark.parametrize("soft", [False, True])
def test_images_that_explode_are_counted_and_are_not_right(soft):
    labels = nn.functional.one_hot(LABELS).float() if soft else LABELS
    model = squares()
    before = snapshot(model)
    found = evaluated(model, OwnImages((IMAGES, labels), None, lambda image: torch.zeros(1, 2)), 1000)
    assert (found.images, found.right, found.exploding, found.layer) == (80, 78, 2, "2.0")
    assert str(found) == "NaN or infinity for 2 of 80 training images, from 2.0 on"
    assert_unchanged(model, before)
    assert not any(module._forward_hooks for module in model.modules())


def test_only_as_many_are_looked_at():
    found = evaluated(squares(), OwnImages((IMAGES[:3], LABELS[:3]), None, lambda image: torch.zeros(1, 2)), 2)
    assert (found.images, found.right, found.exploding, found.layer) == (2, 2, 0, "")
