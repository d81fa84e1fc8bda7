"""MiniONN's network for CIFAR-10, on which ENSEI measures precisions: seven convolutions and a linear layer.

32 x 32: conv 3x3, conv 3x3, pool -> 16 x 16: conv 3x3, conv 3x3, pool -> 8 x 8: conv 3x3, conv 1x1, conv 1x1 to 16 maps
-> linear 1024 to 10; 64 maps elsewhere, an activation after every convolution.

Source: Liu et al., Oblivious Neural Network Predictions via MiniONN Transformations (CCS 2017), Figure 13. ENSEI (CVPR
2020), Table 1 and section 6.6: its High-Square has squares for the second and fifth ReLU.
"""

from collections.abc import Sequence

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models.activation import activation as make_activation
from privcirnet.models.registry import register
from privcirnet.models.strides import downsampled

_KERNELS = (3, 3, 3, 3, 3, 1, 1)
_POOLED = (2, 4)
"""Convolutions, counted from 1, whose activations are averaged in windows of 2 x 2."""


class MinionnCifar(nn.Sequential):
    """Seven convolutions and a linear layer.

    Args:
        image_size: side of the image, a multiple of 4.
        width: maps of the convolutions but the last.
        activation: see `privcirnet.models.activation`.
        squares: activations, counted from 1, that are squares instead; [2, 5] is ENSEI's High-Square.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        image_size: int = 32,
        width: int = 64,
        activation: str = "relu",
        squares: Sequence[int] = (),
    ) -> None:
        super().__init__()
        count = len(_KERNELS)
        if not set(squares) <= set(range(1, count + 1)):
            rule = f"squares must be among the network's activations, 1 to {count}"
            raise RuleError(rule, got=list(squares), remedy="use [2,5]")
        for number, kernel in enumerate(_KERNELS, 1):
            channels = width if number < count else width // 4
            self.add_module(f"conv{number}", nn.Conv2d(in_chans, channels, kernel, padding=kernel // 2))
            name = "square" if number in squares else activation
            self.add_module(f"act{number}", make_activation(name, channels))
            if number in _POOLED:
                self.add_module(f"pool{number}", nn.AvgPool2d(2))
            in_chans = channels
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(in_chans * downsampled(image_size, 4) ** 2, num_classes)


minionn_cifar = register("minionn_cifar", MinionnCifar)
