"""Many correlated transfers from a few: Roy, "SoftSpokenOT" (CRYPTO 2022), with its check of the receiver.

The sender has one secret Delta of 128 bits and a row q for each transfer, the receiver a random bit u and
t = q + u Delta. 128 / k trees of 2^k keys make them: the receiver, who knows all leaves of a tree, sums their streams
to u and, by the bits of the leaves' index, to k columns of t; the sender, who lacks the leaf that k bits of Delta name,
gets k columns of q. Only what makes the trees' u alike is sent, 128 / k - 1 bits a transfer: 3.9 bytes for k = 4. The
work grows as 2^k / k.

The check of a message is a random linear function of all columns, GHASH, whose key is a hash of the message itself. A
receiver whose trees differ passes it only by a guess at bits of Delta, and a wrong guess ends the session. The last 128
transfers hide what it shows of the choices and are not used.
"""

import hashlib
import hmac
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.kernels.planes import rows_into
from privcirnet.he.mpc.ot import base, trees
from privcirnet.he.mpc.ot.ciphers import ROOM_WORDS, linear_check, stream
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length

SECURITY = 128
DEPTHS = (1, 2, 4, 8)
"""Values of k."""
_AT_ONCE = 1 << 17
"""Transfers of one check, whose streams stay in the cache."""
ROW_BYTES = 16
"""Bytes of a transfer in memory."""
EXTENSION_BYTES = 1 << 23
"""Bytes of memory for the streams of one check and their results."""
_HIDDEN = 128
_CHECK_BYTES = 16 + 32
_REFUSED = "transfers stay in the process that began them: a copy would use their keys twice"


class Confined:
    """State that is neither copied nor used in a forked process."""

    def __init__(self) -> None:
        self._owner = os.getpid()

    def __reduce__(self) -> tuple[Any, ...]:
        """Refuse."""
        raise TypeError(_REFUSED)

    def check_process(self) -> None:
        """Raise unless this is the process that made it.

        Raises:
            RuntimeError: it is another.
        """
        if os.getpid() != self._owner:
            raise RuntimeError(_REFUSED)


def setup_bytes(k: int) -> tuple[int, int]:
    """Return the bytes of the sender's and of the receiver's first message."""
    return 2 * base.POINT_BYTES * SECURITY, base.POINT_BYTES + trees.message_bytes(SECURITY // k, k)


def message_bytes(k: int, transfers: int) -> int:
    """Return the bytes of the receiver's message for some transfers, a multiple of 64."""
    return sum((SECURITY // k - 1) * _rows(count) // 8 + _CHECK_BYTES for count in _parts(transfers))


@dataclass(frozen=True)
class CorrelatedOts:
    """A party's side of correlated transfers.

    Attributes:
        rows: q or t, (transfers, 2).
        choices: the receiver's bits, 64 to a word; None with the sender.
    """

    rows: Residues
    choices: Residues | None = None


class _Party(Confined):
    """The common part of sender and receiver: the streams of their leaves, and the number of transfers so far."""

    stock = math.inf
    """Transfers that are left: as many as are asked for."""

    def __init__(self, k: int, session: bytes) -> None:
        super().__init__()
        if k not in DEPTHS:
            raise RuleError("k of SoftSpoken must be 1, 2, 4 or 8", got=k, remedy="4 sends 3.9 bytes a transfer")
        self._k, self._session, self._made = k, session, 0
        self._streams: list[list[Callable[[Residues], None]]] = []

    def _begin(self, leaves: Residues, transcript: bytes) -> None:
        self._transcript = hashlib.sha256(self._session + transcript).digest()
        self._streams = [[stream(leaf) for leaf in tree] for tree in leaves]

    def _next(self, words: int) -> Residues:
        """Return each tree's sums of the next words of its streams, (trees, 1 + k, words)."""
        self.check_process()
        sums = np.empty((len(self._streams), 1 + self._k, words), dtype=np.uint64)
        buffer = np.empty((1 << self._k, words + ROOM_WORDS), dtype=np.uint64)
        for tree, streams in enumerate(self._streams):  # on one thread: each piece is a few microseconds
            for i, fill in enumerate(streams, len(buffer) - len(streams)):
                fill(buffer[i])
            buffer[: len(buffer) - len(streams)] = 0
            blocks.fold(sums[tree], buffer[:, :words])
        self._made += 1
        return sums

    def _tags(self, corrections: Message, columns: Residues) -> Residues:
        """Return the check's function of zeros and of each column, (1 + columns, 2)."""
        key = hashlib.sha256(self._transcript + self._made.to_bytes(8, "little") + corrections).digest()[:16]
        return linear_check(key, [np.zeros_like(columns[0]), *columns])


class Receiver(_Party):
    """The receiver, who has the choices.

    Args:
        hello: the sender's first message.
        k: parameter of SoftSpoken, as the sender's.
        session: name of the session, as the sender's.
    """

    def __init__(self, hello: Message, k: int, session: bytes) -> None:
        super().__init__(k, session)
        pads, point = base.send(hello, SECURITY, session)
        roots = np.frombuffer(os.urandom(16 * SECURITY // k), dtype=np.uint64).reshape(-1, 2)
        leaves, message = trees.make(roots, pads.reshape(-1, k, 2, 2), session)
        self.setup = point + message
        """The answer to the sender."""
        self._begin(leaves, bytes(hello) + self.setup)

    def extend(self, transfers: int) -> tuple[CorrelatedOts, bytes]:
        """Return new transfers and the message to the sender; ``transfers``: a multiple of 64."""
        rows, choices = np.empty((transfers, 2), np.uint64), np.empty(transfers // 64, np.uint64)
        messages: list[bytes] = []
        for start, part in _ranges(transfers):
            sums = self._next(_rows(part) // 64)
            corrections = (sums[1:, 0] ^ sums[0, 0]).tobytes()
            columns = sums[:, 1:].reshape(SECURITY, -1)
            tags = self._tags(corrections, np.concatenate([sums[:1, 0], columns]))
            messages += [corrections, (tags[0] ^ tags[1]).tobytes(), hashlib.sha256(tags[2:].tobytes()).digest()]
            rows_into(rows[start : start + part], columns[:, : part // 64])
            choices[start // 64 : (start + part) // 64] = sums[0, 0, : part // 64]
        return CorrelatedOts(rows, choices), b"".join(messages)


class Sender(_Party):
    """The sender, who has both keys of each pair."""

    def __init__(self, k: int, session: bytes) -> None:
        super().__init__(k, session)
        self.delta = np.frombuffer(os.urandom(16), dtype=np.uint64)
        bits = np.unpackbits(self.delta.view(np.uint8), bitorder="little").astype(np.uint64)
        self._bits = bits.reshape(-1, k)
        self._paths = self._bits[:, ::-1]
        self._base = base.BaseOtReceiver([1 - int(bit) for bit in self._paths.reshape(-1)], session)
        self.hello = self._base.message
        """The first message to the receiver."""

    def begin(self, setup: Message) -> None:
        """Take the receiver's answer.

        Raises:
            RuleError: it has another length, or is not made as it should be.
        """
        check_length(setup, setup_bytes(self._k)[1], "the answer to oblivious transfers")
        keys = self._base.keys(setup[: base.POINT_BYTES])
        leaves = trees.hold(
            self._paths, keys.reshape(-1, self._k, 2), memoryview(setup)[base.POINT_BYTES :], self._session
        )
        self._begin(_by_distance(leaves, self._bits)[:, 1:], self.hello + bytes(setup))

    def extend(self, transfers: int, message: Message) -> CorrelatedOts:
        """Return new transfers.

        Args:
            transfers: a multiple of 64.
            message: message of the receiver.

        Raises:
            RuleError: the message has another length, or its check fails; the session must end.
        """
        check_length(message, message_bytes(self._k, transfers), "an extension of oblivious transfers")
        rows, rest = np.empty((transfers, 2), dtype=np.uint64), memoryview(message)
        masks = np.uint64(0) - self._bits
        for start, part in _ranges(transfers):
            size = (SECURITY // self._k - 1) * _rows(part) // 8
            corrections, check, rest = rest[:size], rest[size : size + _CHECK_BYTES], rest[size + _CHECK_BYTES :]
            sums = self._next(_rows(part) // 64)
            changes = np.frombuffer(corrections, dtype=np.uint64).reshape(len(masks) - 1, 1, -1)
            sums[1:, 1:] ^= changes & masks[1:, :, None]
            columns = sums[:, 1:].reshape(SECURITY, -1)
            self._check(bytes(corrections), columns, bytes(check))
            rows_into(rows[start : start + part], columns[:, : part // 64])
        return CorrelatedOts(rows)

    def _check(self, corrections: bytes, columns: Residues, check: bytes) -> None:
        masked = np.frombuffer(check[:16], dtype=np.uint64) & (np.uint64(0) - self._bits.reshape(-1, 1))
        tags = self._tags(corrections, columns)[1:] ^ masked
        if not hmac.compare_digest(hashlib.sha256(tags.tobytes()).digest(), check[16:]):
            self._streams = []
            raise RuleError("choices must be alike in all trees", got="others", remedy="start the session again")


def _parts(transfers: int) -> Iterator[int]:
    return (part for _, part in _ranges(transfers))


def _ranges(transfers: int) -> Iterator[tuple[int, int]]:
    return ((start, min(_AT_ONCE, transfers - start)) for start in range(0, transfers, _AT_ONCE))


def _rows(transfers: int) -> int:
    """Return the number of rows of a part, whole blocks of the check and those that hide it."""
    return -(-transfers // _HIDDEN) * _HIDDEN + _HIDDEN


def _by_distance(leaves: Residues, holes: Residues) -> Residues:
    """Return leaf x at x + hole, so that the missing one is the first, without an index by the hole.

    Args:
        leaves: (trees, 2^k, 2).
        holes: bits of the holes, the lowest first, (trees, k).
    """
    for j in range(holes.shape[1]):
        pairs = leaves.reshape(len(leaves), -1, 2, 1 << j, 2)
        changed = (pairs[:, :, 0] ^ pairs[:, :, 1]) & (np.uint64(0) - holes[:, j]).reshape(-1, 1, 1, 1)
        leaves = (pairs ^ changed[:, :, None]).reshape(leaves.shape)
    return leaves
