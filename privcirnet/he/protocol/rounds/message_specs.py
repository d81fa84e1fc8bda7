"""Turns: the messages of a node with their senders and sizes; and the two parties' steps through them.

A node has turns in its *exchange*, which is done ahead of an image or with the image's own shares: the client begins,
and each pair of turns is a request and its reply. It has turns *online*, with the image and what was kept of an
exchange: the server begins, because the message before was the client's. Both parties know all turns from the public
description, so the scheduling of messages, their sizes and their number follow from these lists.

A party's *side* is a generator of its turns. The initiator yields the parts of a message and is sent those of
the answer. The responder yields an empty list first, is sent the parts of a message and yields those of the answer;
code after its last answer runs before that is sent. A side returns its result.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from privcirnet.he.protocol import wire

Sender = Literal["client", "server"]
T = TypeVar("T")
PartyCoroutine = Generator[list[Any], list[Any], T]
"""Parts of messages either way: bytes, or views of them online."""
Measured = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class MessageSpec:
    """A message, or a node's part of one.

    Attributes:
        ciphertexts: number of ciphertexts, each a part of the message.
        octets: bytes of each part that is no ciphertext.
    """

    sender: Sender
    ciphertexts: int = 0
    octets: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """The number of parts of the message."""
        return self.ciphertexts + len(self.octets)

    def sizes(self, ciphertext: int) -> list[int]:
        """Return the most bytes of each part; ``ciphertext``: bytes of a ciphertext."""
        return [ciphertext] * self.ciphertexts + [*self.octets]


Trip = tuple[MessageSpec, MessageSpec]
"""A message and its answer."""


def one_trip(ciphertexts_up: int, ciphertexts_down: int) -> Trip:
    """Return the turns of one request and one reply of ciphertexts."""
    return MessageSpec("client", ciphertexts_up), MessageSpec("server", ciphertexts_down)


def alternating(first: Sender, sizes: Iterable[tuple[int, ...]]) -> tuple[MessageSpec, ...]:
    """Return alternating turns with these bytes in each part; ``first``: initiator."""
    senders: tuple[Sender, Sender] = ("client", "server") if first == "client" else ("server", "client")
    return tuple(MessageSpec(senders[i % 2], octets=octets) for i, octets in enumerate(sizes))


def trips(turns: Sequence[MessageSpec], first: Sender = "client") -> list[Trip]:
    """Return the messages and their answers; ``first``: initiator.

    >>> len(trips(one_trip(2, 3)))
    1
    """
    pairs = [*zip(turns[::2], turns[1::2], strict=True)]
    if any(asking.sender != first or answering.sender == first for asking, answering in pairs):
        raise ValueError(f"turns must alternate, and the {first}'s be first: {turns}")
    return pairs


def joined(turns: Iterable[MessageSpec], sender: Sender) -> MessageSpec:
    """Return the turns of several nodes as one message."""
    specs = [*turns]
    return MessageSpec(
        sender, sum(turn.ciphertexts for turn in specs), tuple(size for turn in specs for size in turn.octets)
    )


SharedTrip = Mapping[int, Trip]
"""A message and its answer that several nodes share: their own parts of both, by the nodes' numbers."""


def in_step(node_trips: Sequence[Sequence[Trip]]) -> list[SharedTrip]:
    """Return the messages of nodes that begin together: those of fewer trips have no part in the last."""
    longest = max(map(len, node_trips), default=0)
    return [
        {number: pairs[trip] for number, pairs in enumerate(node_trips) if trip < len(pairs)} for trip in range(longest)
    ]


def joined_trip(shared: SharedTrip) -> Trip:
    """Return the whole message and answer of some nodes, one or more."""
    asking, answering = zip(*shared.values(), strict=True)
    return joined(asking, asking[0].sender), joined(answering, answering[0].sender)


def parted(parts: Iterable[Any], shared: SharedTrip, answers: bool) -> dict[int, list[Any]]:
    """Return the parts of a message by the numbers of their nodes; ``answers``: whether it is the answer."""
    following = iter(parts)
    return {number: [next(following) for _ in range(pair[answers].parts)] for number, pair in shared.items()}


def say(side: PartyCoroutine[T], received: list[Any] | None) -> list[Any]:
    """Return the parts of a side's next message; ``received``: those of the peer's last one, None at the start."""
    return next(side) if received is None else side.send(received)


def end(side: PartyCoroutine[T], received: list[Any] | None = None) -> T:
    """Return a side's result; ``received``: parts of the last message, None if the side sent it or there was none."""
    try:
        say(side, received)
    except StopIteration as finished:
        return finished.value
    raise ValueError("a side takes more turns than there are")


def _in_order(function: Callable[[int], Any], numbers: Sequence[int]) -> list[Any]:
    return [function(number) for number in numbers]


def ask(
    sides: Mapping[int, PartyCoroutine[Any]],
    shared: SharedTrip,
    received: dict[int, list[Any]],
    apply: Callable[[Callable[[int], Any], Sequence[int]], list[Any]] = _in_order,
) -> PartyCoroutine[None]:
    """Take a turn of some initiators, in the same message.

    Args:
        sides: sides by number.
        received: parts of the last answer to each side; none before its first turn. Changed here.
        apply: function that calls another with the numbers of some sides.

    Returns:
        nothing.
    """
    sent = apply(lambda number: say(sides[number], received.get(number)), [*shared])
    received |= parted((yield [part for parts in sent for part in parts]), shared, True)


def asking_together(
    sides: Sequence[PartyCoroutine[T]],
    node_trips: Sequence[Sequence[Trip]],
    apply: Callable[[Callable[[int], Any], Sequence[int]], list[Any]] = _in_order,
) -> PartyCoroutine[list[T]]:
    """Take the turns of initiators that begin together, in the same messages.

    Args:
        node_trips: messages and answers of each side.
        apply: function that calls another with the numbers of some sides.

    Returns:
        the result of each side.
    """
    by_number, received = dict(enumerate(sides)), dict[int, list[Any]]()
    for shared in in_step(node_trips):
        yield from ask(by_number, shared, received, apply)
    return apply(lambda number: end(sides[number], received.get(number)), range(len(sides)))


def answering_together(
    sides: Sequence[PartyCoroutine[T]],
    node_trips: Sequence[Sequence[Trip]],
    measured: Callable[[int], AbstractContextManager[None]] = lambda number: nullcontext(),
) -> PartyCoroutine[list[T]]:
    """Take the responders' turns, in the same messages; see :func:`asking_together`.

    Args:
        measured: function that returns a context for a side's work, by its number.

    Returns:
        the result of each side.
    """
    for side in sides:
        next(side)
    results, received = dict[int, T](), (yield [])
    for trip, shared in enumerate(in_step(node_trips), 1):
        sent = list[Any]()
        for number, parts in parted(received, shared, False).items():
            with measured(number):
                sent += sides[number].send(parts)
                if trip == len(node_trips[number]):
                    results[number] = end(sides[number])
        received = (yield sent) or []
    return [results[number] for number in range(len(sides))]


def run_initiator(
    side: PartyCoroutine[T],
    position: int,
    pairs: Sequence[Trip],
    measured: Measured = nullcontext,
    view: Callable[[bytes], Any] = bytes,
) -> Generator[bytes, bytes, T]:
    """Take the initiator's turns.

    Args:
        position: position that the messages are about.
        pairs: result of :func:`trips`.
        measured: function that returns a context for the side's work.
        view: view of a message, bytes or memoryview, whose parts the side gets.

    Yields:
        messages; the generator is sent the answer to each.

    Returns:
        the side's result.

    Raises:
        RuleError: an answer is not about this, or has other parts than its turn.
    """
    received = None
    for _, theirs in pairs:
        with measured():
            message = wire.frame(position, say(side, received))
        answer = yield message
        with measured():
            received = wire.unframe(view(answer), position, theirs.parts)
    with measured():
        return end(side, received)


def run_responder(
    side: PartyCoroutine[T],
    message: bytes,
    position: int,
    pairs: Sequence[Trip],
    measured: Measured = nullcontext,
    view: Callable[[bytes], Any] = bytes,
) -> Generator[bytes, bytes, tuple[T, bytes]]:
    """Take the responder's turns; for the arguments see :func:`run_initiator`.

    Args:
        message: the initiator's first message.

    Yields:
        answers; the generator is sent the message after each.

    Returns:
        (the side's result, the message after the last answer).

    Raises:
        RuleError: a message is not about this, or has other parts than its turn.
    """
    next(side)
    for theirs, _ in pairs[:-1]:
        with measured():
            answer = wire.frame(position, side.send(wire.unframe(view(message), position, theirs.parts)))
        message = yield answer
    with measured():
        answer = wire.frame(position, side.send(wire.unframe(view(message), position, pairs[-1][0].parts)))
        result = end(side)
    return result, (yield answer)
