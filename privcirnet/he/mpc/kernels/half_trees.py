"""Levels of correlated trees, (trees, nodes, 2), around AES. None branches on or indexes by what it reads."""

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit

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
