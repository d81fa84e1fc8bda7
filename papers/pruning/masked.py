"""A mask as a parametrization of a layer's weight: what is pruned stays zero while the rest is trained.

The layer keeps its base class and its `weight`, which is the stored weight times the mask. Masked entries have no
gradient. The mask is no part of the state dict: `privcirnet.nn.materialize.materialize_weights_` leaves the plain
weight with its zeros, which any dense network loads.
"""

import hashlib
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from privcirnet.data.dataset import ImageData
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import find_layer
from privcirnet.train.recalibration import recalibrate_
from privcirnet.train.stages import CompressionMethod


class Pruned(nn.Module):
    """Parametrization of a weight that is zero where a mask says so.

    Args:
        mask: Whether each entry stays, bool, of the weight's shape.

    >>> layer = nn.Linear(2, 1)
    >>> layer = parametrize.register_parametrization(layer, "weight", Pruned(torch.tensor([[True, False]])))
    >>> bool(layer.weight[0, 1] == 0)
    True
    """

    mask: Tensor

    def __init__(self, mask: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight with its zeros.

        Args:
            weight: Stored, of the mask's shape.
        """
        return weight * self.mask

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return what is stored of a weight.

        Args:
            weight: Of the mask's shape; what the mask leaves out is lost.
        """
        return weight * self.mask

    def extra_repr(self) -> str:
        """Return the share of entries that stay, as text."""
        return f"kept={self.mask.float().mean().item():.4f}"


def prune_(model: nn.Module, masks: Mapping[str, Tensor]) -> nn.Module:
    """Prune layers in place. Build the optimizer afterwards.

    Args:
        masks: Whether each entry of a weight stays, bool, by module name.

    Returns:
        `model` itself.

    Raises:
        RuleError: A name is not that of a plain linear or convolutional layer, or a mask has another shape.
    """
    layers = {name: find_layer(model, name) for name in masks}
    for name, layer in layers.items():
        if masks[name].shape != layer.weight.shape:
            got = f"{tuple(masks[name].shape)} for {tuple(layer.weight.shape)} at {name!r}"
            raise RuleError("a mask must have the shape of its weight", got=got, remedy="prune this network anew")
    for name, layer in layers.items():
        layer.weight.grad = None
        mask = masks[name].to(device=layer.weight.device, dtype=torch.bool)
        parametrize.register_parametrization(layer, "weight", Pruned(mask))
    return model


def start_of(masks: Mapping[str, Tensor]) -> CompressionMethod:
    """Return how fine-tuning begins with a pruned network: its statistics are measured anew.

    Args:
        masks: Whether each weight stays, bool, by module name.
    """

    def prune(model: nn.Module, data: ImageData) -> None:
        recalibrate_(prune_(model, masks), data)

    return CompressionMethod(prune, {"masks": hashlib.sha256(mask_bytes(masks)).hexdigest()[:16]})


def mask_bytes(masks: Mapping[str, Tensor]) -> bytes:
    """Return masks with their names as bytes for a digest, in the order given.

    Args:
        masks: Bool, by name.
    """
    return b"".join(name.encode() + np.packbits(mask.cpu().numpy()).tobytes() for name, mask in masks.items())
