"""Compilation of kernels, at their first call and kept on disk.

Every kernel is a plain Python function over numpy arrays and scalars. Those of residues work on ``uint64``; sizes and
positions are Python integers. The two must not meet in arithmetic: Numba, like numpy 1, makes a float of their sum.
Kernels let go of Python's lock, so threads work side by side.

Machine code is kept where Numba keeps it: in ``NUMBA_CACHE_DIR``, beside the sources, or in the user's cache folder.
Numba looks only at the file that a kernel stands in, but kernels have those of other files compiled into them. So the
names of the kept files tell what all kernels were compiled from.
"""

# Numba has no type stubs.
# pyright: reportMissingTypeStubs=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportPrivateImportUsage=false, reportAttributeAccessIssue=false

import hashlib
import logging
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache
from numba.core.registry import cpu_target

P = ParamSpec("P")
R = TypeVar("R")
_log = logging.getLogger(__name__)


def jit(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled at its first call; the machine code is kept on disk."""
    return _kept(numba.njit(nogil=True, error_model="numpy")(function))


def jit_of_floats(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function compiled as by :func:`jit`, but for the order and the rounding of sums.

    A product and a sum may become one operation, and sums may be taken in another order.
    """
    return _kept(numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "reassoc"})(function))


def inline(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled into the kernels that call it."""
    return numba.njit(inline="always", error_model="numpy")(function)


def inline_late(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that is compiled once and then put into the kernels that call it.

    Kernels that call it a hundred times compile in a second instead of fifteen. Loops around it may come out slower
    than with :func:`inline`: transforms took twice as long, hashing did not change.
    """
    return numba.njit(forceinline=True, error_model="numpy")(function)


@cache
def features() -> frozenset[str]:
    """Return the features of the processor that kernels are compiled for, by LLVM's names.

    They are part of what Numba finds machine code on disk by: another host compiles its own.
    """
    _, _, signed = cast(tuple[str, str, str], cpu_target.target_context.codegen().magic_tuple())
    return frozenset(name[1:] for name in signed.split(",") if name.startswith("+"))


def source_files() -> list[Path]:
    """Return the files that hold kernels which others are made of: this one and those of every folder ``kernels``."""
    return [Path(__file__), *sorted(Path(__file__).parents[2].glob("**/kernels/*.py"))]


@cache
def _sources() -> str:
    digest = hashlib.sha256()
    for path in source_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class _Names(CompileResultCacheImpl):
    def get_filename_base(self, fullname: str, abiflags: str) -> str:
        checked = "-checked" if numba.config.BOUNDSCHECK else ""
        return f"{super().get_filename_base(fullname, abiflags)}-{_sources()}{checked}"


class _Kept(FunctionCache):
    """Machine code of a kernel on disk; where that fails, it stays in memory."""

    _impl_class = _Names

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        with self._else_in_memory():
            if loaded := super().load_overload(sig, target_context):
                return loaded
        _say_that_it_takes_minutes()  # the kernel is compiled now
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        with self._else_in_memory():
            super().save_overload(sig, data)
            kernel = self._impl.filename_base.split("-")[0]
            for path in Path(cast(str, self.cache_path)).glob(f"{kernel}-*.nb[ic]"):
                if _sources() not in path.name:
                    path.unlink(missing_ok=True)

    @contextmanager
    def _else_in_memory(self) -> Generator[None]:
        try:
            yield
        except Exception as error:  # a full disk, or whatever reading half a file raises
            self.disable()
            _say_why(f"{self.cache_path} cannot be used ({type(error).__name__}: {error})", "empty it, or set")


def _kept(kernel: Any) -> Any:
    if numba.config.DISABLE_JIT:
        return kernel
    try:
        kernel._cache = _Kept(kernel.py_func)  # as its enable_caching does with Numba's own
    except RuntimeError:  # Numba found no folder
        _say_why("no folder can be written", "set")
    return kernel


@cache
def _say_that_it_takes_minutes() -> None:
    _log.warning("compiling kernels, once for this copy of privcirnet: up to four minutes in all")


@cache
def _say_why(problem: str, remedy: str) -> None:
    lost = "machine code of kernels is not kept, and each process compiles them anew"
    warnings.warn(f"{lost}: {problem}; {remedy} NUMBA_CACHE_DIR to a folder that can be written", stacklevel=2)
