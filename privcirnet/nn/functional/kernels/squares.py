"""The passes of AESPA over its values: sums of powers, squares, and the gradients of both.

All arrays of values are (M, C), C channels innermost: float32, or bfloat16 as uint16. Each kernel works on the rows
from ``first`` to ``last``, so that threads share the rows. Sums are taken in float32 over 128 rows and in float64 over
these.
"""

from typing import Any, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload
from numpy.typing import NDArray

from privcirnet.he.system.jit import jit_of_floats

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportCallIssue=false, reportUnknownParameterType=false, reportMissingParameterType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false


def load(x: Any) -> Any:
    """Return a stored number; in kernels only; ``x``: float32, or the bits of a bfloat16 as uint16."""
    raise NotImplementedError


def stored(value: Any, like: Any) -> Any:
    """Return a float32 number as it is stored, rounded to the nearest (ties to even); in kernels only.

    A NaN whose low bits alone are set may become infinite; torch makes no such NaNs.

    Args:
        value: float32.
    """
    raise NotImplementedError


@overload(load, inline="always")
def _load(x):
    if x == types.uint16:
        return lambda x: _as_float(np.uint32(x) << np.uint32(16))
    return lambda x: x


@overload(stored, inline="always")
def _stored(value, like):
    if like != types.uint16:
        return lambda value, like: value

    def rounded(value, like):
        bits = _as_bits(value)
        odd = (bits >> np.uint32(16)) & np.uint32(1)
        return np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))

    return rounded


@intrinsic
def _as_float(typing, bits):
    return types.float32(types.uint32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.FloatType()
    )


@intrinsic
def _as_bits(typing, value):
    return types.uint32(types.float32), lambda context, builder, signature, arguments: builder.bitcast(
        arguments[0], ir.IntType(32)
    )


Values: TypeAlias = NDArray[np.float32] | NDArray[np.uint16]
Channels: TypeAlias = NDArray[np.float32]
_ROWS = 128


@jit_of_floats
def add_powers(x: Values, sums: NDArray[np.float64], first: int, last: int) -> None:
    """Add the sums of x, x^2 and x^4 over rows.

    Args:
        x: (M, C).
        sums: (3, C), changed in place.
        last: row behind the last one.
    """
    channels = x.shape[1]
    partial = np.zeros((3, channels), np.float32)
    for start in range(first, last, _ROWS):
        partial[:] = 0
        for row in range(start, min(start + _ROWS, last)):
            for c in range(channels):
                value = load(x[row, c])
                square = value * value
                partial[0, c] += value
                partial[1, c] += square
                partial[2, c] += square * square
        sums += partial


@jit_of_floats
def square(x: Values, scale: Channels, shift: Channels, out: Values, first: int, last: int) -> None:
    """Write (scale x + shift)^2.

    Args:
        x: (M, C).
        scale: (C,).
        shift: (C,).
        out: (M, C), changed in place.
        last: row behind the last one.
    """
    for row in range(first, last):
        for c in range(x.shape[1]):
            root = load(x[row, c]) * scale[c] + shift[c]
            out[row, c] = stored(root * root, out[row, c])


@jit_of_floats
def add_square_gradients(  # noqa: PLR0913, PLR0917
    x: Values,
    gradient: Values,
    scale: Channels,
    shift: Channels,
    sums: NDArray[np.float64],
    first: int,
    last: int,
) -> None:
    """Add the gradients of :func:`square` for scale and shift.

    Args:
        x: (M, C).
        gradient: gradient of the squares, (M, C).
        scale: (C,).
        shift: (C,).
        sums: gradients of scale and shift, (2, C), changed in place.
        last: row behind the last one.
    """
    channels = x.shape[1]
    partial = np.zeros((2, channels), np.float32)
    for start in range(first, last, _ROWS):
        partial[:] = 0
        for row in range(start, min(start + _ROWS, last)):
            for c in range(channels):
                value = load(x[row, c])
                inner = np.float32(2) * load(gradient[row, c]) * (value * scale[c] + shift[c])
                partial[0, c] += inner * value
                partial[1, c] += inner
        sums += partial


@jit_of_floats
def square_gradient(  # noqa: PLR0913, PLR0917
    x: Values,
    gradient: Values,
    scale: Channels,
    shift: Channels,
    of_sums: Channels,
    out: Values,
    first: int,
    last: int,
) -> None:
    """Write the gradient of x through :func:`square` and, where ``of_sums`` is not zero, :func:`add_powers`.

    Args:
        x: (M, C).
        gradient: gradient of the squares, (M, C).
        scale: (C,).
        shift: (C,).
        of_sums: gradient of the sums of powers, (3, C).
        out: (M, C), changed in place.
        last: row behind the last one.
    """
    for row in range(first, last):
        for c in range(x.shape[1]):
            value = load(x[row, c])
            inner = np.float32(2) * load(gradient[row, c]) * (value * scale[c] + shift[c]) * scale[c]
            powers = np.float32(2) * of_sums[1, c] + np.float32(4) * of_sums[2, c] * (value * value)
            out[row, c] = stored(inner + of_sums[0, c] + value * powers, out[row, c])
