"""Turns: which messages a node takes, who sends each, how long it is; and how the two parties take them.

A node has turns in its *exchange*, which is done ahead of an image or with the image's own shares: the client begins,
and each pair of turns is a request and its reply. It has turns *online*, with the image and what was kept of an
exchange: the server begins, because the message before was the client's. Both parties know all turns from the public
description, so the scheduling of messages, their sizes and their number follow from these lists.

What a party does in its turns is a generator, its *side*. Who begins yields the parts of a message and is sent those of
the answer. Who answers yields an empty list first, is sent the parts of a message and yields those of the answer; what
follows its last answer is done before that is sent. A side returns its result.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from privcirnet.he.protocol.framing import wire

Sender = Literal["client", "server"]
T = TypeVar("T")
PartyCoroutine = Generator[list[Any], list[Any], T]
"""Parts of messages either way: bytes, or views of them online."""
Measured = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class MessageSpec:
    """A message, or a node's part of one.

    Attributes:
        ciphertexts: how many, each a part of the message.
        octets: bytes of each part that is no ciphertext.
    """

    sender: Sender
    ciphertexts: int = 0
    octets: tuple[int, ...] = ()

    @property
    def parts(self) -> int:
        """Parts of the message."""
        return self.ciphertexts + len(self.octets)

    def sizes(self, ciphertext: int) -> list[int]:
        """Return the most bytes of each part; ``ciphertext``: of a ciphertext."""
        return [ciphertext] * self.ciphertexts + [*self.octets]


def one_trip(ciphertexts_up: int, ciphertexts_down: int) -> tuple[MessageSpec, MessageSpec]:
    """Return the turns of one request and one reply of ciphertexts."""
    return MessageSpec("client", ciphertexts_up), MessageSpec("server", ciphertexts_down)


def alternating(first: Sender, sizes: Iterable[tuple[int, ...]]) -> tuple[MessageSpec, ...]:
    """Return turns of so many bytes in each part, one party's after the other's; ``first``: who begins."""
    senders: tuple[Sender, Sender] = ("client", "server") if first == "client" else ("server", "client")
    return tuple(MessageSpec(senders[i % 2], octets=octets) for i, octets in enumerate(sizes))


def trips(turns: Sequence[MessageSpec], first: Sender = "client") -> list[tuple[MessageSpec, MessageSpec]]:
    """Return the messages and their answers; ``first``: who begins.

    >>> len(trips(one_trip(2, 3)))
    1
    """
    found = [*zip(turns[::2], turns[1::2], strict=True)]
    if any(asking.sender != first or answering.sender == first for asking, answering in found):
        raise ValueError(f"turns must alternate, and the {first}'s be first: {turns}")
    return found


def joined(turns: Iterable[MessageSpec], sender: Sender) -> MessageSpec:
    """Return the turns of several nodes as one message."""
    each = [*turns]
    return MessageSpec(
        sender, sum(turn.ciphertexts for turn in each), tuple(size for turn in each for size in turn.octets)
    )


def joined_trips(each: Sequence[Sequence[tuple[MessageSpec, MessageSpec]]]) -> list[tuple[MessageSpec, MessageSpec]]:
    """Return the messages and answers of several nodes together: those of fewer trips have no part in the last."""
    found = list[tuple[MessageSpec, MessageSpec]]()
    for trip in range(max(map(len, each), default=0)):
        now = [pairs[trip] for pairs in each if trip < len(pairs)]
        asking, answering = ([pair[which] for pair in now] for which in (0, 1))
        found.append((joined(asking, asking[0].sender), joined(answering, answering[0].sender)))
    return found


def say(side: PartyCoroutine[T], told: list[Any] | None) -> list[Any]:
    """Return the parts of a side's next message; ``told``: those of the other party's last one, None at the start."""
    return next(side) if told is None else side.send(told)


def end(side: PartyCoroutine[T], told: list[Any] | None = None) -> T:
    """Return a side's result; ``told``: the parts of the last message, None if the side sent it or there was none."""
    try:
        say(side, told)
    except StopIteration as finished:
        return finished.value
    raise ValueError("a side takes more turns than there are")


def asking_together(
    sides: Sequence[PartyCoroutine[T]],
    each: Sequence[Sequence[tuple[MessageSpec, MessageSpec]]],
    apply: Callable[[Callable[[int], Any], Sequence[int]], list[Any]] = lambda function, which: [*map(function, which)],
) -> PartyCoroutine[list[T]]:
    """Take the turns of who begins, in the same messages.

    Args:
        each: the messages and answers of each.
        apply: calls a function with the numbers of some sides.

    Returns:
        the result of each side.
    """
    told: list[list[Any] | None] = [None] * len(sides)
    for trip in range(max(map(len, each), default=0)):
        now = [index for index, pairs in enumerate(each) if trip < len(pairs)]
        said = apply(lambda index: say(sides[index], told[index]), now)
        answers = iter((yield [part for parts in said for part in parts]))
        for index in now:
            told[index] = [next(answers) for _ in range(each[index][trip][1].parts)]
    return apply(lambda index: end(sides[index], told[index]), range(len(sides)))


def answering_together(
    sides: Sequence[PartyCoroutine[T]],
    each: Sequence[Sequence[tuple[MessageSpec, MessageSpec]]],
    measured: Callable[[int], AbstractContextManager[None]] = lambda index: nullcontext(),
) -> PartyCoroutine[list[T]]:
    """Take the turns of who answers; as :func:`asking_together`.

    Args:
        measured: a context for what a side does, by its number.

    Returns:
        the result of each side.
    """
    for side in sides:
        next(side)
    results, asked = dict[int, T](), iter((yield []))
    for trip in range(max(map(len, each), default=0)):
        said = list[Any]()
        for index, pairs in enumerate(each):
            if trip < len(pairs):
                with measured(index):
                    said += sides[index].send([next(asked) for _ in range(pairs[trip][0].parts)])
                    if trip == len(pairs) - 1:
                        results[index] = end(sides[index])
        asked = iter((yield said) or ())
    return [results[index] for index in range(len(sides))]


def run_initiator(
    side: PartyCoroutine[T],
    position: int,
    pairs: Sequence[tuple[MessageSpec, MessageSpec]],
    measured: Measured = nullcontext,
    view: Callable[[bytes], Any] = bytes,
) -> Generator[bytes, bytes, T]:
    """Take the turns of who begins.

    Args:
        position: what the messages are about.
        pairs: of :func:`trips`.
        measured: a context for whatever the side does.
        view: of a message, bytes or memoryview, of which the parts are given to the side.

    Yields:
        messages; the generator is sent the answer to each.

    Returns:
        the side's result.

    Raises:
        RuleError: an answer is not about this, or has other parts than its turn.
    """
    told = None
    for _, theirs in pairs:
        with measured():
            message = wire.frame(position, say(side, told))
        answer = yield message
        with measured():
            told = wire.unframe(view(answer), position, theirs.parts)
    with measured():
        return end(side, told)


def run_responder(
    side: PartyCoroutine[T],
    message: bytes,
    position: int,
    pairs: Sequence[tuple[MessageSpec, MessageSpec]],
    measured: Measured = nullcontext,
    view: Callable[[bytes], Any] = bytes,
) -> Generator[bytes, bytes, tuple[T, bytes]]:
    """Take the turns of who answers; arguments as of :func:`opened`.

    Args:
        message: the first one, from who begins.

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
