"""Where the image size is what does not fit, the message names one that does."""

import re

import pytest
import torch
from torch import nn
from torchvision import models

from privcirnet.errors import RuleError
from privcirnet.passes.surgery import polynomial_


def refused(model: nn.Module, side: int) -> str:
    with pytest.raises(RuleError) as error:
        polynomial_(model, torch.zeros(1, 3, side, side))
    return error.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "side", "wanted"), [("vgg13_bn", 32, 224), ("squeezenet1_1", 32, 33), ("squeezenet1_1", 64, 65)]
)
def test_the_size_that_is_named_does(name, side, wanted):
    make = models.get_model_builder(name)
    assert refused(make(num_classes=2), side) == f"pools must divide their maps: use images of {wanted} x {wanted}"
    if wanted < 100:
        polynomial_(make(num_classes=2), torch.rand(1, 3, wanted, wanted))


def test_a_forward_that_fails_on_small_images_names_a_size():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 17, 2), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(1, 3, 64, 64))
    assert refused(model, 32) == "use images of 64 x 64"


@pytest.mark.parametrize("side", [32, 224])
def test_overlapping_pools_fit_no_size(side):
    found = refused(models.alexnet(num_classes=2), side)
    assert re.search("no usual image size would do, use pools without overlap$", found)


def test_a_forward_that_fails_at_every_size_keeps_its_message():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(1, 2))
    assert refused(model, 8).startswith("give images of the size it is made for, and write its forward without")


@pytest.mark.parametrize("kind", [torch.uint8, torch.bfloat16, torch.float64])
def test_images_of_another_type_are_refused_with_the_type(kind):
    images = torch.zeros(2, 1, 8, 8, dtype=kind)
    with pytest.raises(RuleError, match=r"; give images\.to\(torch\.float32\)$"):
        polynomial_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)), images)


def test_images_that_are_not_finite_are_refused():
    with pytest.raises(RuleError, match="images must be finite: got NaN or infinity"):
        polynomial_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.full((2, 1, 8, 8), torch.inf))
