"""Against torchvision's operations, image by image, with the same draws."""

import pytest
import torch
from torchvision.transforms.v2 import InterpolationMode, RandAugment

from privcirnet.data import load
from privcirnet.data.rand_augment import OPERATIONS, STRONGEST, rand_augment
from tests.data.test_augment import seeded, some_images

THEIRS = RandAugment._AUGMENTATION_SPACE


def slow(images, operations, magnitude, generator, deviation=0.0):
    """One image and one operation at a time; torchvision's ranges are linear, so any magnitude lies on them."""
    count, (height, width) = len(images), images.shape[2:]
    which = torch.randint(len(THEIRS), (operations, count), generator=generator)
    opposite = torch.randint(2, (operations, count), generator=generator)
    noise = torch.randn((operations, count), generator=generator) if deviation else torch.zeros(operations, count)
    changed = []
    for n in range(count):
        image = images[n]
        for i in range(operations):
            name, (range_of, directed) = list(THEIRS.items())[which[i, n]]
            strengths = range_of(STRONGEST + 1, height, width)
            share = min(max(magnitude + deviation * float(noise[i, n]), 0), STRONGEST) / STRONGEST
            ends = (0.0, 0.0) if strengths is None else (float(strengths[0]), float(strengths[-1]))
            strength = ends[0] + (ends[1] - ends[0]) * share
            strength = round(strength) if name == "Posterize" else strength
            sign = -1 if directed and opposite[i, n] else 1
            image = RandAugment()._apply_image_or_video_transform(
                image, name, sign * strength, InterpolationMode.NEAREST, {}
            )
        changed.append(image)
    return torch.stack(changed)


def test_operations_are_torchvisions():
    assert list(OPERATIONS) == list(THEIRS)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("operations", "magnitude", "deviation"),
    [(1, 9, 0), (2, 9, 0), (3, 30, 0), (2, 0, 0), (0, 9, 0), (2, 9, 0.5), (2, 27, 6)],
)
def test_each_image_is_changed_as_torchvision_does(channels, operations, magnitude, deviation):
    images = some_images(120, channels, 16, 13)
    before = images.clone()
    result = rand_augment(images, operations, magnitude, deviation, 255, seeded())
    difference = (result.int() - slow(images, operations, magnitude, seeded(), deviation).int()).abs()
    assert difference.max() <= 1  # "Color" and "Sharpness" round at other places
    assert (difference > 0).float().mean() < 4e-3
    assert torch.equal(images, before)
    assert (operations > 0) == (not torch.equal(result, images))


def test_images_of_few_levels_keep_them():
    """The digits have 17 levels: without stretching, "Solarize" would never and "Equalize" always change them all."""
    data = load("digits")
    images = data.train_images[:300]
    assert torch.equal(rand_augment(images, 0, 9, 0, data.levels, seeded()), images)
    result = rand_augment(images, 2, 9, 0, data.levels, seeded())
    assert result.dtype == torch.uint8
    assert result.max() == data.levels
    stretched = (images.double() * 255 / 16).round().to(torch.uint8)
    expected = (slow(stretched, 2, 9, seeded()).double() * 16 / 255).round().to(torch.uint8)
    assert (result.int() - expected.int()).abs().max() <= 1
