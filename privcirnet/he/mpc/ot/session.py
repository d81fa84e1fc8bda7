"""Oblivious transfers of two parties in both directions, as one of them has them, from the first message on."""

import os
from collections.abc import Generator
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import silent, softspoken
from privcirnet.he.mpc.ot.ciphers import Hash
from privcirnet.he.mpc.ot.keys import Chosen, Offered
from privcirnet.he.rlwe.wire_bytes import Message, check_length

Parts = list[Any]
"""Of a message: bytes or views of them."""

K = 4
"""Of SoftSpoken: 3.9 bytes a transfer."""
_NAME_BYTES = 32
SOURCES = ("softspoken", "silent")
"""Where transfers come from: made as they are asked for, or ahead, in millions, for a fortieth of the bytes."""


class Transfers:
    """One party's end. Both parties extend in the same order, one message after the other.

    Args:
        sender: of transfers in which this party helps.
        receiver: of those in which it chooses.
        session: as both parties call it.
        opens: it is the party that speaks first.
    """

    def __init__(
        self,
        sender: softspoken.Sender | silent.Sender,
        receiver: softspoken.Receiver | silent.Receiver,
        session: bytes,
        opens: bool,
    ) -> None:
        self._sender, self._receiver, self._hash, self._opens = sender, receiver, Hash(session), opens
        self._helped = self._chosen = 0

    @property
    def stock(self) -> tuple[float, float]:
        """Transfers that are left, those in which this party chooses and those in which it helps."""
        return self._receiver.stock, self._sender.stock

    @staticmethod
    def message_bytes(slots: int, values: int) -> int:
        """Return the bytes of the message of :meth:`choose`, of transfers that are made as they are asked for."""
        return softspoken.message_bytes(K, slots * values)

    def choose(self, slots: int, values: int) -> tuple[Chosen, bytes]:
        """Return transfers in which this party chooses, and the message that the other one makes its own of.

        Raises:
            RuleError: the stock does not hold as many.
        """
        made, message = self._receiver.extend(slots * values)
        first, self._chosen = self._chosen, self._chosen + slots * values
        return Chosen.of(made, values, self._hash, first), message

    def help(self, slots: int, values: int, message: Message) -> Offered:
        """Return transfers in which the other party chooses; ``message``: its own.

        Raises:
            RuleError: the message has another length, or the other party cheats; the session must end. Or the stock
                does not hold as many.
        """
        made = self._sender.extend(slots * values, message)
        first, self._helped = self._helped, self._helped + slots * values
        return Offered.of(made, self._sender.delta, values, self._hash, first)

    def refill(self) -> Generator[Parts, Parts, None]:
        """Fill the stock, in both directions: a few messages with the other party, which does the same.

        Who opened the session speaks first; of the other, an empty list is yielded first.

        Raises:
            RuleError: transfers are made as they are asked for; or a message has another length, or the other party
                cheats: the session must end.
        """
        sender, receiver = self._sender, self._receiver
        if not isinstance(sender, silent.Sender) or not isinstance(receiver, silent.Receiver):
            raise RuleError("transfers with a stock must be silent", got="softspoken", remedy="leave it out")
        if self._opens:
            told = yield [sender.offer()]
            told = yield [sender.prove(told[0]), receiver.answer(told[1])]
            receiver.finish(told[0])
        else:
            told = yield []
            told = yield [receiver.answer(told[0]), sender.offer()]
            receiver.finish(told[0])
            yield [sender.prove(told[1])]


def opening(k: int = K, source: str = "softspoken") -> Generator[Parts, Parts, Transfers]:
    """Begin, as who speaks first and names the session, at random.

    Args:
        k: of SoftSpoken.
        source: one of ``SOURCES``.

    Returns:
        its end of the transfers.
    """
    session = os.urandom(_NAME_BYTES)
    sender = softspoken.Sender(k, session + b"first")
    told = yield [session, sender.hello]
    receiver = softspoken.Receiver(told[0], k, session + b"second")
    sender.begin(told[1])
    chosen, seeds = _choosing(receiver, source, session + b"second")
    yield [receiver.setup, *seeds]
    return Transfers(_helping(sender, source, session + b"first", told[2:]), chosen, session, opens=True)


def answering(k: int = K, source: str = "softspoken") -> Generator[Parts, Parts, Transfers]:
    """Begin, as who answers: an empty list is yielded first.

    Args:
        k: as the other party's.
        source: likewise.

    Returns:
        its end of the transfers.
    """
    told = yield []
    check_length(told[0], _NAME_BYTES, "a session's name")
    session = bytes(told[0])
    sender = softspoken.Sender(k, session + b"second")
    receiver = softspoken.Receiver(told[1], k, session + b"first")
    chosen, seeds = _choosing(receiver, source, session + b"first")
    told = yield [sender.hello, receiver.setup, *seeds]
    sender.begin(told[0])
    yield []
    return Transfers(_helping(sender, source, session + b"second", told[1:]), chosen, session, opens=False)


def setup_sizes() -> list[tuple[int, ...]]:
    """Return the bytes of each part of the messages of :func:`opening` and :func:`answering`, in turns."""
    hello, setup = softspoken.setup_bytes(K)
    return [(_NAME_BYTES, hello), (hello, setup), (setup,), ()]


def given(transfers: Transfers | None) -> Transfers:
    """Return transfers that there must be.

    Raises:
        RuleError: there are none.
    """
    if transfers is None:
        raise RuleError("oblivious transfers must be begun before they are used", got="none", remedy="connect again")
    return transfers


def _choosing(
    receiver: softspoken.Receiver, source: str, session: bytes
) -> tuple[softspoken.Receiver | silent.Receiver, Parts]:
    """Return the receiver of a source, and what makes the other party its sender."""
    if source not in SOURCES:
        rule = "the source of transfers must be softspoken or silent"
        raise RuleError(rule, got=source, remedy="silent sends a fortieth of the bytes, ahead")
    if source == "softspoken":
        return receiver, []
    made, message = receiver.extend(silent.CODE.spent)
    return silent.Receiver(made, session), [message]


def _helping(sender: softspoken.Sender, source: str, session: bytes, seeds: Parts) -> softspoken.Sender | silent.Sender:
    """Return the sender of a source; ``seeds``: of the other party."""
    if source == "softspoken":
        return sender
    return silent.Sender(sender.extend(silent.CODE.spent, seeds[0]), sender.delta, session)
