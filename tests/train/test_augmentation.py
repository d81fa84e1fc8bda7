"""The order of a recipe's changes, each of which has its own tests in tests/data."""

import dataclasses

import pytest
import torch

from privcirnet.config import RecipeConfig
from privcirnet.data.augment import crop_and_flip, erase, random_resized_crop
from privcirnet.data.dataset import ImageData
from privcirnet.data.rand_augment import rand_augment
from privcirnet.train.augmentation import augmented, augmented_epoch
from tests.data.test_augment import seeded, some_images

IMAGES = some_images(16, 3, 8, 8)


def test_nothing_is_drawn_by_default():
    generator = seeded()
    assert augmented(IMAGES, RecipeConfig(), 255, generator) is IMAGES
    assert torch.equal(generator.get_state(), seeded().get_state())


@pytest.mark.parametrize("together", [0, 4, 9, 100])
@pytest.mark.parametrize("count", [15, 16, 17])
def test_an_epoch_has_its_batches_however_many_images_are_augmented_together(count, together):
    images = torch.arange(count, dtype=torch.uint8)[:, None, None, None]
    data = ImageData(images, torch.arange(count), images, torch.arange(count), -8, 255, ("a",))
    recipe = RecipeConfig(batch_size=4)
    batches = list(augmented_epoch(data, recipe, seeded(), together))
    order = torch.randperm(count, generator=seeded())
    assert [len(labels) for _, labels in batches] == [len(labels) for _, labels in data.epoch(4, seeded())]
    assert torch.equal(torch.cat([labels for _, labels in batches]), order)
    assert torch.equal(torch.cat([changed for changed, _ in batches])[:, 0, 0, 0], order.to(torch.uint8))


def test_a_cpu_has_its_images_already():
    labels = torch.zeros(16, dtype=torch.int64)
    data = ImageData(IMAGES, labels, IMAGES, labels, -8, 255, ("a",))
    assert data.near(torch.device("cpu")) is data


def test_changes_come_in_order():
    recipe = RecipeConfig(crop=0.2, flip=True, rand_augment=2, rand_magnitude=27, rand_deviation=1.5, erase=0.5)
    generator = seeded()
    expected = random_resized_crop(IMAGES, 0.2, generator)
    expected = crop_and_flip(expected, 0, generator)
    expected = rand_augment(expected, 2, 27, 1.5, 255, generator)
    expected = erase(expected, 0.5, generator)
    assert torch.equal(augmented(IMAGES, recipe, 255, seeded()), expected)


@pytest.mark.parametrize("change", [{"crop": 2}, {"flip": True}, {"crop": 0.3}, {"erase": 0.9}])
def test_each_change_is_made(change):
    recipe = dataclasses.replace(RecipeConfig(), **change)
    assert not torch.equal(augmented(IMAGES, recipe, 255, seeded()), IMAGES)
