"""Where the image size is what does not fit, the message names one that does."""

import pytest
import torch
from torch import nn
from torchvision import models

from privcirnet.errors import RuleError
from privcirnet.passes.surgery import polynomial_


def refused(model: nn.Module, height: int, width: int | None = None) -> str:
    with pytest.raises(RuleError) as error:
        polynomial_(model, torch.zeros(1, 3, height, width or height))
    return error.value.remedy


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 64])
def test_averages_of_uneven_windows_fit_every_size(width):
    """A VGG's last average makes 7 x 7 places of one, or of two."""
    model, images = models.vgg13_bn(num_classes=2).eval(), torch.rand(2, 3, 32, width)
    expected = model(images)
    assert polynomial_(model, images, activation="own")
    assert torch.allclose(model(images), expected, atol=1e-4)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (33, 48)])
def test_pools_that_overlap_or_leave_a_rest_fit_every_size(height, width):
    model = models.squeezenet1_1(num_classes=2)
    assert polynomial_(model, torch.rand(1, 3, height, width))
    assert model(torch.rand(3, 3, height, width)).shape == (3, 2)


def test_a_forward_that_fails_on_small_images_names_a_size():
    model = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.Conv2d(4, 4, 17, 2), nn.Flatten(), nn.LazyLinear(2))
    model(torch.zeros(1, 3, 64, 64))
    assert refused(model, 32) == "use images of 64 x 64"


def test_windows_of_several_sizes_fit_no_size():
    model = nn.Sequential(nn.AdaptiveMaxPool2d(3), nn.AdaptiveMaxPool2d(2), nn.Flatten(), nn.Linear(12, 2))
    assert refused(model, 9).endswith("no usual image size would do, use pools whose windows are all of one size")


def test_a_forward_that_fails_at_every_size_keeps_its_message():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(1, 2))
    assert refused(model, 8).startswith("give images of the size it is made for, and write its forward without")


@pytest.mark.parametrize("kind", [torch.uint8, torch.bfloat16, torch.float64])
def test_images_of_another_type_are_refused_with_the_type(kind):
    images = torch.zeros(2, 1, 8, 8, dtype=kind)
    with pytest.raises(RuleError, match=r"; give images\.(to\(torch\.float32\)$|float\(\), scaled as in training)"):
        polynomial_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)), images)


def test_images_that_are_not_finite_are_refused():
    with pytest.raises(RuleError, match="images must be finite: got NaN or infinity"):
        polynomial_(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()), torch.full((2, 1, 8, 8), torch.inf))
