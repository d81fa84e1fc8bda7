"""Windows of convolutions and pools: zeros around a map, any number on each side, and average pooling in integers.

A convolution of torch puts as many zeros below as above. One with other numbers has ``padding_mode="constant"``, with
which its forward pads by four numbers, with zeros. Its weights stay as they are: those that a larger kernel would have
there are no parameters, so training never changes them.

An average pool in integers is a sum whose divisor is a power of two, which only moves the step. A window whose area is
none, such as 7 x 7 before MobileNetV2's classifier, is divided by the nearest one, and the layers behind take the rest:
W (sum / 49) = (64 / 49 W) (sum / 64). That is exact, and a circulant W stays circulant.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from privcirnet.errors import RuleError


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
    padded, alike = object.__new__(type(conv)), zeros.top == zeros.bottom and zeros.left == zeros.right
    mode = "zeros" if alike else "constant"
    vars(padded).update(vars(conv), padding_mode=mode)  # copy.copy refuses circulant weights
    padded.padding = (zeros.top, zeros.left) if alike else (0, 0)
    padded._reversed_padding_repeated_twice = [zeros.left, zeros.right, zeros.top, zeros.bottom]
    return padded


def surrounded(conv: nn.Conv1d | nn.Conv2d, x: Tensor) -> Tensor:
    """Return maps or signals with what a convolution pads them with.

    >>> import torch
    >>> surrounded(nn.Conv1d(1, 1, 4, padding="same"), torch.ones(1, 1, 2))
    tensor([[[0., 1., 1., 0., 0.]]])
    """
    zeros, sizes = conv.padding_mode == "zeros", conv.padding
    sides = [] if isinstance(sizes, str) else [size for size in reversed(sizes) for _ in range(2)]
    around = sides if zeros and sides else conv._reversed_padding_repeated_twice
    return nn.functional.pad(x, around, "constant" if zeros else conv.padding_mode)


def pool_window(pool: nn.AvgPool2d, name: str) -> tuple[tuple[int, int], int]:
    """Return the rows and columns of a pooling window, and log2 of the divisor of its sum."""
    divisor = divisor_of(pool)
    if divisor is None or divisor & (divisor - 1):
        raise RuleError(
            "average pooling must have windows side by side whose area is a power of two, or only linear layers behind",
            got=f"{name}: {pool}",
            remedy="use a kernel of 2, 4 or 8 with the same stride"
            + (", or polynomial_, which makes a convolution of other averages" if divisor is None else ""),
        )
    return pair(pool.kernel_size), divisor.bit_length() - 1


def divisor_of(pool: nn.AvgPool2d | nn.MaxPool2d) -> int | None:
    """Return the divisor of the average of each window; None unless windows are side by side and not padded."""
    window, dilation = pair(pool.kernel_size), pair(getattr(pool, "dilation", 1))
    if pair(pool.stride) != window or pair(pool.padding) != (0, 0) or dilation != (1, 1) or pool.ceil_mode:
        return None
    return getattr(pool, "divisor_override", None) or math.prod(window)


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """Return rows and columns, which torch takes as one number where they are equal.

    >>> pair(3), pair((2, 3)), pair([4])
    ((3, 3), (2, 3), (4, 4))
    """
    return (value, value) if isinstance(value, int) else (value[0], value[-1])


def average_of(window: Sequence[int]) -> nn.AvgPool2d:
    """Return the average over windows side by side.

    >>> average_of((4, 4)).kernel_size, average_of((5, 3)).kernel_size
    (4, (5, 3))
    """
    rows, columns = window
    return nn.AvgPool2d(rows if rows == columns else (rows, columns))


def power_beside(divisor: int) -> int:
    """Return the power of two nearest to a divisor, by ratio.

    Args:
        divisor: positive.

    >>> power_beside(49), power_beside(9), power_beside(16)
    (64, 8, 16)
    """
    return 1 << round(math.log2(divisor))
