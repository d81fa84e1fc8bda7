"""A scale and a shift that are not trained, as of ``x / 3`` or ``x + 1``, folded into the layers beside them."""

from torch import Tensor, nn


class Affine(nn.Module):
    """Two numbers for all values: scale x + shift.

    Args:
        scale: factor; not 0.

    >>> import torch
    >>> Affine(0.5, 1.0)(torch.tensor([2.0, -2.0]))
    tensor([2., 0.])
    """

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.shift

    def extra_repr(self) -> str:
        return f"{self.scale:g}, {self.shift:g}"
