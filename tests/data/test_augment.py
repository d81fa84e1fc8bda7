"""Batch-wise augmentation against loops over images and pixels that draw the same numbers."""

import math

import pytest
import torch

from privcirnet.data.augment import AREA, ASPECT, crop_and_flip, erase, random_resized_crop
from privcirnet.data.rand_augment import rand_augment
from privcirnet.errors import RuleError


def seeded(seed=3):
    return torch.Generator().manual_seed(seed)


def some_images(count, channels=3, height=6, width=5):
    return torch.randint(0, 256, (count, channels, height, width), generator=seeded(1), dtype=torch.uint8)


def slow_crop_and_flip(images, padding, generator):
    count, channels, height, width = images.shape
    rows, columns = torch.randint(2 * padding + 1, (2, count), generator=generator).tolist()
    flips = torch.randint(2, (count,), generator=generator).tolist()

    def source(place, length):
        if 0 <= place < length:
            return place
        return -place if place < 0 else 2 * length - 2 - place

    result = torch.zeros_like(images)
    for n in range(count):
        for y in range(height):
            for x in range(width):
                across = width - 1 - x if flips[n] else x
                row, column = source(y + rows[n] - padding, height), source(across + columns[n] - padding, width)
                for c in range(channels):
                    result[n, c, y, x] = images[n, c, row, column]
    return result


@pytest.mark.parametrize("padding", [0, 1, 4])
@pytest.mark.parametrize("shape", [(1, 6, 5), (3, 5, 8)])
def test_crops_and_flips_are_the_slow_ones(padding, shape):
    images = some_images(20, *shape)
    before = images.clone()
    result = crop_and_flip(images, padding, seeded())
    assert torch.equal(result, slow_crop_and_flip(images, padding, seeded()))
    assert result.dtype == torch.uint8
    assert torch.equal(images, before)


def test_every_place_and_side_occurs_about_as_often():
    image = torch.arange(25, dtype=torch.uint8).reshape(1, 1, 5, 5)
    result = crop_and_flip(image.expand(9000, 1, 5, 5), 1, seeded())
    kinds, counts = result.flatten(1).unique(dim=0, return_counts=True)
    assert len(kinds) == 18
    assert counts.min() > 500 - 5 * math.sqrt(500)
    assert counts.max() < 500 + 5 * math.sqrt(500)


def slow_erase(images, probability, generator):
    count, _, height, width = images.shape
    chance, area, aspect, top, left = torch.rand(5, count, generator=generator).tolist()
    result = images.clone()
    for n in range(count):
        if chance[n] >= probability:
            continue
        size = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area[n])
        ratio = math.exp(math.log(ASPECT[0]) + math.log(ASPECT[1] / ASPECT[0]) * aspect[n])
        tall = min(max(round(math.sqrt(size * ratio)), 1), height)
        wide = min(max(round(math.sqrt(size / ratio)), 1), width)
        first, begin = math.floor(top[n] * (height - tall + 1)), math.floor(left[n] * (width - wide + 1))
        for c in range(images.shape[1]):
            mean = round(sum(images[n, c].flatten().tolist()) / (height * width))
            for y in range(first, first + tall):
                for x in range(begin, begin + wide):
                    result[n, c, y, x] = mean
    return result


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("shape", [(1, 9, 8), (3, 4, 16)])
def test_erased_rectangles_are_the_slow_ones(probability, shape):
    images = some_images(60, *shape)
    before = images.clone()
    result = erase(images, probability, seeded())
    assert torch.equal(result, slow_erase(images, probability, seeded()))
    assert torch.equal(images, before)
    changed = (result != images).flatten(1).any(1).float().mean()
    assert (changed == 0) if probability == 0 else (changed > probability - 0.25)


def test_erasing_keeps_to_its_area():
    images = torch.zeros(2000, 1, 32, 32, dtype=torch.uint8)
    images[..., ::2, :] = 255
    share = (erase(images, 1.0, seeded()) == 128).flatten(1).float().mean(1)
    assert 0 < share.min() < 0.04
    assert 0.3 < share.max() < 0.37
    assert abs(share.mean() - sum(AREA) / 2) < 0.01


@pytest.mark.parametrize(
    "change",
    [
        lambda x, g: crop_and_flip(x, 4, g),
        lambda x, g: erase(x, 0.5, g),
        lambda x, g: random_resized_crop(x, 0.2, g),
        lambda x, g: rand_augment(x, 2, 9, 1.5, 255, g),
    ],
)
def test_a_generator_continues_from_its_state(change):
    images, generator, others = some_images(64, 3, 8, 8), seeded(), torch.get_rng_state()
    first, state = change(images, generator), generator.get_state()
    second = change(images, generator)
    assert not torch.equal(first, second)
    generator.set_state(state)
    assert torch.equal(change(images, generator), second)
    assert torch.equal(change(images, seeded()), first)
    assert torch.equal(torch.get_rng_state(), others)


def test_nothing_is_mirrored_where_it_should_not_be():
    images = some_images(16)
    assert torch.equal(crop_and_flip(images, 0, seeded(), flip=False), images)
    assert not torch.equal(crop_and_flip(images, 0, seeded()), images)


def test_images_too_small_for_their_padding_are_refused():
    with pytest.raises(RuleError, match=r"crop must be less .* got 8 for 8 x 9; use 1"):
        crop_and_flip(torch.zeros(1, 1, 8, 9, dtype=torch.uint8), 8, torch.Generator())
