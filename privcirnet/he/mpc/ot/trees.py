"""Trees of keys: one party knows all leaves, the other all but one of its choice, which the first does not learn.

*Punctured trees* (:func:`make`, :func:`hold`), of Goldreich, Goldwasser and Micali: for each level the sum of its left
nodes and the sum of its right nodes are offered by oblivious transfer, and the holder takes the side that its path
leaves. The check against a maker who offers sums of something else is that of Boyle and others (CCS 2019) as Roy has it
("SoftSpokenOT", CRYPTO 2022, figure 14): what is left is a guess at the holder's path, which ends the session if it was
wrong.

*Correlated trees* (:func:`make_correlated`, :func:`hold_correlated`), of Guo, Yang, Wang and others ("Half-Tree",
EUROCRYPT 2023, figure 3): all levels sum to one secret Delta, and the holder has one leaf off by Delta. A root's
children are r and r + Delta, those of a node x are H(x) and x + H(x), so that a level costs half an AES a node and one
block is sent for it. H(x) = pi(s) + s, where s = (x0 + x1, x0) of x's halves, is circular correlation robust for an
ideal permutation pi (Guo, Katz, Wang, Yu, S&P 2020, section 7.3). The blocks are sent under correlated transfers of the
same Delta, of which the holder has t = q + u Delta: it gets the sum of the right nodes where u is 1 and of the left
ones elsewhere, and its path goes the other way. At the end of its path it gets the leaf plus Delta, for all leaves sum
to Delta. Delta's lowest bit is 1, a leaf's is 0, or 1 at the end of the holder's path: leaves are correlated transfers.
Nothing here notices a maker that sends other blocks; :mod:`mpc.ot.silent` does.
"""

import hashlib

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.ot.ciphers import GgmPrg, permutation
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length
from privcirnet.he.system import threads

_BLOCK, _DIGEST = 16, 32
_REMEDY = "start the session again"


def message_bytes(trees: int, depth: int) -> int:
    """Return the bytes that the maker sends."""
    return trees * (2 * depth + 2) * _BLOCK + _DIGEST


def make(roots: Residues, pads: Residues, session: bytes) -> tuple[Residues, bytes]:
    """Return all leaves, (trees, 2^depth, 2), and the message to the holder.

    Args:
        roots: random blocks, (trees, 2).
        pads: both keys of an oblivious transfer for each tree and level, (trees, depth, 2, 2).
        session: name of the session, as the holder's.
    """
    depth = pads.shape[1]
    double, level, offers = GgmPrg(session), roots[:, None], np.empty_like(pads)
    for d in range(depth):
        level = double(level)
        blocks.side_sums(offers[:, d], level)
    leaves, proofs = _leaves(level, session)
    sums = np.bitwise_xor.reduce(proofs, axis=1)
    return leaves, (offers ^ pads).tobytes() + sums.tobytes() + hashlib.sha256(proofs.tobytes()).digest()


def hold(paths: Residues, keys: Residues, message: Message, session: bytes) -> Residues:
    """Return the leaves, (trees, 2^depth, 2), zeros in the one of each path.

    Args:
        paths: 0 for left and 1 for right, (trees, depth), from the root.
        keys: keys of transfers in which 1 minus the path was chosen, (trees, depth, 2).
        message: message of the maker.
        session: name of the session, as the maker's.

    Raises:
        RuleError: the message has another length, or its sums are not those of a tree.
    """
    trees, depth = paths.shape
    check_length(message, message_bytes(trees, depth), "trees of keys")
    words = np.frombuffer(bytes(message[:-_DIGEST]), dtype=np.uint64)
    offers, sums = words[: 4 * trees * depth].reshape(trees, depth, 2, 2), words[4 * trees * depth :].reshape(trees, 4)
    double, level = GgmPrg(session), np.zeros((trees, 1, 2), dtype=np.uint64)
    hole, level_sums = np.zeros(trees, dtype=np.uint64), np.empty((trees, 2, 2), dtype=np.uint64)
    for d in range(depth):
        level, hole = double(level), np.uint64(2) * hole
        blocks.clear(level, hole)
        blocks.clear(level, hole + np.uint64(1))
        blocks.side_sums(level_sums, level)
        side = np.uint64(1) - paths[:, d]
        nodes = chosen(offers[:, d] ^ level_sums, side) ^ keys[:, d]
        blocks.put(level, hole + side, nodes)
        hole = hole + paths[:, d]
    leaves, proofs = _leaves(level, session)
    blocks.clear(leaves, hole)
    blocks.clear(proofs, hole)
    blocks.put(proofs, hole, np.bitwise_xor.reduce(proofs, axis=1) ^ sums)
    if hashlib.sha256(proofs.tobytes()).digest() != bytes(message[-_DIGEST:]):
        raise RuleError("sums of keys must be those of trees", got="others", remedy=_REMEDY)
    return leaves


def _leaves(level: Residues, session: bytes) -> tuple[Residues, Residues]:
    """Return of the last level the leaves, (trees, nodes, 2), and what proves them, (trees, nodes, 4)."""
    trees, nodes = level.shape[:2]
    grown = [GgmPrg(session, purpose)(level).reshape(trees, nodes, 4) for purpose in ("leaves", "proofs")]
    return np.ascontiguousarray(grown[0][..., :2]), grown[1]


def chosen(pairs: Residues, choices: Residues) -> Residues:
    """Return pair[choice] of each pair, (trees, 2) of (trees, 2, 2), without an index by the choice."""
    mask = (np.uint64(0) - choices)[:, None]
    return pairs[:, 0] ^ ((pairs[:, 0] ^ pairs[:, 1]) & mask)


_AT_ONCE = 1 << 16
"""Leaves that a thread makes at once."""


def correlated_bytes(trees: int, depth: int) -> int:
    """Return the bytes that the maker sends."""
    return 16 * trees * depth


def make_correlated(leaves: Residues, roots: Residues, q: Residues, delta: Residues, session: bytes) -> bytes:
    """Write the leaves.

    Args:
        leaves: written, (trees, 2^depth, 2).
        roots: random blocks, (trees, 2).
        q: rows of transfers, one for each tree and level: (trees, depth, 2).
        delta: offset of the transfers, odd.
        session: name of the session, as the holder's.

    Returns:
        the message to the holder.
    """
    sums, cipher = np.empty_like(q), permutation(session, _PURPOSE)
    threads.each(lambda some: blocks.make_trees(leaves[some], sums[some], roots[some], delta, cipher), _groups(leaves))
    return (sums ^ q).tobytes()


def hold_correlated(leaves: Residues, t: Residues, sides: Residues, message: Message, session: bytes) -> None:
    """Write the leaves.

    Args:
        leaves: written, (trees, 2^depth, 2).
        t: rows of the maker's transfers, (trees, depth, 2).
        sides: their choices, 1 minus the path from the root: (trees, depth).
        message: message of the maker.
        session: name of the session, as the maker's.

    Raises:
        RuleError: the message has another length.
    """
    check_length(message, correlated_bytes(*sides.shape), "correlated trees")
    corrected = t ^ np.frombuffer(bytes(message), dtype=np.uint64).reshape(t.shape)
    sides, cipher = np.ascontiguousarray(sides), permutation(session, _PURPOSE)
    threads.each(lambda some: blocks.hold_trees(leaves[some], corrected[some], sides[some], cipher), _groups(leaves))


_PURPOSE = "half trees"


def _groups(leaves: Residues) -> list[slice]:
    step = max(1, _AT_ONCE // leaves.shape[1])
    return [slice(start, start + step) for start in range(0, len(leaves), step)]
