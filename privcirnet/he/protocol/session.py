"""One inference from the client's side: its requests, and whoever answers them, in this process or far away."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from privcirnet.he.encodings.integer import Values
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.client import Client


class Answering(Protocol):
    """A server's session, or a connection to one."""

    def handle(self, message: bytes) -> bytes:
        """The answer to a request."""
        ...


@dataclass(frozen=True)
class Traffic:
    """One exchange.

    Attributes:
        position: the node's position in the program; :data:`wire.OUTPUT` for the last one.
        up: bytes from client to server.
        down: bytes from server to client.
        seconds: from the request to its answer, as the client sees it.
    """

    position: int
    up: int
    down: int
    seconds: float = field(default=0.0, compare=False)


ExchangeProgress = Callable[[Traffic], object]


def run(
    client: Client, session: Answering, image: Values, progress: ExchangeProgress = lambda exchange: None
) -> tuple[Values, list[Traffic]]:
    """One inference.

    Args:
        client: the client.
        session: the server's session with it.
        image: integers, the program's input shape.
        progress: called after each exchange.

    Returns:
        (logits as integers in units of the output's step, traffic of each exchange).
    """
    exchange = client.infer(image)
    traffic: list[Traffic] = []
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
