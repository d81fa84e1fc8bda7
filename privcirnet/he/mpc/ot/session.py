"""Oblivious transfers of two parties in both directions, as one of them has them, from the first message on."""

from collections.abc import Generator
from typing import Any

from privcirnet.he.mpc.ot.ciphers import Hash
from privcirnet.he.mpc.ot.keys import Chosen, Offered
from privcirnet.he.mpc.ot.softspoken import Receiver, Sender
from privcirnet.he.rlwe.wire_bytes import Message

Parts = list[Any]
"""Of a message: bytes or views of them."""

K = 4
"""Of SoftSpoken: 3.9 bytes a transfer."""


class Transfers:
    """One party's end. Both parties extend in the same order, one message after the other.

    Args:
        sender: of transfers in which this party helps.
        receiver: of those in which it chooses.
        session: as both parties call it.
    """

    def __init__(self, sender: Sender, receiver: Receiver, session: bytes) -> None:
        self._sender, self._receiver, self._hash = sender, receiver, Hash(session)
        self._helped = self._chosen = 0

    def choose(self, slots: int, values: int) -> tuple[Chosen, bytes]:
        """Return transfers in which this party chooses, and the message that the other one makes its own of."""
        made, message = self._receiver.extend(slots * values)
        first, self._chosen = self._chosen, self._chosen + slots * values
        return Chosen.of(made, values, self._hash, first), message

    def help(self, slots: int, values: int, message: Message) -> Offered:
        """Return transfers in which the other party chooses; ``message``: its own.

        Raises:
            RuleError: the message has another length, or the other party cheats; the session must end.
        """
        made = self._sender.extend(slots * values, message)
        first, self._helped = self._helped, self._helped + slots * values
        return Offered.of(made, self._sender.delta, values, self._hash, first)


def opening(session: bytes, k: int = K) -> Generator[Parts, Parts, Transfers]:
    """Begin, as who speaks first.

    Args:
        session: random, for this session alone.
        k: of SoftSpoken.

    Returns:
        its end of the transfers.
    """
    sender = Sender(k, session + b"first")
    told = yield [sender.hello]
    receiver = Receiver(told[0], k, session + b"second")
    sender.begin(told[1])
    yield [receiver.setup]
    return Transfers(sender, receiver, session)


def answering(session: bytes, k: int = K) -> Generator[Parts, Parts, Transfers]:
    """Begin, as who answers: an empty list is yielded first.

    Args:
        session: as the other party's.
        k: likewise.

    Returns:
        its end of the transfers.
    """
    told = yield []
    sender, receiver = Sender(k, session + b"second"), Receiver(told[0], k, session + b"first")
    told = yield [sender.hello, receiver.setup]
    sender.begin(told[0])
    yield []
    return Transfers(sender, receiver, session)
