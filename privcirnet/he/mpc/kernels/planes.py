"""Bit planes: bit j of many values side by side, so that one word operation works on 64 values; and what they index.

Entries of a public table are taken at places that are one in shares, and numbers mod m are made of keys.
"""

from typing import NamedTuple

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import (
    Word,
    barrett_lazy,
    mul_shoup_lazy,
    reduce_4p,
    sub_if_ge,
    with_quotient,
)
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit

_LOWER_HALVES = tuple(np.uint64((2**64 - 1) // (2**width + 1)) for width in (32, 16, 8, 4, 2, 1))
"""Words whose bits are ones and zeros by turns, so many each."""
_SQUARE, _FOUR_SQUARES = 0, 2
"""Steps at which the transposition of 64 words begins, and that of 16."""


@inline_late
def _transpose(block: Residues, first: int) -> None:
    """Transpose a square of 64 words, or four of 16 side by side, in place.

    Args:
        block: (64,) or (16,).
        first: a constant, so that the loops are unrolled.
    """
    for step in range(first, 6):
        width, mask = 32 >> step, _LOWER_HALVES[step]
        for start in range(0, block.shape[0], 2 * width):
            for i in range(start, start + width):
                changed = ((block[i] >> np.uint64(width)) ^ block[i + width]) & mask
                block[i] ^= changed << np.uint64(width)
                block[i + width] ^= changed


@inline_late
def _write_few_planes(out: Residues, word: int, values: Residues) -> None:
    """Do as :func:`write_planes` for at most 16 bits, in a third of the time."""
    block, low = np.empty(16, np.uint64), np.uint64(0xFFFF)
    for w in range(values.shape[0] // 64):
        for i in range(16):
            a, b, c, d = values[64 * w + i], values[64 * w + 16 + i], values[64 * w + 32 + i], values[64 * w + 48 + i]
            ab = (a & low) | ((b & low) << np.uint64(16))
            block[i] = ab | ((c & low) << np.uint64(32)) | (d << np.uint64(48))
        _transpose(block, _FOUR_SQUARES)
        for i in range(out.shape[0]):
            out[i, word + w] = block[i]


@inline_late
def write_planes(out: Residues, word: int, values: Residues) -> None:
    """Write the lowest bits of values as planes.

    Args:
        out: (bits, words), at most 64 bits.
        word: place of the first values.
        values: (values,), a multiple of 64 of them.
    """
    if out.shape[0] <= 16:
        _write_few_planes(out, word, values)
        return
    block = np.empty(64, np.uint64)
    for w in range(values.shape[0] // 64):
        for i in range(64):
            block[i] = values[64 * w + i]
        _transpose(block, _SQUARE)
        for i in range(out.shape[0]):
            out[i, word + w] = block[i]


@jit
def planes_into(out: Residues, values: Residues) -> None:
    """Write the lowest bits of values as planes: (bits, values / 64), at most 64 bits, of (values,)."""
    write_planes(out, 0, values)


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


class Modulus(NamedTuple):
    """A modulus under 2^62, with what a reduction takes.

    Attributes:
        word: 2^64 mod m with its quotient.
        unit: 1 with its quotient.
    """

    m: Word
    word: Residues
    unit: Residues

    @classmethod
    def of(cls, m: int) -> "Modulus":
        """Return a modulus."""
        return cls(np.uint64(m), with_quotient((1 << 64) % m, m), with_quotient(1, m))


@inline_late
def residue(low: Word, high: Word, modulus: Modulus) -> Word:
    """Return a key of 128 bits mod m."""
    m, word, unit = modulus
    upper = reduce_4p(mul_shoup_lazy(high, word[0], word[1], m), m)
    return sub_if_ge(upper + reduce_4p(barrett_lazy(low, unit[1], m), m), m)


@jit
def residues_into(out: Residues, keys: Residues, modulus: Modulus) -> None:
    """Write keys of 128 bits mod m, (values,) of (values, 2)."""
    for i in range(out.shape[0]):
        out[i] = residue(keys[i, 0], keys[i, 1], modulus)
