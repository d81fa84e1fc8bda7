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
    """Write the two children of each node in order, (2 nodes, 2): the node plus what two ciphers make of it."""
    size = aes.room(left)
    images = np.empty(2 * size, np.uint64)
    for start in range(0, nodes.shape[0], size):
        some = nodes[start : start + size].reshape(-1)
        count = len(some) // 2
        for side in range(2):
            images[: len(some)] = some
            if side:
                aes.add_images(right, images, count)
            else:
                aes.add_images(left, images, count)
            for i in range(count):
                for w in range(2):
                    out[2 * (start + i) + side, w] = images[2 * i + w]


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


@inline_late
def _double(trees: Residues, nodes: int, sums: Residues, lefts: Residues, cipher: aes.Aes) -> None:
    """Write the children of some trees' nodes in their place.

    The left child of a node (x, y) is pi(s) + s, with s = (x + y, x); the right one is the sum of it and the node.

    Args:
        trees: (trees, 2^depth, 2).
        nodes: number of nodes of a tree.
        sums: sums of all left and of all right children, written, (trees, 2, 2).
        lefts: the left children, (2 trees nodes,), written.
    """
    for tree in range(trees.shape[0]):
        level, some = trees[tree].reshape(-1), lefts[2 * tree * nodes : 2 * (tree + 1) * nodes]
        for i in range(nodes):
            some[2 * i], some[2 * i + 1] = level[2 * i] ^ level[2 * i + 1], level[2 * i]
    aes.add_images(cipher, lefts, trees.shape[0] * nodes)
    for tree in range(trees.shape[0]):
        level, some = trees[tree].reshape(-1), lefts[2 * tree * nodes : 2 * (tree + 1) * nodes]
        l0 = l1 = r0 = r1 = np.uint64(0)
        for i in range(nodes - 1, -1, -1):  # a child stands where no node is that is read later
            x, y = some[2 * i], some[2 * i + 1]
            z, w = x ^ level[2 * i], y ^ level[2 * i + 1]
            level[4 * i], level[4 * i + 1], level[4 * i + 2], level[4 * i + 3] = x, y, z, w
            l0 ^= x
            l1 ^= y
            r0 ^= z
            r1 ^= w
        sums[tree, 0, 0], sums[tree, 0, 1], sums[tree, 1, 0], sums[tree, 1, 1] = l0, l1, r0, r1


@inline_late
def _correct(nodes: Residues, pair: Word, addend: Residues, mask: Word) -> None:
    """Add to one pair of nodes, without telling the memory which.

    Args:
        nodes: two words each, changed.
        addend: of both nodes, (4,).
        mask: bits of first words that stay.
    """
    a, b, c, d = addend[0], addend[1], addend[2], addend[3]
    for i in range(len(nodes) // 4):
        here = np.uint64(0) - np.uint64(np.uint64(i) == pair)
        nodes[4 * i] = (nodes[4 * i] & mask) ^ (a & here)
        nodes[4 * i + 1] ^= b & here
        nodes[4 * i + 2] = (nodes[4 * i + 2] & mask) ^ (c & here)
        nodes[4 * i + 3] ^= d & here


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
    lefts, both = np.empty(2 * step * half, np.uint64), np.empty((step, 2, 2), np.uint64)
    for start in range(0, leaves.shape[0], step):
        trees = leaves[start : start + step]
        for tree in range(trees.shape[0]):
            for w in range(2):
                root = roots[start + tree, w]
                sums[start + tree, 0, w], trees[tree, 0, w], trees[tree, 1, w] = root, root, root ^ delta[w]
        for d in range(1, depth):
            _double(trees, 1 << d, both, lefts, cipher)
            sums[start : start + step, d] = both[: trees.shape[0], 0]
        for tree in range(trees.shape[0]):
            for i in range(2 * half):
                trees[tree, i, 0] &= ~_ONE


@jit
def hold_trees(leaves: Residues, corrected: Residues, sides: Residues, cipher: aes.Aes) -> None:
    """Write the leaves of correlated trees, off by Delta at the end of a path, where alone the lowest bit is 1.

    The node on the path is not known and counts as 0, so both its children come out as pi(0). The sums of their level
    say what the one beside the path is.

    Args:
        leaves: written, (trees, 2^depth, 2).
        corrected: sum of each level's nodes on the side that the path leaves, (trees, depth, 2).
        sides: 1 minus the path from the root, (trees, depth).
    """
    half, depth = leaves.shape[1] // 2, sides.shape[1]
    step = max(1, aes.room(cipher) // half)
    lefts, both = np.empty(2 * step * half, np.uint64), np.empty((step, 2, 2), np.uint64)
    pairs, addend, unknown = np.empty(step, np.uint64), np.empty(4, np.uint64), np.zeros(2 * aes.GROUP, np.uint64)
    aes.encrypt(cipher, unknown, 1)
    for start in range(0, leaves.shape[0], step):
        trees = leaves[start : start + step]
        pairs[:] = 0
        both[:, :] = unknown[:2]
        trees[:, :2] = unknown[:2]
        for d in range(depth):
            if d:
                _double(trees, 1 << d, both, lefts, cipher)
            for tree in range(trees.shape[0]):
                side, mask = sides[start + tree, d], ~_ONE if d == depth - 1 else ~np.uint64(0)
                for w in range(2):
                    total, right = both[tree, 0, w] ^ both[tree, 1, w], both[tree, 1, w] ^ unknown[w]
                    beside = right ^ (total & (side - _ONE)) ^ corrected[start + tree, d, w]
                    hidden = total ^ beside if d == depth - 1 else np.uint64(0)
                    swap = (beside ^ hidden) & (np.uint64(0) - side)
                    addend[w], addend[2 + w] = unknown[w] ^ beside ^ swap, unknown[w] ^ hidden ^ swap
                addend[0] = (addend[0] & mask) | (side & ~mask)
                addend[2] = (addend[2] & mask) | ((_ONE - side) & ~mask)
                _correct(trees[tree, : 2 << d].reshape(-1), pairs[tree], addend, mask)
                pairs[tree] = np.uint64(2) * pairs[tree] + _ONE - side


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
