"""Zeros around the map that a convolution reads, any number on each side.

A convolution of torch puts as many below as above. One with other numbers has ``padding_mode="constant"``, with which
its forward pads by four numbers, with zeros. Its weights stay as they are: those that a larger kernel would have there
are no parameters, so training never changes them.
"""

import copy
from typing import NamedTuple

from torch import nn


class Zeros(NamedTuple):
    """Rows and columns of zeros on each side of a map."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    def plus(self, other: "Zeros") -> "Zeros":
        """Return the zeros of two paddings, one inside the other."""
        return Zeros(*(ours + theirs for ours, theirs in zip(self, other, strict=True)))


def reach_of(conv: nn.Conv2d) -> tuple[int, int]:
    """Return how many rows and columns of a map a convolution's kernel covers, those between its weights included."""
    rows, columns = (d * (size - 1) + 1 for d, size in zip(conv.dilation, conv.kernel_size, strict=True))
    return rows, columns


def zeros_around(conv: nn.Conv2d) -> Zeros | None:
    """Return the zeros that a convolution pads with, None if it pads with other values.

    >>> zeros_around(nn.Conv2d(1, 1, (4, 3), padding="same"))
    Zeros(top=1, bottom=2, left=1, right=1)
    """
    if conv.padding_mode == "constant":
        left, right, top, bottom = conv._reversed_padding_repeated_twice
        return Zeros(top, bottom, left, right)
    if isinstance(conv.padding, str):
        rows, columns = (size - 1 if conv.padding == "same" else 0 for size in reach_of(conv))
        zeros = Zeros(rows // 2, rows - rows // 2, columns // 2, columns - columns // 2)
    else:
        zeros = Zeros(conv.padding[0], conv.padding[0], conv.padding[1], conv.padding[1])
    return zeros if conv.padding_mode == "zeros" or not any(zeros) else None


def with_zeros(conv: nn.Conv2d, zeros: Zeros) -> nn.Conv2d:
    """Return a convolution with the same parameters that pads with zeros.

    >>> import torch
    >>> conv = with_zeros(nn.Conv2d(1, 1, 3, stride=2), Zeros(bottom=1, right=1))
    >>> conv(torch.zeros(1, 1, 8, 8)).shape, zeros_around(conv)
    (torch.Size([1, 1, 4, 4]), Zeros(top=0, bottom=1, left=0, right=1))
    """
    padded, alike = copy.copy(conv), zeros.top == zeros.bottom and zeros.left == zeros.right
    padded.padding_mode = "zeros" if alike else "constant"
    padded.padding = (zeros.top, zeros.left) if alike else (0, 0)
    padded._reversed_padding_repeated_twice = [zeros.left, zeros.right, zeros.top, zeros.bottom]
    return padded
