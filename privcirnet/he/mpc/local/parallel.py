"""Passes over many values, shared out among threads: sums, differences, multiples and truncations of shares."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.threads import each, ranges

AT_ONCE = 1 << 14
"""Values of a share that a kernel takes at a time: a fraction of a millisecond. A multiple of 64."""


def compiled() -> ModuleType:
    """Return the kernels of passes, :mod:`mpc.kernels.residues`, which take a quarter of a second to load."""
    from privcirnet.he.mpc.kernels import residues

    return residues


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


def add(x: Residues, y: Residues, t: int) -> Residues:
    """Return x + y mod t.

    Args:
        x: residues of any shape.
        y: residues of the same shape.
        t: modulus under 2^61.
    """
    return elementwise(compiled().add, (x, y), np.uint64(t))


def subtract(x: Residues, y: Residues, t: int) -> Residues:
    """Return x - y mod t.

    Args:
        x: residues of any shape.
        y: residues of the same shape.
        t: modulus under 2^61.
    """
    return elementwise(compiled().subtract, (x, y), np.uint64(t))


def times(share: Residues, factor: int, t: int) -> Residues:
    """Return a share times an integer, mod t; ``share``: residues of any shape; ``t``: modulus under 2^61."""
    residue = np.array([factor % t], dtype=np.uint64)
    both = np.concatenate([residue, modular.constant_quotients(residue, t)])
    return elementwise(compiled().scale, (share,), both, np.uint64(t))


def truncate_server(share: Residues, bits: int) -> Residues:
    """Return the server's share of a truncated value: floor(share / 2^bits).

    Args:
        share: share of the server, residues of any shape.
        bits: f, under 64.
    """
    return elementwise(compiled().truncate_server, (share,), np.uint64(bits))


def truncate_client(share: Residues, bits: int, t: int) -> Residues:
    """Return the client's share of a truncated value: ceil((share - t) / 2^bits) = -floor((t - share) / 2^bits), mod t.

    Args:
        share: share of the client, residues of any shape.
        bits: f, under 64.
        t: modulus under 2^61.
    """
    return elementwise(compiled().truncate_client, (share,), np.uint64(bits), np.uint64(t))
