"""Average pooling in integers: a sum whose divisor is a power of two, which only moves the step.

A window whose area is not a power of two, such as 7 x 7 before MobileNetV2's classifier, is divided by the nearest one,
and the layers behind take the rest: W (sum / 49) = (64 / 49 W) (sum / 64). That is exact, and a circulant W stays
circulant.
"""

import math

from torch import fx, nn
from torch.nn.modules.dropout import _DropoutNd

from privcirnet.errors import RuleError
from privcirnet.nn.graph import module_of


def pool_window(pool: nn.AvgPool2d, name: str) -> tuple[int, int]:
    """Return the side of a pooling window, and log2 of the divisor of its sum."""
    side, divisor = pool.kernel_size, divisor_of(pool)
    if not isinstance(side, int) or divisor is None or divisor & (divisor - 1):
        raise RuleError(
            "average pooling must have square windows side by side whose area is a power of two, or only linear layers "
            "behind",
            got=f"{name}: {pool}",
            remedy="use a kernel of 2, 4 or 8 with the same stride",
        )
    return side, divisor.bit_length() - 1


def divisor_of(pool: nn.AvgPool2d) -> int | None:
    """Return the divisor of each window's sum; None unless windows are square, side by side and not padded."""
    side = pool.kernel_size
    if not isinstance(side, int) or pool.stride != side or pool.padding != 0 or pool.ceil_mode:
        return None
    return pool.divisor_override or side**2


def power_beside(divisor: int) -> int:
    """Return the power of two nearest to a divisor, by ratio.

    Args:
        divisor: positive.

    >>> power_beside(49), power_beside(9), power_beside(16)
    (64, 8, 16)
    """
    return 1 << round(math.log2(divisor))


def layers_behind(graph: fx.GraphModule, node: fx.Node) -> list[fx.Node] | None:
    """Return the linear layers and convolutions that read a node, flattened or not; None if others read it."""
    found: list[fx.Node] = []
    for user in node.users:
        match module_of(graph, user):
            case nn.Linear() | nn.Conv2d():
                found.append(user)
            case nn.Flatten() | nn.Identity() | _DropoutNd():
                further = layers_behind(graph, user)
                if further is None:
                    return None
                found += further
            case _:
                return None
    return found
