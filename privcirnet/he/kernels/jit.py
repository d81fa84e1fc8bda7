"""Compilation of the kernels. The only file that imports Numba.

Every kernel is a plain Python function over numpy arrays of ``uint64`` residues and scalars of ``numpy.uint64``; sizes
and positions are Python integers. The two must not meet in arithmetic: Numba, like numpy 1, makes a float of their sum.
Kernels let go of Python's lock, so threads work side by side, and are compiled once per machine (kept on disk).
"""

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Compile at the first call; the machine code is kept on disk."""
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def inline(function: Callable[P, R]) -> Callable[P, R]:
    """Compile into the kernels that call it."""
    return numba.njit(inline="always", error_model="numpy")(function)
