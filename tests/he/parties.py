"""Both parties of a whole program in one process."""

from typing import NamedTuple

from privcirnet.he.encodings.integer import Values
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.meter import Meter
from privcirnet.he.protocol.server import Server, Session
from privcirnet.he.protocol.session import run
from privcirnet.pipeline import audit


class Outcome(NamedTuple):
    """Logits, both parties' shares put together, and the server's meter."""

    logits: Values
    values: dict[str, Values]
    meter: Meter


def parties(program: Program, engine: str) -> tuple[Client, Session]:
    server = Server(program, engine)
    client = Client(server.greeting(), engine)
    return client, server.session(client.keys())


def protocol(program: Program, engine: str, image: Values) -> Outcome:
    client, session = parties(program, engine)
    logits, _ = run(client, session, image)
    return Outcome(logits, audit.reconstruct(program, client.shares, session.shares), session.meter)
