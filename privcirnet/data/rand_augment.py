"""RandAugment: a few random operations on each image, all of about the same strength.

Operations and their ranges are those of torchvision's class of that name. Here images that drew the same operation of
the same strength are changed together, and everything is drawn from a generator: the same state gives the same batch.
The operations are defined for 256 levels; images with fewer are stretched to 256 and back, which changes nothing else.

Magnitudes are torchvision's, 0 to 30. timm's go to 10 for the same strengths, so its m9 with mstd0.5 is 27 with a
deviation of 1.5.

Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space" (2020). The
    deviation is timm's.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torchvision.transforms.v2.functional as F
from torch import Tensor

STRONGEST = 30
"""The largest magnitude."""
_TRANSLATION = 150 / 331
"""Largest shift as a share of width or height: the paper's 150 of 331 pixels."""


def _sheared(images: Tensor, across: float, down: float) -> Tensor:
    shear = [math.degrees(math.atan(across)), math.degrees(math.atan(down))]
    return F.affine(images, 0.0, [0, 0], 1.0, shear, center=[0, 0])


def _moved(images: Tensor, across: float, down: float) -> Tensor:
    height, width = images.shape[2:]
    return F.affine(images, 0.0, [int(across * width), int(down * height)], 1.0, [0.0, 0.0])


OPERATIONS: dict[str, Callable[[Tensor, float], Tensor]] = {
    "Identity": lambda x, m: x,
    "ShearX": lambda x, m: _sheared(x, 0.3 * m, 0.0),
    "ShearY": lambda x, m: _sheared(x, 0.0, 0.3 * m),
    "TranslateX": lambda x, m: _moved(x, _TRANSLATION * m, 0.0),
    "TranslateY": lambda x, m: _moved(x, 0.0, _TRANSLATION * m),
    "Rotate": lambda x, m: F.rotate(x, 30 * m),
    "Brightness": lambda x, m: F.adjust_brightness(x, 1 + 0.9 * m),
    "Color": lambda x, m: F.adjust_saturation(x, 1 + 0.9 * m),
    "Contrast": lambda x, m: F.adjust_contrast(x, 1 + 0.9 * m),
    "Sharpness": lambda x, m: F.adjust_sharpness(x, 1 + 0.9 * m),
    "Posterize": lambda x, m: F.posterize(x, round(8 - 4 * abs(m))),
    "Solarize": lambda x, m: F.solarize(x, 255 * (1 - abs(m))),
    "AutoContrast": lambda x, m: F.autocontrast(x),
    "Equalize": lambda x, m: F.equalize(x),
}
"""Operation by torchvision's name: takes images of 256 levels and a strength in [-1, 1], returns changed images."""


@dataclass(frozen=True)
class Strength:
    """How much RandAugment changes an image.

    Attributes:
        operations: number of operations on each image, one after another.
        magnitude: strength of each of them, 0 to 30; the sign of those with a direction is random.
        deviation: standard deviation of normal noise that each operation on each image adds to its magnitude, which
            stays between 0 and 30.
    """

    operations: int
    magnitude: float
    deviation: float = 0.0


def rand_augment(images: Tensor, strength: Strength, levels: int, generator: torch.Generator) -> Tensor:
    """Change each image by operations of its own.

    Args:
        images: uint8 (N, C, H, W), C = 1 or 3.
        strength: number and magnitude of the operations.
        levels: pixels are in [0, levels].
        generator: an operation and a direction are drawn from it for each of ``operations`` x N, then with a deviation
            the noise of their magnitudes.

    Returns:
        uint8 (N, C, H, W), in [0, levels].
    """
    drawn = strength.operations, len(images)
    which = torch.randint(len(OPERATIONS), drawn, generator=generator, device=generator.device)
    opposite = torch.randint(2, drawn, generator=generator, device=generator.device)
    magnitudes = torch.full(drawn, strength.magnitude, dtype=torch.float64)
    if strength.deviation:
        noise = torch.randn(drawn, generator=generator, device=generator.device)
        magnitudes = (magnitudes + strength.deviation * noise.cpu()).clamp(0, STRONGEST)
    signed = (1 - 2 * opposite.cpu()) * magnitudes / STRONGEST
    changed = _scaled(images, 255 / levels)
    for chosen, strengths in zip(which.cpu(), signed, strict=True):
        for place, operation in enumerate(OPERATIONS.values()):
            for value in strengths[chosen == place].unique().tolist():
                alike = ((chosen == place) & (strengths == value)).to(images.device)
                changed[alike] = operation(changed[alike], value)
    return _scaled(changed, levels / 255)


def _scaled(images: Tensor, factor: float) -> Tensor:
    """Return a copy with pixels multiplied by a factor and rounded."""
    return images.clone() if factor == 1 else (images.float() * factor).round().to(torch.uint8)
