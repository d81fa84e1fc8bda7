"""RandAugment: a few random operations on each image, all of about the same strength.

Images that drew the same operation are changed together, each with its own strength, on the device that they are on.
Everything is drawn from a generator: the same state gives the same batch. Operations, ranges and names are those of
torchvision's class RandAugment, values those of its functions, give or take one level. They are defined for 256 levels;
images with fewer are stretched to 256 and back, which changes nothing else.

Magnitudes are torchvision's, 0 to 30. timm's go to 10 for the same strengths, so its m9 with mstd0.5 is 27 with a
deviation of 1.5.

Measured: torchvision's class draws once for a batch; called for each image, two operations on an epoch of CIFAR-10 take
38 s on a core, here in batches of 128 8 s, with a deviation, which it does not have.

Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space" (2020). The
    deviation is timm's.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as tv
from torch import Tensor

STRONGEST = 30
"""Largest magnitude."""
_TRANSLATION = 150 / 331
"""Largest shift as a share of width or height: the paper's 150 of 331 pixels."""


def rand_augment(
    images: Tensor, operations: int, magnitude: float, deviation: float, levels: int, generator: torch.Generator
) -> Tensor:
    """Return images, each changed by operations of its own.

    Args:
        images: uint8 (N, C, H, W), C = 1 or 3.
        operations: number of operations on each image, one after another.
        magnitude: strength of each of them, 0 to 30; the sign of those with a direction is random.
        deviation: standard deviation of normal noise that each operation on each image adds to its magnitude, which
            stays between 0 and 30.
        levels: pixels are in [0, levels].
        generator: an operation and a direction are drawn from it for each of ``operations`` x N, then with a deviation
            the noise of their magnitudes.
    """
    drawn = operations, len(images)
    which = torch.randint(len(OPERATIONS), drawn, generator=generator, device=generator.device)
    opposite = torch.randint(2, drawn, generator=generator, device=generator.device)
    magnitudes = torch.full(drawn, float(magnitude))
    if deviation:
        noise = torch.randn(drawn, generator=generator, device=generator.device)
        magnitudes = (magnitudes + deviation * noise.cpu()).clamp(0, STRONGEST)
    signed = (1 - 2 * opposite.cpu()) * magnitudes / STRONGEST
    changed = _scaled(images, 255 / levels)
    for drawn_operations, strengths in zip(which.cpu(), signed, strict=True):
        for place, operation in enumerate(OPERATIONS.values()):
            (alike,) = (drawn_operations == place).nonzero(as_tuple=True)
            if len(alike):
                amounts, there = strengths[alike].to(images.device), alike.to(images.device)
                changed[there] = operation(changed[there], amounts)
    return _scaled(changed, levels / 255)


def _scaled(images: Tensor, factor: float) -> Tensor:
    """Return a copy with pixels multiplied by a factor and rounded."""
    return images.clone() if factor == 1 else (images.float() * factor).round().to(torch.uint8)


def _moved(images: Tensor, entries: dict[tuple[int, int], Tensor]) -> Tensor:
    """Move pixels: the one at (x, y), both in [-1, 1], becomes the nearest to A (x, y, 1), or black outside.

    Args:
        images: (N, C, H, W).
        entries: row and column in A -> values (N,); all other entries are those of the identity.
    """
    matrices = torch.eye(2, 3, device=images.device).repeat(len(images), 1, 1)
    for (row, column), values in entries.items():
        matrices[:, row, column] = values
    grid = F.affine_grid(matrices, list(images.shape), align_corners=False)
    return F.grid_sample(images.float(), grid, "nearest", "zeros", False).to(images.dtype)


def _sheared_across(images: Tensor, m: Tensor) -> Tensor:
    slope = 0.3 * m * images.shape[2] / images.shape[3]
    return _moved(images, {(0, 1): slope, (0, 2): slope})


def _sheared_down(images: Tensor, m: Tensor) -> Tensor:
    slope = 0.3 * m * images.shape[3] / images.shape[2]
    return _moved(images, {(1, 0): slope, (1, 2): slope})


def _shift(length: int, m: Tensor) -> Tensor:
    """Return a shift by whole pixels, in units of half a side."""
    return -2 * (_TRANSLATION * m * length).trunc() / length


def _turned(images: Tensor, m: Tensor) -> Tensor:
    angle, (height, width) = torch.deg2rad(30 * m), images.shape[2:]
    entries = {(0, 0): angle.cos(), (0, 1): -angle.sin() * height / width}
    return _moved(images, {**entries, (1, 0): angle.sin() * width / height, (1, 1): angle.cos()})


def _blended(images: Tensor, base: Tensor, m: Tensor) -> Tensor:
    """Return r images + (1 - r) base with r = 1 + 0.9 m, cut to [0, 255]."""
    return torch.lerp(base.float(), images.float(), 1 + 0.9 * _of_images(m)).clamp(0, 255).to(images.dtype)


def _posterized(images: Tensor, m: Tensor) -> Tensor:
    lost = _of_images(8 - (8 - 4 * m.abs()).round().to(torch.uint8))
    return images >> lost << lost


def _solarized(images: Tensor, m: Tensor) -> Tensor:
    return torch.where(images >= _of_images(255 * (1 - m.abs())), 255 - images, images)


def _of_images(values: Tensor) -> Tensor:
    """Return one value per image in a shape that broadcasts to its pixels, (N, 1, 1, 1)."""
    return values[:, None, None, None]


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Identity": lambda x, m: x,
    "ShearX": _sheared_across,
    "ShearY": _sheared_down,
    "TranslateX": lambda x, m: _moved(x, {(0, 2): _shift(x.shape[3], m)}),
    "TranslateY": lambda x, m: _moved(x, {(1, 2): _shift(x.shape[2], m)}),
    "Rotate": _turned,
    "Brightness": lambda x, m: _blended(x, torch.zeros_like(x), m),
    "Color": lambda x, m: _blended(x, tv.adjust_saturation(x, 0.0), m),
    "Contrast": lambda x, m: _blended(x, tv.rgb_to_grayscale(x).float().mean((1, 2, 3), keepdim=True), m),
    "Sharpness": lambda x, m: _blended(x, tv.adjust_sharpness(x, 0.0), m),
    "Posterize": _posterized,
    "Solarize": _solarized,
    "AutoContrast": lambda x, m: tv.autocontrast(x),
    "Equalize": lambda x, m: tv.equalize(x),
}
"""Operations by torchvision's name, each from uint8 images (N, C, H, W) of 256 levels and strengths in [-1, 1], float32
(N,), on the images' device, to changed images."""
