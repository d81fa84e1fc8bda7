"""Oblivious transfers of two parties in both directions, as one of them has them, from the first message on."""

from collections.abc import Generator
from typing import Any

from privcirnet.errors import RuleError
from privcirnet.he.mpc.ot import silent, softspoken
from privcirnet.he.mpc.ot.ciphers import Hash
from privcirnet.he.mpc.ot.keys import Chosen, Offered
from privcirnet.he.rlwe.wire_bytes import Message

Parts = list[Any]
"""Of a message: bytes or views of them."""

K = 4
"""Of SoftSpoken: 3.9 bytes a transfer."""
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


def opening(session: bytes, k: int = K, source: str = "softspoken") -> Generator[Parts, Parts, Transfers]:
    """Begin, as who speaks first.

    Args:
        session: random, for this session alone.
        k: of SoftSpoken.
        source: one of ``SOURCES``.

    Returns:
        its end of the transfers.
    """
    sender = softspoken.Sender(k, session + b"first")
    told = yield [sender.hello]
    receiver = softspoken.Receiver(told[0], k, session + b"second")
    sender.begin(told[1])
    chosen, seeds = _choosing(receiver, source, session + b"second")
    yield [receiver.setup, *seeds]
    return Transfers(_helping(sender, source, session + b"first", told[2:]), chosen, session, opens=True)


def answering(session: bytes, k: int = K, source: str = "softspoken") -> Generator[Parts, Parts, Transfers]:
    """Begin, as who answers: an empty list is yielded first.

    Args:
        session: as the other party's.
        k: likewise.
        source: likewise.

    Returns:
        its end of the transfers.
    """
    told = yield []
    sender = softspoken.Sender(k, session + b"second")
    receiver = softspoken.Receiver(told[0], k, session + b"first")
    chosen, seeds = _choosing(receiver, source, session + b"first")
    told = yield [sender.hello, receiver.setup, *seeds]
    sender.begin(told[0])
    yield []
    return Transfers(_helping(sender, source, session + b"second", told[1:]), chosen, session, opens=False)


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
