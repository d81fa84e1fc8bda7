"""The operations of RandAugment on a batch, each image with a strength of its own.

Operations and their ranges are those of torchvision's class RandAugment, whose functions take one strength for all
images. Values are those of its functions up to rounding. Geometric ones take the nearest pixel and leave black edges.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as tv
from torch import Tensor

_Row = tuple[Tensor | float, Tensor | float, Tensor | float]
_TRANSLATION = 150 / 331
"""Largest shift as a share of width or height: the RandAugment paper's 150 of 331 pixels."""


def _sheared_across(images: Tensor, m: Tensor) -> Tensor:
    return _mapped(images, (1, 0.3 * m, 0.3 * m * images.shape[2] / 2), (0, 1, 0))


def _sheared_down(images: Tensor, m: Tensor) -> Tensor:
    return _mapped(images, (1, 0, 0), (0.3 * m, 1, 0.3 * m * images.shape[3] / 2))


def _moved_across(images: Tensor, m: Tensor) -> Tensor:
    return _mapped(images, (1, 0, -(_TRANSLATION * m * images.shape[3]).trunc()), (0, 1, 0))


def _moved_down(images: Tensor, m: Tensor) -> Tensor:
    return _mapped(images, (1, 0, 0), (0, 1, -(_TRANSLATION * m * images.shape[2]).trunc()))


def _turned(images: Tensor, m: Tensor) -> Tensor:
    angle = torch.deg2rad(30 * m)
    return _mapped(images, (angle.cos(), -angle.sin(), 0), (angle.sin(), angle.cos(), 0))


def _brightened(images: Tensor, m: Tensor) -> Tensor:
    return _blended(images, torch.zeros((), device=images.device), m)


def _coloured(images: Tensor, m: Tensor) -> Tensor:
    return images if images.shape[1] == 1 else _blended(images, _grey(images), m)


def _contrasted(images: Tensor, m: Tensor) -> Tensor:
    return _blended(images, _grey(images).mean((1, 2, 3), keepdim=True), m)


def _sharpened(images: Tensor, m: Tensor) -> Tensor:
    channels, height, width = images.shape[1:]
    if min(height, width) <= 2:
        return images
    kernel = torch.full((3, 3), 1 / 13, device=images.device)
    kernel[1, 1] = 5 / 13
    softer = images.float()
    softer[:, :, 1:-1, 1:-1] = F.conv2d(softer, kernel.expand(channels, 1, 3, 3), groups=channels).round()
    return (images + _of_images(0.9 * m) * (images - softer)).clamp(0, 255).to(images.dtype)


def _posterized(images: Tensor, m: Tensor) -> Tensor:
    lost = 8 - (8 - 4 * m.abs()).round().to(torch.uint8)
    return images >> _of_images(lost) << _of_images(lost)


def _solarized(images: Tensor, m: Tensor) -> Tensor:
    return torch.where(images >= _of_images(255 * (1 - m.abs())), 255 - images, images)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Identity": lambda x, m: x,
    "ShearX": _sheared_across,
    "ShearY": _sheared_down,
    "TranslateX": _moved_across,
    "TranslateY": _moved_down,
    "Rotate": _turned,
    "Brightness": _brightened,
    "Color": _coloured,
    "Contrast": _contrasted,
    "Sharpness": _sharpened,
    "Posterize": _posterized,
    "Solarize": _solarized,
    "AutoContrast": lambda x, m: tv.autocontrast(x),
    "Equalize": lambda x, m: tv.equalize(x),
}
"""Operation by torchvision's name: takes uint8 images (N, C, H, W) of 256 levels and strengths in [-1, 1], float32
(N,), on the images' device; returns changed images."""


def _of_images(values: Tensor) -> Tensor:
    """Return a value of each image so that it meets all its pixels, (N, 1, 1, 1)."""
    return values[:, None, None, None]


def _mapped(images: Tensor, across: _Row, down: _Row) -> Tensor:
    """Move pixels: the one at (x, y) from the centre becomes the nearest to (ax + by + c, dx + ey + f).

    Args:
        images: (N, C, H, W).
        across: a, b, c, each a number or one of each image, (N,); c in pixels.
        down: d, e, f.
    """
    height, width = images.shape[2:]
    x = torch.arange(width, device=images.device) - (width - 1) / 2
    y = torch.arange(height, device=images.device)[:, None] - (height - 1) / 2
    places = []
    for side, row in ((0.5 * width, across), (0.5 * height, down)):
        a, b, c = (value[:, None, None] if isinstance(value, Tensor) else value for value in row)
        places.append(((a * x + b * y + c) / side).expand(len(images), height, width))
    return F.grid_sample(images.float(), torch.stack(places, -1), "nearest", "zeros", False).to(images.dtype)


def _blended(images: Tensor, others: Tensor, m: Tensor) -> Tensor:
    """Return r images + (1 - r) others with r = 1 + 0.9 m, cut to [0, 255], rounded as torchvision does."""
    more = _of_images(0.9 * m.double())
    kept = images * (1 + more).float()
    return (kept.double() + others * (-more).float().double()).float().clamp(0, 255).to(images.dtype)


def _grey(images: Tensor) -> Tensor:
    """Return the brightness of each pixel, (N, 1, H, W)."""
    if images.shape[1] == 1:
        return images.float()
    red, green, blue = (images[:, i : i + 1] for i in range(3))
    return red.mul(0.2989).add(green, alpha=0.587).add(blue, alpha=0.114).floor()
