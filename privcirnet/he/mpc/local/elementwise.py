"""Sums, differences, multiples and truncations of shares: one pass over the values each, on all threads."""

import numpy as np

from privcirnet.he.mpc.local import parallel as passes
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


def add(x: Residues, y: Residues, t: int) -> Residues:
    """Return x + y mod t.

    Args:
        x: residues of any shape.
        y: residues of the same shape.
        t: modulus under 2^61.
    """
    return passes.elementwise(passes.compiled().add, (x, y), np.uint64(t))


def subtract(x: Residues, y: Residues, t: int) -> Residues:
    """Return x - y mod t.

    Args:
        x: residues of any shape.
        y: residues of the same shape.
        t: modulus under 2^61.
    """
    return passes.elementwise(passes.compiled().subtract, (x, y), np.uint64(t))


def times(share: Residues, factor: int, t: int) -> Residues:
    """Return a share times an integer, mod t; ``share``: residues of any shape; ``t``: modulus under 2^61."""
    residue = np.array([factor % t], dtype=np.uint64)
    both = np.concatenate([residue, modular.constant_quotients(residue, t)])
    return passes.elementwise(passes.compiled().scale, (share,), both, np.uint64(t))


def truncate_server(share: Residues, bits: int) -> Residues:
    """Return the server's share of a truncated value: floor(share / 2^bits).

    Args:
        share: share of the server, residues of any shape.
        bits: f, under 64.
    """
    return passes.elementwise(passes.compiled().truncate_server, (share,), np.uint64(bits))


def truncate_client(share: Residues, bits: int, t: int) -> Residues:
    """Return the client's share of a truncated value: ceil((share - t) / 2^bits) = -floor((t - share) / 2^bits), mod t.

    Args:
        share: share of the client, residues of any shape.
        bits: f, under 64.
        t: modulus under 2^61.
    """
    return passes.elementwise(passes.compiled().truncate_client, (share,), np.uint64(bits), np.uint64(t))
