"""Bit planes: bit j of many values side by side, so that one word operation works on 64 values; and what they index.

Entries of a public table are taken at places that are one in shares, and numbers mod m are made of keys.
"""

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word, barrett_lazy, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit

_SQUARE, _FOUR_SQUARES = np.uint64(0x00000000FFFFFFFF), np.uint64(0x00FF00FF00FF00FF)


@inline_late
def _transpose(block: Residues, mask: Word) -> None:
    """Transpose a square of 64 words, or four of 16 side by side, in place.

    Args:
        block: (64,) or (16,).
        mask: the lower half of each row of each square.
    """
    width = block.shape[0] // 2
    while width:
        by = np.uint64(width)
        for start in range(0, block.shape[0], 2 * width):
            for i in range(start, start + width):
                changed = ((block[i] >> by) ^ block[i + width]) & mask
                block[i] ^= changed << by
                block[i + width] ^= changed
        width >>= 1
        mask ^= mask << np.uint64(max(width, 1))


@inline_late
def _few_planes_into(out: Residues, values: Residues) -> None:
    """Do the same for at most 16 bits, in a third of the time."""
    block, low = np.empty(16, np.uint64), np.uint64(0xFFFF)
    for w in range(out.shape[1]):
        for i in range(16):
            a, b, c, d = values[64 * w + i], values[64 * w + 16 + i], values[64 * w + 32 + i], values[64 * w + 48 + i]
            ab = (a & low) | ((b & low) << np.uint64(16))
            block[i] = ab | ((c & low) << np.uint64(32)) | (d << np.uint64(48))
        _transpose(block, _FOUR_SQUARES)
        for i in range(out.shape[0]):
            out[i, w] = block[i]


@jit
def planes_into(out: Residues, values: Residues) -> None:
    """Write the lowest bits of values as planes.

    Args:
        out: (bits, values / 64), at most 64 bits.
        values: (values,), a multiple of 64 of them.
    """
    if out.shape[0] <= 16:
        _few_planes_into(out, values)
        return
    block = np.empty(64, np.uint64)
    for w in range(out.shape[1]):
        for i in range(64):
            block[i] = values[64 * w + i]
        _transpose(block, _SQUARE)
        for i in range(out.shape[0]):
            out[i, w] = block[i]


@jit
def values_into(out: Residues, planes: Residues) -> None:
    """Write the values whose bits are planes: (values,) of (bits, values / 64), at most 64 bits."""
    block = np.empty(64, np.uint64)
    for w in range(planes.shape[1]):
        for i in range(64):
            block[i] = planes[i, w] if i < planes.shape[0] else np.uint64(0)
        _transpose(block, _SQUARE)
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
            _transpose(block, _SQUARE)
            for i in range(64):
                out[64 * w + i, half] = block[i]


@jit
def entries_into(out: Residues, places: Residues, index: Residues, table: Residues) -> None:
    """Write shares of entries, (values,): bit j is the parity of a share of the places under those that have it.

    Args:
        places: shares of the place of each value's one, a power of two of words each, (values, words).
        index: public number of places that it goes on before, (values,).
        table: bit j of the entries of all places, (bits, words).
    """
    words = places.shape[1]
    moved = np.empty(words, np.uint64)
    for i in range(places.shape[0]):
        whole, by = int(index[i] >> np.uint64(6)), index[i] & np.uint64(63)
        for w in range(words):
            low, high = places[i, (w - whole) & (words - 1)], places[i, (w - whole - 1) & (words - 1)]
            moved[w] = (low << by) | ((high >> np.uint64(1)) >> (np.uint64(63) - by))
        entry = np.uint64(0)
        for j in range(table.shape[0]):
            parity = np.uint64(0)
            for w in range(words):
                parity ^= moved[w] & table[j, w]
            for half in (32, 16, 8, 4, 2, 1):
                parity ^= parity >> np.uint64(half)
            entry |= (parity & np.uint64(1)) << np.uint64(j)
        out[i] = entry


@jit
def residues_into(out: Residues, keys: Residues, m: Word, word: Residues, unit: Residues) -> None:
    """Write keys of 128 bits mod m, (values,) of (values, 2).

    Args:
        word: 2^64 mod m with its quotient.
        unit: 1 with its quotient.
    """
    for i in range(out.shape[0]):
        high = reduce_4p(mul_shoup_lazy(keys[i, 1], word[0], word[1], m), m)
        low = reduce_4p(barrett_lazy(keys[i, 0], unit[1], m), m)
        out[i] = sub_if_ge(high + low, m)
