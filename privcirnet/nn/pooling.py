"""Average pooling in integers: a sum whose divisor is a power of two, which only moves the step.

A window whose area is not a power of two, such as 7 x 7 before MobileNetV2's classifier, is divided by the nearest one,
and the layers behind take the rest: W (sum / 49) = (64 / 49 W) (sum / 64). That is exact, and a circulant W stays
circulant.
"""

import math
from collections.abc import Sequence

from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of
from privcirnet.nn.moves import Rearrange, SliceChannels, Take


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


def layers_behind(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node] | None:
    """Return the linear layers and convolutions that read a node, moved or not; None if others read it."""
    layers: list[fx.Node] = []
    for user in node.users:
        match module_of(graph, user):
            case nn.Linear() | nn.Conv2d():
                layers.append(user)
            case nn.Flatten() | nn.Identity() | _DropoutNd() | Rearrange() | Take() | SliceChannels():
                further = layers_behind(graph, user)
                if further is None:
                    return None
                layers += further
            case _:
                return None
    return layers
