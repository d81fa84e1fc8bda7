"""Passes over blocks of 128 bits, two words each, around AES. None branches on or indexes by what it reads."""

import numpy as np

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit


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
