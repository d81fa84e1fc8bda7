"""Bit planes: bit j of many values side by side, so that one word operation works on 64 values."""

import numpy as np

from privcirnet.compiled.jit import inline_late, jit
from privcirnet.he.ring.modular import Residues


@inline_late
def _transpose(block: Residues) -> None:
    """Transpose a square of 64 words of 64 bits, in place."""
    width, mask = 32, np.uint64(0x00000000FFFFFFFF)
    while width:
        by = np.uint64(width)
        for start in range(0, 64, 2 * width):
            for i in range(start, start + width):
                changed = ((block[i] >> by) ^ block[i + width]) & mask
                block[i] ^= changed << by
                block[i + width] ^= changed
        width >>= 1
        mask ^= mask << np.uint64(max(width, 1))


@jit
def planes_into(out: Residues, values: Residues) -> None:
    """Write the lowest bits of values as planes.

    Args:
        out: (bits, values / 64), at most 64 bits.
        values: (values,), a multiple of 64 of them.
    """
    block = np.empty(64, np.uint64)
    for w in range(out.shape[1]):
        for i in range(64):
            block[i] = values[64 * w + i]
        _transpose(block)
        for i in range(out.shape[0]):
            out[i, w] = block[i]


@jit
def values_into(out: Residues, planes: Residues) -> None:
    """Write the values whose bits are planes: (values,) of (bits, values / 64), at most 64 bits."""
    block = np.empty(64, np.uint64)
    for w in range(planes.shape[1]):
        for i in range(64):
            block[i] = planes[i, w] if i < planes.shape[0] else np.uint64(0)
        _transpose(block)
        for i in range(64):
            out[64 * w + i] = block[i]


@jit
def rows_into(out: Residues, columns: Residues) -> None:
    """Write the rows of a bit matrix that is given by 128 columns: (rows, 2) words of (128, rows / 64)."""
    block = np.empty(64, np.uint64)
    for w in range(columns.shape[1]):
        for half in range(2):
            for i in range(64):
                block[i] = columns[64 * half + i, w]
            _transpose(block)
            for i in range(64):
                out[64 * w + i, half] = block[i]
