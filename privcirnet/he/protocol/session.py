"""Both parties in one process, exchanging nothing but bytes: for tests, benchmarks and the demo."""

from dataclasses import dataclass

from privcirnet.he.program import Values
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Session


@dataclass(frozen=True)
class Traffic:
    """One exchange.

    Attributes:
        position: the node's position in the program; :data:`wire.OUTPUT` for the last one.
        up: bytes from client to server.
        down: bytes from server to client.
    """

    position: int
    up: int
    down: int


def run(client: Client, session: Session, image: Values) -> tuple[Values, list[Traffic]]:
    """One inference.

    Args:
        client: the client.
        session: the server's session with it.
        image: integers, the program's input shape.

    Returns:
        (logits as integers in units of the output's step, traffic of each exchange).
    """
    exchange = client.infer(image)
    traffic: list[Traffic] = []
    message = next(exchange)
    while True:
        reply = session.handle(message)
        traffic.append(Traffic(int.from_bytes(message[4:6], "little"), len(message), len(reply)))
        try:
            message = exchange.send(reply)
        except StopIteration as finished:
            return finished.value, traffic
