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
from privcirnet.he.mpc.ot.ciphers import ROOM_WORDS, FixedKeyAes, GgmPrg
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


_AT_ONCE = 1 << 18
"""Leaves that stay in the cache while their trees grow."""
_NOWHERE = np.uint64(2**64 - 1)


def correlated_bytes(trees: int, depth: int) -> int:
    """Return the bytes that the maker sends."""
    return 16 * trees * depth


def make_correlated(roots: Residues, q: Residues, delta: Residues, session: bytes) -> tuple[Residues, bytes]:
    """Return the leaves, (trees, 2^depth, 2), and the message to the holder.

    Args:
        roots: random blocks, (trees, 2).
        q: rows of transfers, one for each tree and level: (trees, depth, 2).
        delta: offset of the transfers, odd.
        session: name of the session, as the holder's.
    """
    (trees, depth), sums = q.shape[:2], np.empty_like(q)
    leaves, permutation = np.empty((trees, 1 << depth, 2), np.uint64), FixedKeyAes(session, "half trees")

    def grow(some: slice) -> None:
        growing = _Growing(permutation, leaves[some])
        nodes = growing.nodes
        nodes[:, 0], nodes[:, 1] = roots[some], roots[some] ^ delta
        nowhere, nothing = np.full(len(nodes), _NOWHERE), np.zeros((len(nodes), 2), np.uint64)
        sums[some, 0] = roots[some]
        for d in range(1, depth):
            sums[some, d] = growing.double(nowhere, nothing, nowhere)[:, 0]
        blocks.closed(leaves[some], nowhere, nothing, nowhere, nothing)

    threads.each(grow, _groups(trees, depth))
    return leaves, (sums ^ q).tobytes()


def hold_correlated(t: Residues, sides: Residues, message: Message, session: bytes) -> Residues:
    """Return the leaves, (trees, 2^depth, 2).

    Args:
        t: rows of the maker's transfers, (trees, depth, 2).
        sides: their choices, 1 minus the path from the root: (trees, depth).
        message: message of the maker.
        session: name of the session, as the maker's.

    Raises:
        RuleError: the message has another length.
    """
    trees, depth = sides.shape
    check_length(message, correlated_bytes(trees, depth), "correlated trees")
    corrected = t ^ np.frombuffer(bytes(message), dtype=np.uint64).reshape(t.shape)
    leaves, permutation = np.empty((trees, 1 << depth, 2), np.uint64), FixedKeyAes(session, "half trees")

    def grow(some: slice) -> None:
        growing, total = _Growing(permutation, leaves[some]), corrected[some, 0]
        growing.nodes[:] = 0
        at, value, hole = sides[some, 0], corrected[some, 0], np.uint64(1) - sides[some, 0]
        for d in range(1, depth):
            both = growing.double(at, value, hole)
            side = sides[some, d]
            at, hole = np.uint64(2) * hole + side, np.uint64(2) * hole + np.uint64(1) - side
            value = chosen(both, side) ^ corrected[some, d]
            total = both[:, 0] ^ both[:, 1] ^ value
        blocks.closed(leaves[some], at, value, hole, total)

    threads.each(grow, _groups(trees, depth))
    return leaves


def _groups(trees: int, depth: int) -> list[slice]:
    step = max(1, _AT_ONCE >> depth)
    return [slice(start, min(start + step, trees)) for start in range(0, trees, step)]


class _Growing:
    """The levels of some trees, by turns in the place of their leaves and beside it, the last one there.

    Args:
        leaves: (trees, 2^depth, 2), written.
    """

    def __init__(self, permutation: FixedKeyAes, leaves: Residues) -> None:
        self._permutation, half = permutation, leaves.size // 2
        self._mixed, self._images = np.empty(half, np.uint64), np.empty(half + ROOM_WORDS, np.uint64)
        self._places = leaves.reshape(-1), np.empty(half, np.uint64)
        self._levels: int = leaves.shape[1].bit_length() - 1
        self.nodes = self._level(len(leaves), 2)
        """Nodes of the last level."""

    def _level(self, trees: int, nodes: int) -> Residues:
        place = self._places[(self._levels - nodes.bit_length() + 1) % 2]
        return place[: 2 * trees * nodes].reshape(trees, nodes, 2)

    def double(self, at: Residues, value: Residues, hole: Residues) -> Residues:
        """Go to the children of a level to which a value is added at one place; return their sums, left and right."""
        nodes = self.nodes
        mixed, sums = self._mixed[: nodes.size].reshape(nodes.shape), np.empty((len(nodes), 2, 2), np.uint64)
        blocks.opened(mixed, nodes, at, value)
        images = self._permutation(mixed.reshape(-1, 2), self._images[: nodes.size + ROOM_WORDS])
        self.nodes = self._level(len(nodes), 2 * nodes.shape[1])
        blocks.halves(self.nodes, sums, nodes, images.reshape(nodes.shape), hole)
        return sums
