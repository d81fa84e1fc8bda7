"""Both parties of a whole program in one process."""

from collections.abc import Generator
from typing import Any, NamedTuple

import numpy as np

from privcirnet.he.layers.integer import Values
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.interface import Meter
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import Traffic, run
from privcirnet.runs import interactive


class Outcome(NamedTuple):
    """Logits, both parties' shares put together, and the server's meter of the preparation."""

    logits: Values
    values: dict[str, Values]
    meter: Meter


def rounds(session: Session, exchange: Generator[bytes, bytes, Any]) -> Generator[tuple[bytes, bytes], None, Any]:
    """Each (request, reply) of an exchange, as it goes; what the exchange returns in the end."""
    message = next(exchange)
    while True:
        reply = session.handle(message)
        yield message, reply
        try:
            message = exchange.send(reply)
        except StopIteration as end:
            return end.value


def requests_of(client: Client, session: Session, image: Values) -> list[bytes]:
    """The requests of one image, in order."""
    return [request for request, _ in rounds(session, client.infer(image))]


def parties(program: Program, engine: str) -> tuple[Client, Session]:
    server = Server(program, engine)
    client = Client(server.greeting(), engine)
    return client, server.session(client.keys())


def protocol(program: Program, engine: str, image: Values) -> Outcome:
    client, session = parties(program, engine)
    logits, _ = run(client, session, image)
    return Outcome(logits, interactive.reconstruct(program, client.shares, session.shares), session.preparation)


def check(program: Program, client: Client, session: Session, image: Values, used: str = "") -> list[Traffic]:
    """One inference, every node of it right; prepared before it or waiting for it, if ``used`` says so."""
    logits, traffic = run(client, session, image)
    assert used in {"", "waited" if client.waited else "prepared"}
    values = interactive.reconstruct(program, client.shares, session.shares)
    assert interactive.wrong_nodes(program, values) == []
    assert (values[program.nodes[0].name] == image).all()
    assert (logits == program.answered(values[program.output.name])).all()
    exact = interpret(program, image, lambda node, _: values[node.name])
    assert all((exact[name] == values[name]).all() for name in exact)
    return traffic


def seeded(seed: int) -> object:
    """A stand-in for the system's generator that both runs share."""
    random = np.random.default_rng(seed)
    return lambda shape, t: random.integers(0, t, shape, dtype=np.uint64)


def strange(message: bytes) -> list[bytes]:
    """Cut, lengthened, about another step, with another number of parts, with residues over t, foreign."""
    return [
        b"",
        message[:7],
        message[:-1],
        message + b"\0",
        message[:4] + b"\xee\x00" + message[6:],
        message[:6] + b"\x63\x00" + message[8:],
        message[:12] + bytes([255]) * (len(message) - 12),
        b"GET / HTTP/1.1\r\n\r\n",
        wire.frame(wire.OUTPUT, []),
        wire.frame(wire.OUTPUT, [b"x"]),
    ]
