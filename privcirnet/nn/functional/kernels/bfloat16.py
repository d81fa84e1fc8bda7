"""Numbers of an array as float32 in a kernel, and back; ``uint16`` stands for bfloat16, which numpy does not have."""

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportCallIssue=false, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownArgumentType=false

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, overload


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
