"""Activations and maxima with an exact form in a program (he.nonlinear=exact)."""

from collections.abc import Callable
from typing import NamedTuple

from torch import nn

from privcirnet.errors import RuleError
from privcirnet.he.program import operations as op
from privcirnet.he.program.table import tabulated
from privcirnet.nn.pooling import pair
from privcirnet.passes.lower.layers import Shape


class Rounding(NamedTuple):
    """log2 of the steps around an activation: of its input's integers, to which they are rounded before, and after.

    Attributes:
        ends: limits to which they are clipped before, None if they are not.
    """

    given: int
    before: int
    after: int
    ends: tuple[int, int] | None = None

    @property
    def bits(self) -> int:
        """Bits that go before."""
        return self.before - self.given


def _relu6(name: str, rounding: Rounding) -> op.Operation:
    top = 6 * 2.0**-rounding.before
    if not top.is_integer():
        got, remedy = f"step 2^{rounding.before} at {name}", "calibrate the network again, with more bits"
        raise RuleError("a ReLU6 must clip at a whole number of steps", got=got, remedy=remedy)
    return op.ExactReLU(rounding.bits, most=int(top))


def _table(function: str, name: str, rounding: Rounding) -> op.Operation:
    if rounding.ends is None:
        remedy = "quantize the network again"
        raise RuleError("what a table takes must be quantized and clipped before", got=name, remedy=remedy)
    return tabulated(function, *(rounding.bits, rounding.before, rounding.after), *rounding.ends)


COMPARED: dict[str, Callable[[str, Rounding], op.Operation]] = {
    "relu": lambda name, rounding: op.ExactReLU(rounding.bits),
    "relu6": _relu6,
}
"""(module's name, steps) -> operation of a function without a table, by its name in :mod:`privcirnet.nn.modules`.

Its values have the step of its input.
"""


def exact_form(function: str, name: str, rounding: Rounding) -> op.Operation:
    """Return the operation of a function that runs exactly; ``name``: name of its module."""
    compared = COMPARED.get(function)
    return compared(name, rounding) if compared else _table(function, name, rounding)


def max_pool(module: nn.MaxPool2d, shape: Shape) -> op.MaxPool:
    """Return the operation of a max pool; ``shape``: shape (C, H, W) of its input."""
    kernel, stride, padding = map(pair, (module.kernel_size, module.stride, module.padding))
    rows, columns = (_windows(kernel[i], stride[i], padding[i], shape[1 + i], module.ceil_mode) for i in (0, 1))
    return op.MaxPool(kernel, stride, padding, (rows, columns))


def _windows(kernel: int, stride: int, padding: int, size: int, ceil_mode: bool) -> int:
    """Return how many windows torch takes along an axis: none begins behind the last value."""
    rest = size + 2 * padding - kernel
    count = (-(-rest // stride) if ceil_mode else rest // stride) + 1
    return count - (ceil_mode and (count - 1) * stride >= size + padding)
