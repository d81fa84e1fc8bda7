"""RandAugment: a few random operations on each image, all of about the same strength.

Images that drew the same operation are changed together, each with its own strength (:mod:`.operations`), on the device
that they are on. Everything is drawn from a generator: the same state gives the same batch. The operations are defined
for 256 levels; images with fewer are stretched to 256 and back, which changes nothing else.

Magnitudes are torchvision's, 0 to 30. timm's go to 10 for the same strengths, so its m9 with mstd0.5 is 27 with a
deviation of 1.5.

Source: Cubuk et al., "RandAugment: Practical Automated Data Augmentation with a Reduced Search Space" (2020). The
    deviation is timm's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from privcirnet.data.operations import OPERATIONS

STRONGEST = 30
"""The largest magnitude."""


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
    for chosen, strengths in zip(which.cpu(), signed.float(), strict=True):
        for place, operation in enumerate(OPERATIONS.values()):
            (alike,) = (chosen == place).nonzero(as_tuple=True)
            if len(alike):
                own, there = strengths[alike].to(images.device), alike.to(images.device)
                changed[there] = operation(changed[there], own)
    return _scaled(changed, levels / 255)


def _scaled(images: Tensor, factor: float) -> Tensor:
    """Return a copy with pixels multiplied by a factor and rounded."""
    return images.clone() if factor == 1 else (images.float() * factor).round().to(torch.uint8)
