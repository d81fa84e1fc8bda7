"""Oblivious transfers of two parties in both directions, as one of them has them, from the first message on.

A transfer of many values is keys by slot and value, of correlated transfers and a hash (:class:`SenderOts`,
:class:`ReceiverOts`).
"""

import math
import os
from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from privcirnet.errors import Interrupted, RuleError
from privcirnet.he.mpc.kernels.planes import planes_into
from privcirnet.he.mpc.ot import silent, softspoken
from privcirnet.he.mpc.ot.ciphers import TweakableHash
from privcirnet.he.mpc.ot.softspoken import CorrelatedOts
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length


@dataclass(frozen=True)
class RotKeys:
    """The hashes of rows, made when a slot is asked for: soon used up, they are never all in memory.

    Attributes:
        rows: (slots, values, 2).
        hashed: hash of the session.
        first: the number of the first row, which no other row had.
        shifts: addends of each row, one for each key of a value: (keys, 2).
    """

    rows: Residues
    hashed: TweakableHash
    first: int
    shifts: Residues

    def __getitem__(self, slot: int) -> Residues:
        """Return the first keys of a slot, (values, 2)."""
        return self.hashed(self.rows[slot], self._number(slot), self.shifts[:1])[0]

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (keys, bits, values / 64)."""
        return self.hashed.planes(self.rows[slot], self._number(slot), self.shifts, bits)

    def residues(self, slot: int, m: int) -> Residues:
        """Return the keys of a slot mod m, (keys, values): within m 2^-128 of uniform; ``m``: under 2^62."""
        return self.hashed.residues(self.rows[slot], self._number(slot), self.shifts, m)

    def some(self, slots: range) -> "RotKeys":
        """Return the keys of some slots."""
        return replace(self, rows=self.rows[slots.start : slots.stop], first=self._number(slots.start))

    def _number(self, slot: int) -> int:
        """Return the number of the first row of a slot."""
        return self.first + slot * self.rows.shape[1]


@dataclass(frozen=True)
class SenderOts:
    """The helper's keys, both of each slot and value."""

    both: RotKeys

    @classmethod
    def of(
        cls, correlated: CorrelatedOts, delta: Residues, values: int, hashed: TweakableHash, first: int
    ) -> "SenderOts":
        """Return the keys of transfers; ``first``: the number of the first, which no hash had before."""
        shifts = np.stack([np.zeros_like(delta), delta])
        return cls(RotKeys(correlated.rows.reshape(-1, values, 2), hashed, first, shifts))

    @property
    def keys(self) -> tuple[RotKeys, RotKeys]:
        """The first keys, and the second."""
        shifts = self.both.shifts
        return replace(self.both, shifts=shifts[:1]), replace(self.both, shifts=shifts[1:])

    def planes(self, slot: int, bits: int) -> tuple[Residues, Residues]:
        """Return bits of both keys of a slot, (bits, values / 64)."""
        first, second = self.both.planes(slot, bits)
        return first, second

    def residues(self, slot: int, m: int) -> tuple[Residues, Residues]:
        """Return both keys of a slot mod m, (values,)."""
        first, second = self.both.residues(slot, m)
        return first, second

    def some(self, slots: range) -> "SenderOts":
        """Return the keys of some slots."""
        return SenderOts(self.both.some(slots))


@dataclass(frozen=True)
class ReceiverOts:
    """The chooser's choice bits, (slots, values / 64), and their keys."""

    choices: Residues
    keys: RotKeys

    @classmethod
    def of(cls, correlated: CorrelatedOts, values: int, hashed: TweakableHash, first: int) -> "ReceiverOts":
        """Return the keys of transfers; ``first``: as the helper's."""
        assert correlated.choices is not None
        rows, no_shift = correlated.rows.reshape(-1, values, 2), np.zeros((1, 2), dtype=np.uint64)
        return cls(correlated.choices.reshape(-1, values // 64), RotKeys(rows, hashed, first, no_shift))

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        return self.keys.planes(slot, bits)[0]

    def residues(self, slot: int, m: int) -> Residues:
        """Return the keys of a slot mod m, (values,)."""
        return self.keys.residues(slot, m)[0]

    def some(self, slots: range) -> "ReceiverOts":
        """Return the choices and keys of some slots."""
        return ReceiverOts(self.choices[slots.start : slots.stop], self.keys.some(slots))


def planes(values: Residues, bits: int) -> Residues:
    """Return the lowest bits of values as planes, (bits, values / 64)."""
    rows = np.empty((bits, len(values) // 64), dtype=np.uint64)
    planes_into(rows, np.ascontiguousarray(values))
    return rows


Parts = list[Any]
"""Parts of a message: bytes or views of them."""

K = 4
"""Parameter k of SoftSpoken: 3.9 bytes a transfer."""
_NAME_BYTES = 32
OT_PROTOCOLS = ("softspoken", "silent")
"""Sources of transfers: made as they are asked for, or ahead, in millions, for a twentieth of the bytes."""


class OtSession:
    """A party's end of a session of oblivious transfers. Both extend in the same order, one message after the other.

    Args:
        sender: sender of transfers in which this party helps.
        receiver: receiver of those in which it chooses.
        session: name that both parties give it.
        opens: whether it is the party that speaks first.
    """

    def __init__(
        self,
        sender: softspoken.Sender | silent.Sender,
        receiver: softspoken.Receiver | silent.Receiver,
        session: bytes,
        opens: bool,
    ) -> None:
        self._sender, self._receiver, self._opens = sender, receiver, opens
        helping, choosing = _directions(session) if opens else _directions(session)[::-1]
        self._helping, self._choosing = TweakableHash(helping), TweakableHash(choosing)  # both count their rows from 0
        self._helped = self._chosen = 0

    @property
    def stock(self) -> tuple[float, float]:
        """Transfers that are left, those in which this party chooses and those in which it helps."""
        return self._receiver.stock, self._sender.stock

    def choose(self, slots: int, values: int) -> tuple[ReceiverOts, bytes]:
        """Return transfers in which this party chooses, and the message that the other party needs for its own.

        Raises:
            RuleError: the stock does not hold as many.
        """
        correlated, message = self._receiver.extend(slots * values)
        first, self._chosen = self._chosen, self._chosen + slots * values
        return ReceiverOts.of(correlated, values, self._choosing, first), message

    def help(self, slots: int, values: int, message: Message) -> SenderOts:
        """Return transfers in which the other party chooses; ``message``: its own.

        Raises:
            RuleError: the message has another length, or the other party cheats; the session must end. Or the stock
                does not hold as many.
        """
        correlated = self._sender.extend(slots * values, message)
        first, self._helped = self._helped, self._helped + slots * values
        return SenderOts.of(correlated, self._sender.delta, values, self._helping, first)

    def lacks(self, choose: int, help: int) -> tuple[int, int]:
        """Return the iterations that are needed: of the direction in which the session's opener helps, and the other.

        Args:
            choose: transfers in which this party is to choose.
            help: transfers in which it is to help.
        """
        helps, chooses = (
            math.ceil(max(lacking, 0) / silent.CODE.made)
            for lacking in (help - self._sender.stock, choose - self._receiver.stock)
        )
        return (helps, chooses) if self._opens else (chooses, helps)

    def refill(self, first: int = 1, second: int = 1) -> Generator[Parts, Parts, None]:
        """Fill the stock: messages with the other party, which does the same, one more each than iterations.

        The party that opened the session speaks first; the other yields an empty list first.

        Args:
            first: iterations of transfers in which the session's opener helps.
            second: iterations of those in which the other party does.

        Returns:
            nothing.

        Raises:
            RuleError: transfers are made as they are asked for; or a message has another length, or the other party
                cheats: the session must end.
        """
        sender, receiver = self._sender, self._receiver
        if not isinstance(sender, silent.Sender) or not isinstance(receiver, silent.Receiver):
            raise RuleError("transfers with a stock must be silent", got="softspoken", remedy="leave it out")
        helps, chooses = (first, second) if self._opens else (second, first)
        turns, received, answers = range(max(first, second) + 1), Parts(), Parts()
        if self._opens:
            for turn in turns:
                received = yield _help(sender, turn, helps, received[:1]) + answers
                answers = _choose(receiver, turn, chooses, received[turn < helps :])
        else:
            received = yield []
            for turn in turns:
                end = len(received) - (0 < turn <= helps)
                answers = _choose(receiver, turn, chooses, received[:end])
                received = yield answers + _help(sender, turn, helps, received[end:])


def _help(sender: silent.Sender, turn: int, iterations: int, answer: Parts) -> Parts:
    """Return a helper's message: the proof of the iteration before, whose answer it has, and the next one's offer."""
    proof = [sender.prove(answer[0])] if 0 < turn <= iterations else []
    return proof + ([sender.offer()] if turn < iterations else [])


def _choose(receiver: silent.Receiver, turn: int, iterations: int, message: Parts) -> Parts:
    """Return a chooser's answer to a helper's message."""
    if 0 < turn <= iterations:
        receiver.finish(message[0])
    return [receiver.answer(message[-1])] if turn < iterations else []


def message_bytes(source: str, slots: int, values: int) -> int:
    """Return the bytes of the message of :meth:`OtSession.choose`."""
    return softspoken.message_bytes(K, slots * values) if source == "softspoken" else 0


def refill_sizes(first: int, second: int) -> list[tuple[int, ...]]:
    """Return the bytes of each part of the messages of :meth:`OtSession.refill`, in turns; arguments as there."""
    offer, answer, proof = ((size,) for size in silent.CODE.message_bytes)
    messages: list[tuple[int, ...]] = []
    for turn in range(max(first, second) + 1):
        help_first, help_second = (proof * (0 < turn <= count) + offer * (turn < count) for count in (first, second))
        messages += [help_first + answer * (0 < turn <= second), answer * (turn < first) + help_second]
    return messages


def initiate(source: str = "softspoken") -> Generator[Parts, Parts, OtSession]:
    """Begin as the party that speaks first and names the session, at random.

    Args:
        source: one of :data:`OT_PROTOCOLS`.

    Returns:
        its end of the transfers.
    """
    session = os.urandom(_NAME_BYTES)
    first, second = _directions(session)
    sender = softspoken.Sender(K, first)
    received = yield [session, sender.hello]
    receiver = softspoken.Receiver(received[0], K, second)
    sender.begin(received[1])
    chooser, seeds = _choosing(receiver, source, second)
    yield [receiver.setup, *seeds]
    return OtSession(_helping(sender, source, first, received[2:]), chooser, session, opens=True)


def respond(source: str = "softspoken") -> Generator[Parts, Parts, OtSession]:
    """Begin as the party that answers: an empty list is yielded first.

    Args:
        source: as with the other party.

    Returns:
        its end of the transfers.
    """
    received = yield []
    check_length(received[0], _NAME_BYTES, "a session's name")
    session = bytes(received[0])
    first, second = _directions(session)
    sender = softspoken.Sender(K, second)
    receiver = softspoken.Receiver(received[1], K, first)
    chooser, seeds = _choosing(receiver, source, first)
    received = yield [sender.hello, receiver.setup, *seeds]
    sender.begin(received[0])
    yield []
    return OtSession(_helping(sender, source, second, received[1:]), chooser, session, opens=False)


def setup_sizes(source: str) -> list[tuple[int, ...]]:
    """Return the bytes of each part of the messages of :func:`opening` and :func:`answering`, in turns."""
    hello, setup = softspoken.setup_bytes(K)
    seeds = (softspoken.message_bytes(K, silent.CODE.spent),) if source == "silent" else ()
    return [(_NAME_BYTES, hello), (hello, setup, *seeds), (setup, *seeds), ()]


def given(transfers: OtSession | None) -> OtSession:
    """Return transfers that there must be.

    Raises:
        Interrupted: there are none.
    """
    if transfers is None:
        rule, remedy = "oblivious transfers must be begun before they are used", "prepare again"
        raise Interrupted(rule, got="none", remedy=remedy)
    return transfers


def _directions(session: bytes) -> tuple[bytes, bytes]:
    """Return the names of transfers in which who opened the session helps, and of those in which it chooses."""
    return session + b"first", session + b"second"


def _choosing(
    receiver: softspoken.Receiver, source: str, session: bytes
) -> tuple[softspoken.Receiver | silent.Receiver, Parts]:
    """Return the receiver of a source, and what makes the other party its sender."""
    if source not in OT_PROTOCOLS:
        rule = "the source of transfers must be softspoken or silent"
        raise RuleError(rule, got=source, remedy="silent sends a twentieth of the bytes, ahead")
    if source == "softspoken":
        return receiver, []
    correlated, message = receiver.extend(silent.CODE.spent)
    return silent.Receiver(correlated, session), [message]


def _helping(sender: softspoken.Sender, source: str, session: bytes, seeds: Parts) -> softspoken.Sender | silent.Sender:
    """Return the sender of a source; ``seeds``: of the other party."""
    if source == "softspoken":
        return sender
    return silent.Sender(sender.extend(silent.CODE.spent, seeds[0]), sender.delta, session)
