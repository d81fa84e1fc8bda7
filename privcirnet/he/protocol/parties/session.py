"""An inference from the client's side: its requests, and a handler that replies, in this process or far away."""

import time
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from privcirnet.he.layers.integer import Values
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import ServedClient
from privcirnet.he.protocol.parties.client import Client

T = TypeVar("T")


class Handler(Protocol):
    """A handler of a client's requests: a server's session, or a connection to one."""

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a request.

        Raises:
            RuleError: it is not the request that is due.
        """
        ...


@dataclass(frozen=True)
class Traffic:
    """The messages of one round.

    Attributes:
        position: position of the node in the program; :data:`wire.OUTPUT` for the last one.
        up: bytes from client to server.
        down: bytes from server to client.
        seconds: time from the request to its reply, as the client sees it.
    """

    position: int
    up: int
    down: int
    seconds: float = field(default=0.0, compare=False)


ExchangeProgress = Callable[[Traffic], object]


def run(
    client: ServedClient, session: Handler, image: Values, progress: ExchangeProgress = lambda exchange: None
) -> tuple[Values, list[Traffic]]:
    """Return the logits of one image and the traffic for them.

    Args:
        image: integers of the program's input shape.

    Returns:
        (logits as integers in units of the output's step, traffic of each round).

    Raises:
        RuleError: the image does not fit the program, or either party refuses the other's message.
    """
    return _conversed(client.infer(image), session, progress)


def prepare(
    client: Client, session: Handler, count: int = 1, progress: ExchangeProgress = lambda exchange: None
) -> list[Traffic]:
    """Return the traffic of each round, after all encrypted work for some images to come.

    Raises:
        RuleError: there is no room, or either party refuses the other's message.
    """
    return _conversed(client.prepare(count), session, progress)[1]


def agree(client: ServedClient, session: Handler) -> None:
    """Drop the prepared work that only one party has.

    Raises:
        RuleError: either party refuses the other's message.
    """
    _conversed(client.agree(), session, lambda exchange: None)


def _conversed(
    exchange: Generator[bytes, bytes, T], session: Handler, progress: ExchangeProgress
) -> tuple[T, list[Traffic]]:
    """Return the result of a client's generator, and the traffic of each round."""
    traffic: list[Traffic] = []
    with closing(exchange):  # what it has begun is undone now where it is left in the middle
        message = next(exchange)
        while True:
            started = time.perf_counter()
            reply = session.handle(message)
            seconds = time.perf_counter() - started
            traffic.append(Traffic(wire.position_of(message), len(message), len(reply), seconds))
            progress(traffic[-1])
            try:
                message = exchange.send(reply)
            except StopIteration as finished:
                return finished.value, traffic
