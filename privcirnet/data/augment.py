"""Random changes of uint8 batches, drawn for each image from a generator: the same state gives the same batch.

Everything is drawn for the whole batch first, so the changes of one image do not depend on the others' pixels.
Measured: torchvision's transforms draw once for a batch; called for each image, crops and flips of an epoch of CIFAR-10
take 10 s on a core, random erasing 1.1 s; here 0.2 and 0.3 s.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from privcirnet.errors import RuleError

AREA = (0.02, 1 / 3)
"""Range of the erased share of an image."""
ASPECT = (0.3, 1 / 0.3)
"""Range of the erased rectangle's height over its width."""


def crop_and_flip(images: Tensor, padding: int, generator: torch.Generator, *, flip: bool = True) -> Tensor:
    """Return images cropped at a random place, padded by reflection, then mirrored left and right with probability 1/2.

    Args:
        images: uint8 (N, C, H, W).
        padding: pixels on every side; less than H and W.
        generator: N rows and N columns in [0, 2 padding] are drawn from it, then N flips.

    >>> image = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
    >>> crop_and_flip(image, 0, torch.Generator().manual_seed(0)).tolist() in ([[[[1, 2, 3]]]], [[[[3, 2, 1]]]])
    True
    """
    count, _, height, width = images.shape
    if padding >= min(height, width):
        rule, got = "recipe.crop must be less than an image's side", f"{padding} for {height} x {width}"
        raise RuleError(rule, got=got, remedy=f"use {max(1, min(height, width) // 8)}")
    rows, columns = _whole(2 * padding + 1, (2, count), generator, images)
    mirrored = _whole(2, (count,), generator, images).bool() & flip
    rows, columns = _reflected(rows - padding, height), _reflected(columns - padding, width)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    sources = (rows[:, :, None] * width + columns[:, None, :]).reshape(count, 1, -1)
    return images.flatten(2).gather(2, sources.expand(-1, images.shape[1], -1)).reshape(images.shape)


def erase(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Return images, some with a random rectangle filled with the image's mean colour (random erasing).

    Args:
        images: uint8 (N, C, H, W).
        probability: probability with which each image is changed.
        generator: five numbers are drawn from it for each image.

    Source: Zhong et al., "Random Erasing Data Augmentation", AAAI 2020: area and logarithm of the aspect ratio are
        uniform.
    Departure: a rectangle that is longer than the image is cut to it, where the paper draws again.
    """
    count, _, height, width = images.shape
    drawn = torch.rand(5, count, generator=generator, device=generator.device).to(images.device)
    chance, area, aspect, top, left = drawn
    area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
    aspect = ASPECT[0] * (ASPECT[1] / ASPECT[0]) ** aspect
    rows = _inside(height, (area * aspect).sqrt(), top)
    columns = _inside(width, (area / aspect).sqrt(), left)
    inside = rows[:, :, None] & columns[:, None, :] & (chance < probability)[:, None, None]
    colour = images.float().mean(dim=(2, 3), keepdim=True).round().to(images.dtype)
    return torch.where(inside[:, None], colour, images)


def _whole(below: int, shape: tuple[int, ...], generator: torch.Generator, images: Tensor) -> Tensor:
    """Draw random integers in [0, below)."""
    return torch.randint(below, shape, generator=generator, device=generator.device).to(images.device)


def _reflected(start: Tensor, length: int) -> Tensor:
    """Return ``length`` positions from ``start``; those outside [0, length) are reflected into it, (N, length)."""
    places = (start[:, None] + torch.arange(length, device=start.device)).abs()
    return length - 1 - (length - 1 - places).abs()


def _inside(length: int, size: Tensor, place: Tensor) -> Tensor:
    """Return which of ``length`` positions belong to an interval of about ``size`` at a random place, (N, length)."""
    size = size.round().clamp(1, length)
    start = (place * (length - size + 1)).floor()
    places = torch.arange(length, device=size.device)
    return (places >= start[:, None]) & (places < (start + size)[:, None])


CROP_ASPECT = (3 / 4, 4 / 3)
"""Range of a box's width over its height."""
CROP_ATTEMPTS = 10
"""Number of boxes drawn for each image; the first that fits is taken."""


def random_resized_crop(images: Tensor, smallest: float, generator: torch.Generator) -> Tensor:
    """Return a random box of each image, resized to the image's size by bilinear interpolation.

    A box is never larger than the image, so nothing is shrunk and antialiasing has nothing to do. Measured:
    torchvision's transform draws once for a batch; called for each image, it takes 12 s for an epoch of CIFAR-10 on a
    core, this 1.3 s.

    Source: Szegedy et al., "Going Deeper with Convolutions" (CVPR 2015), Section 6: the share of the area is uniform.
        The logarithm of the aspect ratio is uniform and a box that is longer than the image is drawn again, as in
        torchvision's RandomResizedCrop; after ten of them the largest box of a permitted shape is taken.
    Departure: values in between are rounded once, at the end, where torchvision's uint8 resize rounds after each axis.

    Args:
        images: uint8 (N, C, H, W).
        smallest: smallest share of the area, in (0, 1]; the largest is 1.
        generator: see :func:`random_boxes`.
    """
    return resized(images, random_boxes(len(images), images.shape[2:], smallest, generator).to(images.device))


def random_boxes(count: int, size: tuple[int, ...], smallest: float, generator: torch.Generator) -> Tensor:
    """Return random boxes inside an image: int64 (N, 4): top, left, height and width in pixels.

    Args:
        count: N, number of boxes.
        size: height and width of the image in pixels.
        smallest: smallest share of the area.
        generator: :data:`CROP_ATTEMPTS` areas and aspect ratios are drawn from it for each box, then its two places.

    >>> random_boxes(1, (8, 8), 1.0, torch.Generator().manual_seed(0)).tolist()
    [[0, 0, 8, 8]]
    """
    drawn = torch.rand(2, CROP_ATTEMPTS, count, generator=generator, device=generator.device).cpu()
    places = torch.rand(2, count, generator=generator, device=generator.device).cpu()
    (height, width), whole = size, torch.tensor(size)
    area = height * width * (smallest + (1 - smallest) * drawn[0])
    aspect = CROP_ASPECT[0] * (CROP_ASPECT[1] / CROP_ASPECT[0]) ** drawn[1]
    sides = torch.stack([(area / aspect).sqrt(), (area * aspect).sqrt()], 2).round().long().clamp(min=1)
    largest = torch.tensor([min(height, round(width / CROP_ASPECT[0])), min(width, round(height * CROP_ASPECT[1]))])
    sides = torch.cat([sides, largest.expand(1, count, 2)])
    first = (sides <= whole).all(2).int().argmax(0)
    sizes = sides[first, torch.arange(count)]
    return torch.cat([(places.T * (whole - sizes + 1)).long(), sizes], 1)


def resized(images: Tensor, boxes: Tensor) -> Tensor:
    """Return a box of each image at the image's size, bilinear: uint8 (N, C, H, W).

    Args:
        images: uint8 (N, C, H, W).
        boxes: int64 (N, 4): top, left, height and width in pixels, inside the image.
    """
    height, width = images.shape[2:]
    sides = torch.tensor([width, height], device=images.device)
    start, length = boxes[:, [1, 0]], boxes[:, [3, 2]]
    matrices = torch.cat([torch.diag_embed(length / sides), ((2 * start + length) / sides - 1)[:, :, None]], 2)
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    first, last = (((2 * at + 1) / sides - 1)[:, None, None] for at in (start, start + length - 1))
    grid = grid.clamp(first, last)  # no pixel outside the box is looked at
    return F.grid_sample(images.float(), grid, "bilinear", "zeros", False).round().to(images.dtype)
