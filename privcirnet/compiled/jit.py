"""Compilation of kernels, at their first call and kept on disk.

Every kernel is a plain Python function over numpy arrays and scalars. Those of residues work on ``uint64``; sizes and
positions are Python integers. The two must not meet in arithmetic: Numba, like numpy 1, makes a float of their sum.
Kernels let go of Python's lock, so threads work side by side.
"""

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def forget_stale(folder: Path, *others: Path) -> None:
    """Remove machine code that was compiled before any source of a folder changed, or this file.

    Numba looks only at the file that a kernel stands in, but kernels have those of other files compiled into them. Each
    folder of kernels calls this before they are loaded.

    Args:
        folder: of kernels; their machine code is in its ``__pycache__``.
        others: folders whose kernels are compiled into those of this one.
    """
    sources, kept = hashlib.sha256(), folder / "__pycache__" / "sources.sha256"
    with suppress(OSError):  # of an installation that cannot be written to, whose sources do not change either
        for path in [Path(__file__), *(path for part in (folder, *others) for path in sorted(part.glob("*.py")))]:
            sources.update(path.read_bytes())
        if not kept.exists() or kept.read_text() != sources.hexdigest():
            for path in [*kept.parent.glob("*.nbi"), *kept.parent.glob("*.nbc")]:
                path.unlink(missing_ok=True)
            kept.parent.mkdir(exist_ok=True)
            kept.write_text(sources.hexdigest())


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled at its first call; the machine code is kept on disk.

    Args:
        function: a kernel.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy")(function)


def jit_of_floats(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function compiled as by :func:`jit`, but for the order and the rounding of sums.

    A product and a sum may become one operation, and sums may be taken in another order.

    Args:
        function: a kernel of floating-point numbers.
    """
    return numba.njit(nogil=True, cache=True, error_model="numpy", fastmath={"contract", "reassoc"})(function)


def inline(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled into the kernels that call it.

    Args:
        function: a part of a kernel.
    """
    return numba.njit(inline="always", error_model="numpy")(function)


def inline_late(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled once and then put into the kernels that call it.

    Kernels that call it a hundred times compile in a second instead of fifteen. Loops around it may come out slower
    than with :func:`inline`: transforms took twice as long, hashing did not change.

    Args:
        function: a part of a kernel.
    """
    return numba.njit(forceinline=True, error_model="numpy")(function)
