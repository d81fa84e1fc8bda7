"""The field of 2^128 elements in GHASH's order of bits: x^0 is the highest bit of the first byte.

None branches on or indexes by what it reads.
"""

import numpy as np

from privcirnet.he.ring.kernels.arithmetic import Word
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit

_ONE = np.uint64(1)


@inline_late
def _swapped(word: Word) -> Word:
    """Reverse the bytes of a word: x^0 becomes its highest bit."""
    swapped = np.uint64(0)
    for i in range(8):
        swapped |= ((word >> np.uint64(8 * i)) & np.uint64(255)) << np.uint64(56 - 8 * i)
    return swapped


@inline_late
def _shifted(high: Word, low: Word) -> tuple[Word, Word]:
    """Multiply by x, modulo x^128 + x^7 + x^2 + x + 1."""
    over = (np.uint64(0) - (low & _ONE)) & np.uint64(0xE100000000000000)
    return (high >> _ONE) ^ over, (low >> _ONE) | (high << np.uint64(63))


@inline_late
def _times(ah: Word, al: Word, bh: Word, bl: Word) -> tuple[Word, Word]:
    high = low = np.uint64(0)
    for word in (ah, al):
        for i in range(63, -1, -1):
            here = np.uint64(0) - ((word >> np.uint64(i)) & _ONE)
            high ^= bh & here
            low ^= bl & here
            bh, bl = _shifted(bh, bl)
    return high, low


@jit
def product(out: Residues, a: Residues, b: Residues) -> None:
    """Write a b, (2,) each."""
    high, low = _times(_swapped(a[0]), _swapped(a[1]), _swapped(b[0]), _swapped(b[1]))
    out[0], out[1] = _swapped(high), _swapped(low)


@jit
def combination(out: Residues, rows: Residues) -> None:
    """Write the sum of row i times x^i, (2,) of (rows, 2)."""
    high = low = np.uint64(0)
    for i in range(rows.shape[0] - 1, -1, -1):
        high, low = _shifted(high, low)
        high ^= _swapped(rows[i, 0])
        low ^= _swapped(rows[i, 1])
    out[0], out[1] = _swapped(high), _swapped(low)


@jit
def weights(out: Residues, h: Residues, sides: Residues) -> None:
    """Write the sum of GHASH's weights of one leaf of each tree, (2,).

    Args:
        h: GHASH's point.
        sides: 1 minus the path to each leaf, from the root: (trees, depth). Leaves follow each other in the message.
    """
    depth = sides.shape[1]
    powers = np.empty((depth + 1, 2), np.uint64)
    powers[0, 0], powers[0, 1] = _swapped(h[0]), _swapped(h[1])
    for j in range(depth):
        powers[j + 1, 0], powers[j + 1, 1] = _times(powers[j, 0], powers[j, 1], powers[j, 0], powers[j, 1])
    unit = _ONE << np.uint64(63)
    high = low = np.uint64(0)
    for tree in range(sides.shape[0]):
        high, low = _times(high, low, powers[depth, 0], powers[depth, 1])
        ph, pl = unit, np.uint64(0)
        for j in range(depth):
            mask = np.uint64(0) - sides[tree, depth - 1 - j]
            ph, pl = _times(ph, pl, unit ^ ((unit ^ powers[j, 0]) & mask), powers[j, 1] & mask)
        high ^= ph
        low ^= pl
    high, low = _times(high, low, powers[1, 0], powers[1, 1])
    out[0], out[1] = _swapped(high), _swapped(low)
