"""Channels of several values, one after the other, as one module."""

import torch
from torch import Tensor, nn


class Concat(nn.Module):
    """Concatenation of maps (N, C_i, H, W), or of tokens and vectors with channels last.

    >>> Concat()(torch.zeros(1, 2, 3, 3), torch.ones(1, 4, 3, 3)).shape
    torch.Size([1, 6, 3, 3])
    """

    def forward(self, *parts: Tensor) -> Tensor:
        return torch.cat(parts, 1 if parts[0].ndim == 4 else -1)
