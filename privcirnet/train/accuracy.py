"""Predictions of a network on images, and their accuracy."""

import torch
from torch import Tensor, nn

from privcirnet import distributed
from privcirnet.data.dataset import TEST_BATCH, Examples, ImageData
from privcirnet.nn.example import layout_of
from privcirnet.nn.graph import evaluating


@torch.no_grad()
def predict(model: nn.Module, data: ImageData, images: Tensor) -> Tensor:
    """Return logits in evaluation mode, on the CPU: (N, classes).

    Args:
        model: network on any device; left in the mode it was in.
        images: uint8 (N, C, H, W).
    """
    device = next(model.parameters()).device
    with evaluating(model):
        parts = (data.real(part).to(device, memory_format=layout_of(part)) for part in images.split(TEST_BATCH))
        return torch.cat([model(part).cpu() for part in parts])


@torch.no_grad()
def accuracy(model: nn.Module, data: Examples) -> float:
    """Return top-1 accuracy on the held-out images, percent.

    Under torchrun each process predicts its share of each batch, and all must call it.

    Args:
        model: network on any device; left in the mode it was in.
    """
    device = next(model.parameters()).device
    hits, count = torch.zeros((), dtype=torch.int64, device=device), 0
    with evaluating(model):
        for images, labels in data.tests():
            local = distributed.share(images).to(device, memory_format=layout_of(images))
            if len(local):
                hits += (model(local).argmax(dim=1) == distributed.share(labels).to(device)).sum()
            count += len(labels)
    return 100.0 * distributed.total(hits).item() / count
