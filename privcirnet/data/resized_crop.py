"""Random resized crops: a random box of each image, brought back to the image's size.

A resized box is two products of matrices, rows (H, h) x image x columns (w, W): each output pixel is the mean of the
input pixels around its centre, weighted by a triangle that is as wide as the box is shrunk (bilinear with antialias).
Each image has matrices of its own, so a batch is two batched products; without them, one call an image.

Source: Szegedy et al., "Going Deeper with Convolutions" (CVPR 2015), Section 6: the share of the area is uniform. The
    logarithm of the aspect ratio is uniform, a box that is longer than the image is drawn again, and after ten of them
    the largest central one is taken: as torchvision's RandomResizedCrop.
Departure: values in between are rounded once, at the end, where torchvision's uint8 resize rounds after each axis.
"""

import math

import torch
from torch import Tensor

ASPECT = (3 / 4, 4 / 3)
"""Range of a box's width over its height."""
ATTEMPTS = 10
"""Boxes drawn for each image; the first that fits is taken."""


def random_resized_crop(images: Tensor, smallest: float, generator: torch.Generator) -> Tensor:
    """Crop a random box of each image and resize it to the image's size.

    Args:
        images: uint8 (N, C, H, W).
        smallest: smallest share of the area, in (0, 1]; the largest is 1.
        generator: see :func:`random_boxes`.

    Returns:
        uint8 (N, C, H, W).
    """
    return resized(images, random_boxes(len(images), images.shape[2:], smallest, generator).to(images.device))


def random_boxes(count: int, size: tuple[int, ...], smallest: float, generator: torch.Generator) -> Tensor:
    """Return random boxes inside an image.

    Args:
        count: N, number of boxes.
        size: height and width of the image in pixels.
        smallest: smallest share of the area.
        generator: :data:`ATTEMPTS` areas and aspect ratios are drawn from it for each box, then its two places.

    Returns:
        int64 (N, 4): top, left, height and width in pixels.

    >>> random_boxes(1, (8, 8), 1.0, torch.Generator().manual_seed(0)).tolist()
    [[0, 0, 8, 8]]
    """
    drawn = torch.rand(2, ATTEMPTS, count, generator=generator, device=generator.device)
    places = torch.rand(2, count, generator=generator, device=generator.device)
    height, width = size
    area = height * width * (smallest + (1 - smallest) * drawn[0])
    aspect = torch.exp(math.log(ASPECT[0]) + math.log(ASPECT[1] / ASPECT[0]) * drawn[1])
    tall, wide = (area / aspect).sqrt().round().long(), (area * aspect).sqrt().round().long()
    fits = (tall >= 1) & (tall <= height) & (wide >= 1) & (wide <= width)
    first = fits.int().argmax(dim=0, keepdim=True)
    central = min(height, round(width / ASPECT[0])), min(width, round(height * ASPECT[1]))
    found = fits.any(dim=0)
    tall, wide = (
        torch.where(found, x.gather(0, first)[0], whole) for x, whole in zip((tall, wide), central, strict=True)
    )
    top, left = (
        torch.where(found, (place * (room + 1)).floor().long(), room // 2)
        for place, room in zip(places, (height - tall, width - wide), strict=True)
    )
    return torch.stack([top, left, tall, wide], dim=1)


def resized(images: Tensor, boxes: Tensor) -> Tensor:
    """Return a box of each image at the image's size, bilinear with antialias.

    Args:
        images: uint8 (N, C, H, W).
        boxes: int64 (N, 4): top, left, height and width in pixels, inside the image.

    Returns:
        uint8 (N, C, H, W).
    """
    rows = _weights(boxes[:, 0], boxes[:, 2], images.shape[2])
    columns = _weights(boxes[:, 1], boxes[:, 3], images.shape[3])
    values = rows[:, None] @ images.float() @ columns[:, None].transpose(2, 3)
    return values.round().to(images.dtype)


def _weights(start: Tensor, length: Tensor, size: int) -> Tensor:
    """Return the matrices (N, size, size) that resize the interval of each image from ``start`` to ``size`` pixels."""
    scale = (length / size)[:, None, None]
    pixels = torch.arange(size, device=start.device)
    centre = start[:, None, None] + scale * (pixels[:, None] + 0.5)
    away = (pixels[None, :] + 0.5 - centre).abs() / scale.clamp(min=1)
    inside = (pixels >= start[:, None]) & (pixels < (start + length)[:, None])
    weights = (1 - away).clamp(min=0) * inside[:, None]
    return weights / weights.sum(dim=2, keepdim=True)
