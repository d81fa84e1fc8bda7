"""A small network of a user's own, and images that it can learn."""

import torch
from torch import Tensor, nn


def images_and_labels(count: int = 96, side: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Normalized noise, brighter on the left or on the right."""
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(count, 3, side, side, generator=generator).clamp(-2.5, 2.5)
    labels = torch.randint(2, (count,), generator=generator)
    images[labels == 0, :, :, : side // 2] += 1
    images[labels == 1, :, :, side // 2 :] += 1
    return images, labels


def convolutional(seed: int = 0) -> nn.Module:
    """With a max pool, an adaptive pool and ReLUs."""
    torch.manual_seed(seed)
    return nn.Sequential(
        *(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(256, 2)),
    )
