"""Batch-wise crops against torchvision's, image by image, and boxes against a loop that draws the same numbers."""

import math

import pytest
import torch
from torchvision.transforms.v2 import functional as F

from privcirnet.data.augment import CROP_ASPECT, CROP_ATTEMPTS, random_boxes, random_resized_crop, resized
from tests.data.test_augment import seeded, some_images


def slow_boxes(count, size, smallest, generator):
    """As RandomResizedCrop.get_params of torchvision, which draws one number after another and takes its last box from the centre."""
    height, width = size
    areas, aspects = torch.rand(2, CROP_ATTEMPTS, count, generator=generator).tolist()
    tops, lefts = torch.rand(2, count, generator=generator).tolist()

    def box(n):
        for attempt in range(CROP_ATTEMPTS):
            area = height * width * (smallest + (1 - smallest) * areas[attempt][n])
            aspect = math.exp(
                math.log(CROP_ASPECT[0]) + math.log(CROP_ASPECT[1] / CROP_ASPECT[0]) * aspects[attempt][n]
            )
            wide, tall = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < wide <= width and 0 < tall <= height:
                return [int(tops[n] * (height - tall + 1)), int(lefts[n] * (width - wide + 1)), tall, wide]
        tall, wide = min(height, round(width / CROP_ASPECT[0])), min(width, round(height * CROP_ASPECT[1]))
        return [int(tops[n] * (height - tall + 1)), int(lefts[n] * (width - wide + 1)), tall, wide]

    return torch.tensor([box(n) for n in range(count)])


@pytest.mark.parametrize("smallest", [0.08, 0.5, 1.0])
@pytest.mark.parametrize("size", [(32, 32), (9, 16), (16, 9)])
def test_boxes_are_the_slow_ones(size, smallest):
    boxes = random_boxes(500, size, smallest, seeded())
    assert torch.equal(boxes, slow_boxes(500, size, smallest, seeded()))
    assert (boxes[:, :2] >= 0).all()
    assert (boxes[:, :2] + boxes[:, 2:] <= torch.tensor(size)).all()


def test_boxes_keep_to_their_shares_and_reach_all_sides():
    boxes = random_boxes(5000, (64, 64), 0.08, seeded())
    share = (boxes[:, 2] * boxes[:, 3]) / 64**2
    assert 0.07 < share.min() < 0.1
    assert share.max() == 1
    aspect = boxes[:, 3] / boxes[:, 2]
    assert 0.7 < aspect.min() < aspect.median() < aspect.max() < 1.43
    assert (boxes[:, :2] == 0).any(dim=0).all()
    assert (boxes[:, :2] + boxes[:, 2:] == 64).any(dim=0).all()


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 16, 9)])
def test_crops_are_torchvisions(shape):
    images = some_images(60, *shape)
    before = images.clone()
    boxes = random_boxes(60, shape[1:], 0.08, seeded())
    result = resized(images, boxes)
    exact = torch.cat(
        [
            F.resized_crop(image[None].float(), *box, shape[1:], antialias=True)
            for image, box in zip(images, boxes.tolist(), strict=True)
        ]
    )
    assert result.dtype == torch.uint8
    assert torch.equal(images, before)
    assert (result.float() - exact).abs().max() < 0.501
    theirs = torch.stack(
        [
            F.resized_crop(image, *box, shape[1:], antialias=True)
            for image, box in zip(images, boxes.tolist(), strict=True)
        ]
    )
    assert (result.int() - theirs.int()).abs().max() <= 1  # it rounds twice


def test_a_whole_image_stays_as_it_is():
    images = some_images(8)
    assert torch.equal(random_resized_crop(images, 1.0, seeded()), images)
    assert not torch.equal(random_resized_crop(images, 0.5, seeded()), images)
