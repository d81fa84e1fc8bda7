"""Correlated transfers made ahead, in millions, for a sixth of a byte each: Ferret with regular noise.

(Yang, Weng, Lan, Zhang, Wang, CCS 2020.) The sender has a secret Delta, whose lowest bit is 1, and rows q whose lowest
bit is 0, the receiver t = q + u Delta, with its bit u as the lowest. An iteration makes 1.8 million rows: a sparse
public code over 2^17 rows, which are spent, plus the leaves of 1792 correlated trees of depth 10, in each of which the
receiver has one off by Delta. The trees are sent, 0.17 bytes a transfer; the sender speaks first. The last rows go into
the next iteration, SoftSpoken makes those of the first. 2^17 rows are 2 MB, which a processor has near: twice as many,
and trees of 2048 leaves, would send half the bytes and take longer.

**What a receiver does not learn**: Delta, of 127 secret bits. It knows t and u, and Delta shows in hashes alone. To
that the code does not matter, so the receiver draws it.

**What a sender does not learn**: the choices u. They are the code's words plus noise, regular learning parity with
noise: 1792 blocks of 1024 rows with one error each, 2^17 unknowns, 10 in a row. That has 128 bits or more by all of
``benchmarks/lpn_security.py``, which names its sources: 200 by information sets, 198 by the hybrid of guesses and
linearization, 208 by algebra; 155 on a part of the code that touches few unknowns, 128 if the densest part could be
found. Ferret's own parameters and later ones of emp-ot have 71 to 79 by that last count.

**A sender that deviates** could offer blocks that fit no tree, to learn from what follows where the noise is. The check
is Ferret's (figure 7): a random linear function of all leaves, GHASH at a point that the receiver draws when the trees
have come, is alike on both sides but for Delta times the point's powers where the noise is, and their sum the receiver
sends under a mask of 128 transfers. Other blocks pass only by a guess of places of noise, a wrong one ends the session:
on average a sender learns the one bit that its luck says. A receiver's answer, whatever it is, gets it the hash of a
number that it either knows or would have to know Delta for.
"""

import hashlib
import hmac
import os
from dataclasses import dataclass

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels import blocks, sparse_code
from privcirnet.he.mpc.kernels.aes import cipher
from privcirnet.he.mpc.ot import trees
from privcirnet.he.mpc.ot.ciphers import check_point, linear_check
from privcirnet.he.mpc.ot.softspoken import ROW_BYTES, SECURITY, Confined, CorrelatedOts
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length
from privcirnet.he.system import threads

_BLOCK, _DIGEST = 16, 32
_AT_ONCE = 1 << 14
"""Rows of the code whose places stay in the cache."""


@dataclass(frozen=True)
class LpnParameters:
    """Sizes of an iteration.

    Attributes:
        trees: number of the noise's trees, one error each.
        depth: levels of a tree.
        seed: rows that are encoded, a power of two.
    """

    trees: int
    depth: int
    seed: int

    @property
    def spent(self) -> int:
        """Rows that go into an iteration: the seed, one for each level of a tree, and those that mask the check."""
        return self.seed + self.trees * self.depth + SECURITY

    @property
    def made(self) -> int:
        """New transfers of an iteration, without those that the next one spends."""
        return (self.trees << self.depth) - self.spent

    @property
    def stock_bytes(self) -> int:
        """Bytes of an iteration's rows, with which a party's memory is filled."""
        return ROW_BYTES * self.trees << self.depth

    @property
    def message_bytes(self) -> tuple[int, int, int]:
        """Bytes of the sender's, the receiver's and the sender's message of an iteration."""
        return trees.correlated_bytes(self.trees, self.depth), 2 * _BLOCK, _DIGEST


CODE = LpnParameters(trees=1792, depth=10, seed=1 << 17)


class _Party(Confined):
    """The common part of sender and receiver: the rows that the next iteration spends, and the stock.

    Args:
        rows: rows of SoftSpoken, with the choice as the lowest bit.
        session: name that both parties give this direction.
    """

    def __init__(self, rows: Residues, session: bytes) -> None:
        super().__init__()
        self._spent, self._session, self._code, self._iterations = rows, session, CODE, 0
        self._rows: list[Residues] = []
        self._leaves: Residues | None = None
        self._memory: Residues | None = None

    @property
    def stock(self) -> int:
        """Transfers that are left."""
        return sum(map(len, self._rows))

    def _levels(self) -> Residues:
        """Return the rows that the trees' levels spend, (trees, depth, 2)."""
        self.check_process()
        if self._leaves is not None:
            raise RuntimeError("an iteration spends its rows once")
        return self._spent[self._code.seed : -SECURITY].reshape(self._code.trees, self._code.depth, 2)

    def _room(self) -> Residues:
        """Return memory for the leaves of an iteration: that of rows that were taken, if there is any."""
        room, self._memory = self._memory, None
        shape = self._code.trees, 1 << self._code.depth, 2
        return np.empty(shape, dtype=np.uint64) if room is None else room.reshape(shape)

    def _grown(self) -> Residues:
        """Return the leaves of the iteration, which ends."""
        leaves, self._leaves = self._leaves, None
        if leaves is None:
            raise RuntimeError("an iteration begins with its trees")
        return leaves

    def _function(self, leaves: Residues, key: bytes) -> Residues:
        """Return the check's function of the leaves, plus its mask."""
        combined = np.empty(2, dtype=np.uint64)
        blocks.combination(combined, self._spent[-SECURITY:])
        return combined ^ linear_check(key, [leaves.reshape(-1)])[0]

    def _proof(self, function: Residues) -> bytes:
        number = self._iterations.to_bytes(8, "little")
        return hashlib.sha256(b"privcirnet leaves" + self._session + number + function.tobytes()).digest()

    def _encode(self, leaves: Residues, key: bytes) -> None:
        """Make the leaves new rows, and the last of them those that the next iteration spends."""
        rows, seed = leaves.reshape(-1, 2), self._spent[: self._code.seed]
        code = cipher(hashlib.sha256(b"privcirnet code" + key).digest()[:16])

        def encode(start: int) -> None:
            sparse_code.encode(rows[start : start + _AT_ONCE], seed, start, code)

        threads.each(encode, range(0, len(rows), _AT_ONCE))
        self._spent[:] = 0
        self._spent[:] = rows[-len(self._spent) :]
        rows[-len(self._spent) :] = 0
        self._rows.append(rows[: -len(self._spent)])
        self._iterations += 1

    def _take(self, transfers: int) -> Residues:
        """Take rows out of the stock.

        Raises:
            RuleError: it has fewer.
        """
        self.check_process()
        if transfers > self.stock:
            remedy = "both parties run refill before"
            raise RuleError("silent transfers must be made ahead", got=f"{self.stock} for {transfers}", remedy=remedy)
        rows, start = np.empty((transfers, 2), dtype=np.uint64), 0
        while start < transfers:
            part = self._rows[0][: transfers - start]
            rows[start : start + len(part)] = part
            part[:] = 0
            start += len(part)
            self._rows[0] = self._rows[0][len(part) :]
            if not len(self._rows[0]):
                self._memory = self._rows.pop(0).base
        return rows


class Sender(_Party):
    """The sender, who has both keys of each pair.

    Args:
        correlated: ``CODE.spent`` transfers of SoftSpoken.
        delta: offset of these transfers.
        session: name of the session, as the receiver's.
    """

    def __init__(self, correlated: CorrelatedOts, delta: Residues, session: bytes) -> None:
        super().__init__(correlated.rows & _clear(), session)
        self.delta = delta | ~_clear()

    def offer(self) -> bytes:
        """Return the message to the receiver with which an iteration begins."""
        roots = np.frombuffer(os.urandom(_BLOCK * self._code.trees), dtype=np.uint64).reshape(-1, 2)
        levels, self._leaves = self._levels(), self._room()
        return trees.make_correlated(self._leaves, roots, levels, self.delta, self._session)

    def prove(self, message: Message) -> bytes:
        """Return the last message of an iteration; ``message``: the receiver's.

        Raises:
            RuleError: it has another length.
        """
        check_length(message, self._code.message_bytes[1], "the check of silent transfers")
        leaves = self._grown()
        key, shift = bytes(message[:_BLOCK]), np.empty(2, dtype=np.uint64)
        blocks.field_product(shift, np.frombuffer(bytes(message[_BLOCK:]), dtype=np.uint64), self.delta)
        proof = self._proof(self._function(leaves, key) ^ shift)
        self._encode(leaves, key)
        return proof

    def extend(self, transfers: int, message: Message) -> CorrelatedOts:
        """Return transfers out of the stock; ``message``: empty, for the receiver has nothing to say.

        Raises:
            RuleError: there are fewer, or the message is not empty.
        """
        check_length(message, 0, "an extension of silent transfers")
        return CorrelatedOts(self._take(transfers))


class Receiver(_Party):
    """The receiver, who has the choices.

    Args:
        correlated: ``CODE.spent`` transfers of SoftSpoken.
        session: name of the session, as the sender's.
    """

    def __init__(self, correlated: CorrelatedOts, session: bytes) -> None:
        assert correlated.choices is not None
        choices = np.unpackbits(correlated.choices.view(np.uint8), bitorder="little")
        rows = correlated.rows & _clear()
        rows[:, 0] |= choices
        super().__init__(rows, session)

    def answer(self, message: Message) -> bytes:
        """Return the answer to the sender's first message.

        Raises:
            RuleError: it has another length.
        """
        levels = self._levels()
        sides = levels[..., 0] & np.uint64(1)
        leaves = self._room()
        trees.hold_correlated(leaves, levels, sides, message, self._session)
        self._leaves = leaves
        self._key = os.urandom(_BLOCK)
        self._expected = self._proof(self._function(self._leaves, self._key))
        weights, mask = np.empty(2, dtype=np.uint64), np.zeros((SECURITY, 2), dtype=np.uint64)
        blocks.weights(weights, check_point(self._key), sides)
        mask[:, 0] = (self._spent[-SECURITY:, 0] & np.uint64(1)) << np.uint64(7)
        masked = np.empty(2, dtype=np.uint64)
        blocks.combination(masked, mask)
        return self._key + (weights ^ masked).tobytes()

    def finish(self, message: Message) -> None:
        """Take the sender's last message.

        Raises:
            RuleError: it has another length, or the leaves are not those of the sender's trees; the session must end.
        """
        check_length(message, self._code.message_bytes[2], "the proof of silent transfers")
        leaves = self._grown()
        if not hmac.compare_digest(self._expected, bytes(message)):
            self._spent = self._spent[:0]
            self._rows.clear()
            raise RuleError("leaves must be those of trees", got="others", remedy="start the session again")
        self._encode(leaves, self._key)

    def extend(self, transfers: int) -> tuple[CorrelatedOts, bytes]:
        """Return transfers, a multiple of 64, out of the stock, and an empty message.

        Raises:
            RuleError: there are fewer.
        """
        rows, choices = self._take(transfers), np.empty(transfers // 64, dtype=np.uint64)
        blocks.lowest_bits(choices, rows)
        return CorrelatedOts(rows, choices), b""


def _clear() -> Residues:
    """Return a mask of all bits of a row but the lowest."""
    return np.array([2**64 - 2, 2**64 - 1], dtype=np.uint64)
