"""Two parties of an exchange with recorded transfers, one message of which is changed on its way."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from privcirnet.he.mpc.ot.session import OtSession
from privcirnet.he.protocol.rounds.exchange import Exchange, PreparedNode
from privcirnet.he.protocol.rounds.message_specs import MessageSpec, PartyCoroutine, run_initiator, run_responder, trips
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import check_length
from tests.he.mpc.transfers import both
from tests.he.protocol import mutations
from tests.he.protocol.mutations import HEADER, LENGTH, Honest

POSITION = 3
Change = Callable[[int, bytes], bytes]
"""Of a message, by its number."""


class Recorded:
    """A party's end of transfers that were made once: the same ones, and the same messages, from the start each time.

    A message of the right length is taken: one that another party made would have to pass a check before.
    """

    def __init__(self, transfers: OtSession | None = None, record: list[Any] | None = None) -> None:
        self._transfers, self.record = transfers, [] if record is None else record
        self._next = 0

    def again(self) -> "Recorded":
        """The same transfers."""
        return Recorded(record=self.record)

    def lacks(self, choose: int, help: int) -> tuple[int, int]:
        """The iterations that are needed: none."""
        del choose, help
        return 0, 0

    def choose(self, slots: int, values: int) -> Any:
        if self._transfers is not None:
            self.record.append(self._transfers.choose(slots, values))
        return self._taken()

    def help(self, slots: int, values: int, message: Any) -> Any:
        if self._transfers is not None:
            self.record.append((self._transfers.help(slots, values, message), len(message)))
        offered, length = self._taken()
        check_length(message, length, "an extension of oblivious transfers")
        return offered

    def _taken(self) -> Any:
        self._next += 1
        return self.record[self._next - 1]


def conversation(
    first: PartyCoroutine[Any],
    second: PartyCoroutine[Any],
    pairs: Sequence[tuple[MessageSpec, MessageSpec]],
    change: Change,
) -> tuple[Any, Any]:
    """The results of who begins and of who answers."""
    asking, number = run_initiator(first, POSITION, pairs), 0
    answering: Generator[bytes, bytes, tuple[Any, bytes]] | None = None
    message = next(asking)
    while True:
        message, number = change(number, message), number + 1
        if answering is None:
            answering = run_responder(second, message, POSITION, pairs)
            message = next(answering)
        else:
            message = answering.send(message)
        message, number = change(number, message), number + 1
        try:
            message = asking.send(message)
        except StopIteration as ended:
            result = ended.value
            break
    try:
        answering.send(b"")
    except StopIteration as ended:
        return result, ended.value[0]
    raise AssertionError("it takes more turns")


@dataclass
class Recording:
    """An exchange, ahead and with an image, with all messages of an honest run.

    Attributes:
        ahead: how many of the messages come before the image.
    """

    exchange: Exchange
    t: int

    def __post_init__(self) -> None:
        random, shape = np.random.default_rng(0), self.exchange.online.shape
        self.share, self.chosen, self.image = (random.integers(0, self.t, shape).astype(np.uint64) for _ in range(3))
        client, server = map(Recorded, both())
        self.offline = trips(self.exchange.plan.turns)
        self.online = trips(self.exchange.online.turns(self.t), "server")
        self.ahead, self.messages = 2 * len(self.offline), list[bytes]()
        self.result = self.run(lambda _, message: self.messages.append(message) or message, (client, server))
        self.transfers = client, server

    def run(self, change: Change, transfers: tuple[Recorded, Recorded] | None = None) -> Residues:
        """The server's share of the result."""
        client, server = transfers or (one.again() for one in self.transfers)
        part = self.exchange.online
        ours = self.exchange.client([self.share], None, client)
        theirs = self.exchange.server(PreparedNode(), [None], None, None, server)
        client_end, server_end = conversation(ours, theirs, self.offline, change)
        client_keeps = part.keep_client(self.chosen, client_end, self.t)
        server_keeps = part.keep_server([], server_end, self.t)
        asked = part.server(None, server_keeps, [self.image], self.t)
        answers = part.client(client_keeps, [self.share], self.t)
        with_image = conversation(
            asked, answers, self.online, lambda number, message: change(self.ahead + number, message)
        )
        return with_image[0]


def mutated(content: bytes, others: list[bytes], random: Random) -> bytes:
    """A message of the party that deviates."""
    starts = [place for place, length in mutations._part_starts(content) if length]
    if starts and random.random() < 0.3:  # numbers at their extremes
        place = random.choice(starts)
        stop = place + LENGTH + int.from_bytes(content[place : place + LENGTH], "little")
        size = random.choice((1, 8, stop - place - LENGTH))
        start = random.choice((place + LENGTH, max(place + LENGTH, stop - size)))
        return content[:start] + random.choice((b"\0", b"\xff")) * min(size, stop - start) + content[start + size :]
    return mutations.message(Honest(content, [], [], others), random)


def framed_alike(message: bytes, honest: bytes) -> bool:
    """Whether a message is about the same, in parts of the same lengths."""
    starts = [0, *(place for place, _ in mutations._part_starts(honest))]
    sizes = [HEADER, *[LENGTH] * (len(starts) - 1)]
    each = zip(starts, sizes, strict=True)
    return len(message) == len(honest) and all(message[s : s + size] == honest[s : s + size] for s, size in each)
