"""Example images of a network, where none are given: for steps that must run it once, whatever the values."""

import torch
from torch import Tensor, nn

IMAGE = "image"
"""Key of a graph's ``meta``: size of the only images it is made for, (C, H, W), (C, L) or (F,)."""
FUSED = "fused"
"""Key of a fused graph's ``meta``: True if it is made for one size of images; False if some operations need one yet."""
FACTS = "checkpoint"
"""Key of a network's ``meta``: the checkpoint that it was read from, without its tensors."""
FRESH = "fresh"
"""Key of a network's ``meta``: names of tensors that still have random values, until it is trained."""
_SIDES = tuple(dict.fromkeys((32, 64, 28, 224, 8, 96, 16, 299, *range(1, 65))))
"""Sides of square images that are tried, the usual ones first."""
_LENGTHS = tuple(dict.fromkeys((128, 256, 64, 1024, 100, 1000, 3000, 16000, *range(1, 65))))
"""Lengths of signals that are tried, the usual ones first."""


def layout_of(images: Tensor) -> torch.memory_format:
    """Return the layout in which convolutions are fast, MobileNetV2 1.5 times: channels innermost, if any."""
    return torch.channels_last if images.ndim == 4 else torch.contiguous_format


def random_images(size: tuple[int, ...]) -> Tensor:
    """Return two images of random numbers in [0, 1), (2, *size), the same at every call: torch's own state stays."""
    return torch.rand(2, *size, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def example_for(model: nn.Module) -> Tensor | None:
    """Return two images of random numbers in [0, 1) that a network takes, or None if no usual size would do.

    Args:
        model: a network in evaluation mode; left as it was.
    """
    like = next((p for p in model.parameters() if p.is_floating_point()), torch.zeros(()))
    for size in _sizes(model):
        images = random_images(size).to(like)
        try:
            model(images.clone())
        except Exception:  # whatever a forward raises on images of another size
            continue
        return images
    return None


def _sizes(model: nn.Module) -> list[tuple[int, ...]]:
    """Return image sizes to try: that of its graph, or all that its first layer could read."""
    if size := getattr(model, "meta", {}).get(IMAGE):
        return [size]
    first = next((module for module in model.modules() if isinstance(module, nn.Conv1d | nn.Conv2d | nn.Linear)), None)
    if isinstance(first, nn.Linear):
        return [(first.in_features,), (4, first.in_features)]
    if isinstance(first, nn.Conv1d):
        return [(first.in_channels, length) for length in _LENGTHS]
    channels = dict.fromkeys([first.in_channels, 3, 1] if first else [3, 1])
    return [(channel, side, side) for channel in channels for side in _SIDES]
