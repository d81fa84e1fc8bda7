"""Passes over blocks of 128 bits, two words each: over levels of trees, and in a field.

None branches on or indexes by what it reads, but for the code's places, which are public. The field is that of 2^128
elements in GHASH's order of bits: x^0 is the highest bit of the first byte.
"""

import numpy as np

from privcirnet.he.mpc.kernels import aes
from privcirnet.he.ring.kernels.arithmetic import Word
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import inline_late, jit


@jit
def children(out: Residues, nodes: Residues, left: aes.Aes, right: aes.Aes) -> None:
    """Write the two children of each node in order, (2 nodes, 2): the node added to what two ciphers make of it."""
    size = aes.room(left)
    images = np.empty(2 * size, np.uint64)
    for start in range(0, nodes.shape[0], size):
        some, grown = nodes[start : start + size].reshape(-1), out[2 * start : 2 * (start + size)].reshape(-1)
        images[: len(some)] = some
        aes.encrypt(left, images, len(some) // 2)
        for w in range(len(some)):
            grown[2 * w - (w & 1)] = images[w] ^ some[w]
        images[: len(some)] = some
        aes.encrypt(right, images, len(some) // 2)
        for w in range(len(some)):
            grown[2 * w - (w & 1) + 2] = images[w] ^ some[w]


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


_ONE, _NOWHERE = np.uint64(1), np.uint64(2**64 - 1)


@inline_late
def _double(  # noqa: PLR0913, PLR0917
    trees: Residues,
    nodes: int,
    at: Residues,
    values: Residues,
    hole: Residues,
    sums: Residues,
    mixed: Residues,
    images: Residues,
    cipher: aes.Aes,
) -> None:
    """Write the children of some trees' nodes in their place, to one of which a value is added before.

    With s = (x + y, x) of a node's halves (x, y), the left one is pi(s) + s and the right one the sum of it and the
    node; both are zero at a hole.

    Args:
        trees: (trees, 2^depth, 2).
        nodes: number of nodes of a tree.
        at: (trees,).
        values: (trees, 2).
        hole: place of a node that is zero, (trees,).
        sums: sums of all left and of all right children, written, (trees, 2, 2).
        mixed: (2 trees nodes,), spent.
        images: (2 trees nodes,), spent.
    """
    for tree in range(trees.shape[0]):
        level, part = trees[tree].reshape(-1), slice(2 * tree * nodes, 2 * (tree + 1) * nodes)
        s, t = mixed[part], images[part]
        a, b, c = at[tree], values[tree, 0], values[tree, 1]
        for i in range(nodes):
            here = np.uint64(0) - np.uint64(np.uint64(i) == a)
            x, y = level[2 * i] ^ (b & here), level[2 * i + 1] ^ (c & here)
            s[2 * i], s[2 * i + 1] = x ^ y, x
            t[2 * i], t[2 * i + 1] = x ^ y, x
    aes.encrypt(cipher, images, trees.shape[0] * nodes)
    for tree in range(trees.shape[0]):
        level, part = trees[tree].reshape(-1), slice(2 * tree * nodes, 2 * (tree + 1) * nodes)
        s, t, a = mixed[part], images[part], hole[tree]
        l0 = l1 = r0 = r1 = np.uint64(0)
        for i in range(nodes):
            mask = np.uint64(0) - np.uint64(np.uint64(i) != a)
            x = s[2 * i + 1]
            y = s[2 * i] ^ x
            left0, left1 = (t[2 * i] ^ x ^ y) & mask, (t[2 * i + 1] ^ x) & mask
            level[4 * i], level[4 * i + 1], level[4 * i + 2], level[4 * i + 3] = left0, left1, x ^ left0, y ^ left1
            l0 ^= left0
            l1 ^= left1
            r0 ^= x ^ left0
            r1 ^= y ^ left1
        sums[tree, 0, 0], sums[tree, 0, 1], sums[tree, 1, 0], sums[tree, 1, 1] = l0, l1, r0, r1


@inline_late
def _close(trees: Residues, at: Residues, values: Residues, hole: Residues, totals: Residues) -> None:
    """Add a value to one leaf of each tree and another at the hole; the lowest bit then says where the hole is."""
    for tree in range(trees.shape[0]):
        for i in range(trees.shape[1]):
            here = np.uint64(0) - np.uint64(np.uint64(i) == at[tree])
            gone = np.uint64(0) - np.uint64(np.uint64(i) == hole[tree])
            x = trees[tree, i, 0] ^ (values[tree, 0] & here) ^ (totals[tree, 0] & gone)
            trees[tree, i, 0] = (x & ~_ONE) | (gone & _ONE)
            trees[tree, i, 1] ^= (values[tree, 1] & here) ^ (totals[tree, 1] & gone)


@jit
def make_trees(leaves: Residues, sums: Residues, roots: Residues, delta: Residues, cipher: aes.Aes) -> None:
    """Write the leaves of correlated trees.

    Args:
        leaves: written, (trees, 2^depth, 2).
        sums: sum of each level's left nodes, written, (trees, depth, 2).
        roots: (trees, 2).
        delta: (2,).
    """
    half, depth = leaves.shape[1] // 2, sums.shape[1]
    step = max(1, aes.room(cipher) // half)
    mixed, images = np.empty(2 * step * half, np.uint64), np.empty(2 * step * half, np.uint64)
    nowhere, nothing, both = np.full(step, _NOWHERE), np.zeros((step, 2), np.uint64), np.empty((step, 2, 2), np.uint64)
    for start in range(0, leaves.shape[0], step):
        some = leaves[start : start + step]
        for tree in range(some.shape[0]):
            for w in range(2):
                root = roots[start + tree, w]
                sums[start + tree, 0, w], some[tree, 0, w], some[tree, 1, w] = root, root, root ^ delta[w]
        for d in range(1, depth):
            _double(some, 1 << d, nowhere, nothing, nowhere, both, mixed, images, cipher)
            sums[start : start + step, d] = both[: some.shape[0], 0]
        _close(some, nowhere, nothing, nowhere, nothing)


@jit
def hold_trees(leaves: Residues, corrected: Residues, sides: Residues, cipher: aes.Aes) -> None:
    """Write the leaves of correlated trees, off by Delta at the end of a path.

    Args:
        leaves: written, (trees, 2^depth, 2).
        corrected: sum of each level's nodes on the side that the path leaves, (trees, depth, 2).
        sides: 1 minus the path from the root, (trees, depth).
    """
    half, depth = leaves.shape[1] // 2, sides.shape[1]
    step = max(1, aes.room(cipher) // half)
    mixed, images = np.empty(2 * step * half, np.uint64), np.empty(2 * step * half, np.uint64)
    at, hole, both = np.empty(step, np.uint64), np.empty(step, np.uint64), np.empty((step, 2, 2), np.uint64)
    values, totals = np.empty((step, 2), np.uint64), np.empty((step, 2), np.uint64)
    for start in range(0, leaves.shape[0], step):
        some = leaves[start : start + step]
        some[:, :2] = 0
        for tree in range(some.shape[0]):
            at[tree], hole[tree] = sides[start + tree, 0], _ONE - sides[start + tree, 0]
            for w in range(2):
                values[tree, w] = totals[tree, w] = corrected[start + tree, 0, w]
        for d in range(1, depth):
            _double(some, 1 << d, at, values, hole, both, mixed, images, cipher)
            for tree in range(some.shape[0]):
                side = sides[start + tree, d]
                at[tree], hole[tree] = 2 * hole[tree] + side, 2 * hole[tree] + _ONE - side
                for w in range(2):
                    left, right = both[tree, 0, w], both[tree, 1, w]
                    chosen = left ^ ((left ^ right) & (np.uint64(0) - side))
                    values[tree, w] = chosen ^ corrected[start + tree, d, w]
                    totals[tree, w] = left ^ right ^ values[tree, w]
        _close(some, at, values, hole, totals)


@inline_late
def swapped(word: Word) -> Word:
    """Return a word with its bytes reversed: x^0 becomes its highest bit."""
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
    high, low = _times(swapped(a[0]), swapped(a[1]), swapped(b[0]), swapped(b[1]))
    out[0], out[1] = swapped(high), swapped(low)


@jit
def combination(out: Residues, rows: Residues) -> None:
    """Write the sum of row i times x^i, (2,) of (rows, 2)."""
    high = low = np.uint64(0)
    for i in range(rows.shape[0] - 1, -1, -1):
        high, low = _shifted(high, low)
        high ^= swapped(rows[i, 0])
        low ^= swapped(rows[i, 1])
    out[0], out[1] = swapped(high), swapped(low)


@jit
def weights(out: Residues, h: Residues, sides: Residues) -> None:
    """Write the sum of GHASH's weights of one leaf of each tree, (2,).

    Args:
        h: GHASH's point.
        sides: 1 minus the path to each leaf, from the root: (trees, depth). Leaves follow each other in the message.
    """
    depth = sides.shape[1]
    powers = np.empty((depth + 1, 2), np.uint64)
    powers[0, 0], powers[0, 1] = swapped(h[0]), swapped(h[1])
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
    out[0], out[1] = swapped(high), swapped(low)


@jit
def lowest_bits(out: Residues, rows: Residues) -> None:
    """Write the lowest bit of each row, 64 to a word: (rows / 64,) of (rows, 2)."""
    for w in range(out.shape[0]):
        word = np.uint64(0)
        for i in range(64):
            word |= (rows[64 * w + i, 0] & np.uint64(1)) << np.uint64(i)
        out[w] = word
