"""Trees of keys whose levels all sum to one secret: one party has all leaves, the other one of them off by the secret.

The correlated trees of Guo, Yang, Wang and others ("Half-Tree", EUROCRYPT 2023, figure 3): a root's children are r and
r + Delta, those of a node x are H(x) and x + H(x), so that a level costs half an AES a node and one block is sent for
it. H(x) = pi(s) + s, where s = (x0 + x1, x0) of x's halves, is circular correlation robust for an ideal permutation pi
(Guo, Katz, Wang, Yu, S&P 2020, section 7.3). The blocks are sent under correlated transfers of the same Delta, of which
the holder has t = q + u Delta: it gets the sum of the right nodes where u is 1 and of the left ones elsewhere, and its
path goes the other way. At the end of its path it gets the leaf plus Delta, for all leaves sum to Delta.

Delta's lowest bit is 1, a leaf's is 0, or 1 at the end of the holder's path: leaves are correlated transfers.
Nothing here notices a maker that sends other blocks.
"""

import numpy as np

from privcirnet.he.mpc.kernels import half_trees as kernels
from privcirnet.he.mpc.ot.ciphers import ROOM_WORDS, FixedKeyAes
from privcirnet.he.mpc.ot.trees import chosen
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length
from privcirnet.he.system import threads

_AT_ONCE = 1 << 18
"""Leaves that stay in the cache while their trees grow."""
_NOWHERE = np.uint64(2**64 - 1)


def message_bytes(trees: int, depth: int) -> int:
    """Return the bytes that the maker sends."""
    return 16 * trees * depth


def make(roots: Residues, q: Residues, delta: Residues, session: bytes) -> tuple[Residues, bytes]:
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
        kernels.closed(leaves[some], nowhere, nothing, nowhere, nothing)

    threads.each(grow, _groups(trees, depth))
    return leaves, (sums ^ q).tobytes()


def hold(t: Residues, sides: Residues, message: Message, session: bytes) -> Residues:
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
    check_length(message, message_bytes(trees, depth), "correlated trees")
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
        kernels.closed(leaves[some], at, value, hole, total)

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
        kernels.opened(mixed, nodes, at, value)
        images = self._permutation(mixed.reshape(-1, 2), self._images[: nodes.size + ROOM_WORDS])
        self.nodes = self._level(len(nodes), 2 * nodes.shape[1])
        kernels.halves(self.nodes, sums, nodes, images.reshape(nodes.shape), hole)
        return sums
