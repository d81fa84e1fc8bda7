"""Passes over many values, shared out among threads."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.threads import each, ranges

AT_ONCE = 1 << 14
"""Values of a share that a kernel takes at a time: a fraction of a millisecond. A multiple of 64."""


def compiled() -> ModuleType:
    """Return the kernels of passes, :mod:`mpc.local.kernels.elementwise`, which take a quarter of a second to load."""
    from privcirnet.he.mpc.local.kernels import elementwise

    return elementwise


@lru_cache(maxsize=64)
def modulus(t: int) -> Any:
    """Return a modulus's constants for kernels, :class:`ring.kernels.inner_products.Moduli` of it alone.

    Args:
        t: under 2^61.
    """
    from privcirnet.he.ring.kernels.inner_products import moduli

    return moduli([t])


def in_parts(work: Callable[[int, int], object], count: int, step: int = 1) -> None:
    """Call a function for ranges of values that cover all of them, on all threads unless there are few.

    Args:
        work: function of (first, end).
        step: each range begins at a multiple of it.
    """
    if count <= AT_ONCE:  # waking another thread would take as long
        if count:
            work(0, count)
        return
    steps = -(-count // step)
    each(lambda part: work(part.start * step, min(part.stop * step, count)), ranges(steps, max(1, AT_ONCE // step)))


def elementwise(kernel: Callable[..., None], shares: Sequence[Residues], *constants: object) -> Residues:
    """Return a kernel's results on shares, value by value: residues of that shape.

    Args:
        kernel: writes its first argument, from the shares and the constants.
        shares: all of one shape.
    """
    residues = np.empty(shares[0].shape, dtype=np.uint64)
    flat = [np.ascontiguousarray(share).reshape(-1) for share in (residues, *shares)]
    if any(share.size != residues.size for share in flat):
        raise ValueError(f"shares must have one shape: got {[share.shape for share in shares]}")
    in_parts(lambda first, end: kernel(*(share[first:end] for share in flat), *constants), residues.size)
    return residues
