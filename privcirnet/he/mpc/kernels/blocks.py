"""Passes over blocks of 128 bits, two words each: around AES, over levels of trees, in a field, and of a sparse code.

None branches on or indexes by what it reads, but for the code's places, which are public. The field is that of 2^128
elements in GHASH's order of bits: x^0 is the highest bit of the first byte.
"""

import numpy as np
from numpy import typing as npt

from privcirnet.he.ring.kernels.arithmetic import Word
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit


@jit
def tweaked(out: Residues, rows: Residues, first: int) -> None:
    """Write row i with i added, counting from ``first``: (rows, 2)."""
    for i in range(rows.shape[0]):
        out[i, 0] = rows[i, 0] ^ np.uint64(first + i)
        out[i, 1] = rows[i, 1]


@jit
def add(out: Residues, addend: Residues) -> None:
    """Add (rows, 2) to (rows, 2), bit by bit."""
    for i in range(out.shape[0]):
        out[i, 0] ^= addend[i, 0]
        out[i, 1] ^= addend[i, 1]


@jit
def add_to_each(out: Residues, rows: Residues, block: Residues) -> None:
    """Write rows + block, (rows, 2) and (2,)."""
    for i in range(out.shape[0]):
        out[i, 0] = rows[i, 0] ^ block[0]
        out[i, 1] = rows[i, 1] ^ block[1]


@jit
def children(out: Residues, nodes: Residues, left: Residues, right: Residues) -> None:
    """Write the two children of each node in order, (2 nodes, 2): the node added to what two ciphers make of it."""
    for i in range(nodes.shape[0]):
        for w in range(2):
            out[2 * i, w] = left[i, w] ^ nodes[i, w]
            out[2 * i + 1, w] = right[i, w] ^ nodes[i, w]


@jit
def side_sums(out: Residues, nodes: Residues) -> None:
    """Write the sum of all left and of all right children of a level: (trees, 2, 2) of (trees, nodes, 2)."""
    for tree in range(nodes.shape[0]):
        a0 = a1 = b0 = b1 = np.uint64(0)
        for i in range(0, nodes.shape[1], 2):
            a0 ^= nodes[tree, i, 0]
            a1 ^= nodes[tree, i, 1]
            b0 ^= nodes[tree, i + 1, 0]
            b1 ^= nodes[tree, i + 1, 1]
        out[tree, 0, 0], out[tree, 0, 1], out[tree, 1, 0], out[tree, 1, 1] = a0, a1, b0, b1


@jit
def clear(nodes: Residues, at: Residues) -> None:
    """Zero one node of each tree, (trees, nodes, words), without telling the memory which; ``at``: (trees,)."""
    for tree in range(nodes.shape[0]):
        for i in range(nodes.shape[1]):
            mask = np.uint64(0) - np.uint64(np.uint64(i) != at[tree])
            for w in range(nodes.shape[2]):
                nodes[tree, i, w] &= mask


@jit
def put(nodes: Residues, at: Residues, values: Residues) -> None:
    """Add (trees, words) to one node of each tree, (trees, nodes, words), without telling the memory which."""
    for tree in range(nodes.shape[0]):
        for i in range(nodes.shape[1]):
            here = np.uint64(0) - np.uint64(np.uint64(i) == at[tree])
            for w in range(nodes.shape[2]):
                nodes[tree, i, w] ^= values[tree, w] & here


@jit
def fold(sums: Residues, streams: Residues) -> None:
    """Sum streams by the bits of their index.

    Args:
        sums: written, (1 + bits, words): the sum of all streams, then of those whose index has bit j.
        streams: (2^bits, words), spent.
    """
    words = sums.shape[1]
    for j in range(sums.shape[0] - 1):
        for w in range(words):
            sums[1 + j, w] = np.uint64(0)
        for x in range(streams.shape[0] >> (j + 1)):
            for w in range(words):
                sums[1 + j, w] ^= streams[2 * x + 1, w]
                streams[x, w] = streams[2 * x, w] ^ streams[2 * x + 1, w]
    for w in range(words):
        sums[0, w] = streams[0, w]


_ONE = np.uint64(1)


@jit
def opened(out: Residues, nodes: Residues, at: Residues, values: Residues) -> None:
    """Add a value to one node of each tree; write all nodes, their halves mixed (x, y to x + y, x).

    Args:
        out: written.
        nodes: changed.
        at: (trees,).
        values: (trees, 2).
    """
    for tree in range(nodes.shape[0]):
        for i in range(nodes.shape[1]):
            here = np.uint64(0) - np.uint64(np.uint64(i) == at[tree])
            x = nodes[tree, i, 0] ^ (values[tree, 0] & here)
            y = nodes[tree, i, 1] ^ (values[tree, 1] & here)
            nodes[tree, i, 0], nodes[tree, i, 1] = x, y
            out[tree, i, 0], out[tree, i, 1] = x ^ y, x


@jit
def halves(out: Residues, sums: Residues, nodes: Residues, images: Residues, hole: Residues) -> None:
    """Write the children of each node: left = pi(s) + s for its mixed halves s, right = node + left; zeros at a hole.

    Args:
        out: written, (trees, 2 nodes, 2).
        sums: sums of all left and of all right children, written, (trees, 2, 2).
        nodes: zero at the hole.
        images: pi of the mixed halves.
        hole: (trees,).
    """
    for tree in range(nodes.shape[0]):
        a0 = a1 = b0 = b1 = np.uint64(0)
        for i in range(nodes.shape[1]):
            mask = np.uint64(0) - np.uint64(np.uint64(i) != hole[tree])
            x, y = nodes[tree, i, 0], nodes[tree, i, 1]
            left0, left1 = (images[tree, i, 0] ^ x ^ y) & mask, (images[tree, i, 1] ^ x) & mask
            right0, right1 = x ^ left0, y ^ left1
            out[tree, 2 * i, 0], out[tree, 2 * i, 1] = left0, left1
            out[tree, 2 * i + 1, 0], out[tree, 2 * i + 1, 1] = right0, right1
            a0 ^= left0
            a1 ^= left1
            b0 ^= right0
            b1 ^= right1
        sums[tree, 0, 0], sums[tree, 0, 1], sums[tree, 1, 0], sums[tree, 1, 1] = a0, a1, b0, b1


@jit
def closed(nodes: Residues, at: Residues, values: Residues, hole: Residues, totals: Residues) -> None:
    """Add a value to one node of each tree and another at the hole; the lowest bit then says where the hole is."""
    for tree in range(nodes.shape[0]):
        for i in range(nodes.shape[1]):
            here = np.uint64(0) - np.uint64(np.uint64(i) == at[tree])
            gone = np.uint64(0) - np.uint64(np.uint64(i) == hole[tree])
            x = nodes[tree, i, 0] ^ (values[tree, 0] & here) ^ (totals[tree, 0] & gone)
            nodes[tree, i, 0] = (x & ~_ONE) | (gone & _ONE)
            nodes[tree, i, 1] ^= (values[tree, 1] & here) ^ (totals[tree, 1] & gone)


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
def field_product(out: Residues, a: Residues, b: Residues) -> None:
    """Write a b in the field, (2,) each."""
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
