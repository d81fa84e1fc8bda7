"""Random changes of uint8 batches, drawn for each image from a generator: the same state gives the same batch.

Everything is drawn for the whole batch first, so the changes of one image do not depend on the others' pixels.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from privcirnet.errors import RuleError

AREA = (0.02, 1 / 3)
"""Range of the erased share of an image."""
ASPECT = (0.3, 1 / 0.3)
"""Range of the erased rectangle's height over its width."""


def crop_and_flip(
    images: Tensor, padding: int, generator: torch.Generator, *, reflect: bool = True, flip: bool = True
) -> Tensor:
    """Crop at a random place of the padded image, then mirror left and right with probability 1/2.

    Args:
        images: (N, C, H, W).
        padding: pixels on every side; less than H and W if they are reflected.
        generator: N rows and N columns in [0, 2 padding] are drawn from it, then N flips.
        reflect: pad with mirrored pixels, else with zeros.
        flip: whether any image is mirrored.

    Returns:
        (N, C, H, W).

    Raises:
        RuleError: images are too small to be padded so.

    >>> image = torch.tensor([[[[1, 2, 3]]]], dtype=torch.uint8)
    >>> crop_and_flip(image, 0, torch.Generator().manual_seed(0)).tolist() in ([[[[1, 2, 3]]]], [[[[3, 2, 1]]]])
    True
    """
    count, _, height, width = images.shape
    if reflect and padding >= min(height, width):
        rule, got = "recipe.crop_padding must be less than an image's side", f"{padding} for {height} x {width}"
        raise RuleError(rule, got=got, remedy=f"use {max(1, min(height, width) // 8)}")
    rows, columns = _whole(2 * padding + 1, (2, count), generator, images)
    mirrored = _whole(2, (count,), generator, images).bool() & flip
    if reflect:
        padded = _mirrored(_mirrored(images, 2, padding), 3, padding)
    else:
        padded = F.pad(images, (padding,) * 4)
    windows = padded.unfold(2, height, 1).unfold(3, width, 1)
    cropped = windows[torch.arange(count, device=images.device), :, rows, columns]
    return torch.where(mirrored[:, None, None, None], cropped.flip(3), cropped)


def erase(images: Tensor, probability: float, generator: torch.Generator) -> Tensor:
    """Fill a random rectangle of some of the images with the image's mean colour (random erasing).

    Args:
        images: uint8 (N, C, H, W).
        probability: with which each image is changed.
        generator: five numbers are drawn from it for each image.

    Returns:
        uint8 (N, C, H, W).

    Source: Zhong et al., "Random Erasing Data Augmentation", AAAI 2020: area and logarithm of the aspect ratio are
        uniform.
    Departure: a rectangle that is longer than the image is cut to it, where the paper draws again.
    """
    count, _, height, width = images.shape
    drawn = torch.rand(5, count, generator=generator, device=generator.device).to(images.device)
    chance, area, aspect, top, left = drawn
    area = height * width * (AREA[0] + (AREA[1] - AREA[0]) * area)
    aspect = torch.exp(math.log(ASPECT[0]) + (math.log(ASPECT[1]) - math.log(ASPECT[0])) * aspect)
    tall = (area * aspect).sqrt().round().clamp(1, height)
    wide = (area / aspect).sqrt().round().clamp(1, width)
    inside_rows = _between(height, (top * (height - tall + 1)).floor(), tall)
    inside_columns = _between(width, (left * (width - wide + 1)).floor(), wide)
    inside = inside_rows[:, :, None] & inside_columns[:, None, :] & (chance < probability)[:, None, None]
    colour = images.float().mean(dim=(2, 3), keepdim=True).round().to(images.dtype)
    return torch.where(inside[:, None], colour, images)


def _whole(below: int, shape: tuple[int, ...], generator: torch.Generator, images: Tensor) -> Tensor:
    """Draw random integers in [0, below)."""
    return torch.randint(below, shape, generator=generator, device=generator.device).to(images.device)


def _mirrored(images: Tensor, dim: int, padding: int) -> Tensor:
    """Pad both ends of a dimension: 1 2 3 becomes 3 2 1 2 3 2 1 with two of padding."""
    length = images.shape[dim]
    before = images.narrow(dim, 1, padding).flip(dim)
    after = images.narrow(dim, length - 1 - padding, padding).flip(dim)
    return torch.cat([before, images, after], dim)


def _between(length: int, start: Tensor, size: Tensor) -> Tensor:
    """Return which positions belong to an interval of ``size`` from ``start``, (N, length)."""
    places = torch.arange(length, device=start.device)
    return (places >= start[:, None]) & (places < (start + size)[:, None])
