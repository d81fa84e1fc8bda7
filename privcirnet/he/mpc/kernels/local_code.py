"""A sparse public code over rows of 128 bits."""

import numpy as np
from numpy import typing as npt

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit

LOCALITY = 10
"""Rows of the seed in each row of the code."""


@jit
def encode(rows: Residues, seed: Residues, places: npt.NDArray[np.uint32]) -> None:
    """Add ten rows of a seed to each row, (rows, 2).

    Args:
        rows: changed.
        seed: (a power of two, 2).
        places: random and public, (10 rows,); their lowest bits count.
    """
    mask = np.uint64(seed.shape[0] - 1)
    for i in range(rows.shape[0]):
        a, b = rows[i, 0], rows[i, 1]
        for j in range(LOCALITY):
            place = np.uint64(places[LOCALITY * i + j]) & mask
            a ^= seed[place, 0]
            b ^= seed[place, 1]
        rows[i, 0], rows[i, 1] = a, b


@jit
def lowest_bits(out: Residues, rows: Residues) -> None:
    """Write the lowest bit of each row, 64 to a word: (rows / 64,) of (rows, 2)."""
    for w in range(out.shape[0]):
        word = np.uint64(0)
        for i in range(64):
            word |= (rows[64 * w + i, 0] & np.uint64(1)) << np.uint64(i)
        out[w] = word
