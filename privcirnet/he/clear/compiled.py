"""Whether there are compiled kernels, and how a pass over many values is shared out among threads."""

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import Any, cast

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.threads import each, ranges

AT_ONCE = 1 << 14
"""Values of a share that a kernel takes at a time: a fraction of a millisecond. A multiple of 64."""


def installed() -> bool:
    """Return whether Numba is installed, without loading it; not inside :func:`by_numpy`."""
    return _found() and not _setting.by_numpy


@contextmanager
def by_numpy() -> Generator[None]:
    """Work as where Numba is not installed inside a ``with`` block, in all threads: for comparisons.

    Yields:
        nothing.
    """
    before, _setting.by_numpy = _setting.by_numpy, True
    try:
        yield
    finally:
        _setting.by_numpy = before


@dataclass
class _Setting:
    by_numpy: bool = False


_setting = _Setting()


@cache
def _found() -> bool:
    return find_spec("numba") is not None


@cache
def multiplies_words() -> bool:
    """Return whether vector units multiply 64-bit words; without, two limbs of them are faster."""
    from llvmlite import binding  # pyright: ignore[reportMissingTypeStubs]

    found = cast(dict[str, bool], cast(Any, binding).get_host_cpu_features())
    return found.get("avx512dq", False)


@lru_cache(maxsize=64)
def modulus(t: int) -> Any:
    """Return what kernels need to know of a modulus, :class:`engines.kernels.inner_products.Moduli` of it alone.

    Args:
        t: under 2^61.
    """
    from privcirnet.he.engines.kernels.inner_products import moduli

    return moduli([t])


def in_parts(work: Callable[[int, int], object], count: int, step: int = 1) -> None:
    """Call a function for ranges of values that cover all of them, on all threads unless there are few.

    Args:
        work: of (first, end).
        count: of values.
        step: each range begins at a multiple of it.
    """
    if count <= AT_ONCE:  # waking another thread would take as long
        if count:
            work(0, count)
        return
    steps = -(-count // step)
    each(lambda part: work(part.start * step, min(part.stop * step, count)), ranges(steps, max(1, AT_ONCE // step)))


def elementwise(kernel: Callable[..., None], shares: Sequence[Residues], *constants: object) -> Residues:
    """Return what a kernel makes of shares, value by value.

    Args:
        kernel: writes its first argument, from the shares and the constants.
        shares: all of one shape.
        constants: for the kernel.

    Returns:
        residues of that shape.
    """
    found = np.empty(shares[0].shape, dtype=np.uint64)
    flat = [np.ascontiguousarray(share).reshape(-1) for share in (found, *shares)]
    assert all(share.size == found.size for share in flat)
    in_parts(lambda first, end: kernel(*(share[first:end] for share in flat), *constants), found.size)
    return found
