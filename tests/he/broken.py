"""Prepared images that end in the middle, and messages that are not due: what holds for every operation with turns."""

from collections.abc import Collection, Iterable

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.program.program import Program
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.offline.store import MemoryStore
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.protocol.schedule import schedule_of
from tests.he.networks import random_image
from tests.he.parties import check, parties, rounds, strange
from tests.he.protocol.test_prepared_faults import kept


def ends_at_any_turn(program: Program, lost: str, positions: Collection[int]) -> None:
    """Both processes end after any number of messages, the last of them lost: what it was to use is used no more.

    Args:
        lost: the "request" or its "reply".
        positions: of nodes whose requests depend on what is kept for an image alone.
    """
    server, sent = Server(program, "cleartext"), list[bytes]()
    for step in range(schedule_of(program).rounds_online):
        ours, theirs = MemoryStore(), MemoryStore()
        client = Client(server.greeting(), "cleartext", store=ours)
        session = server.session(client.keys(), theirs)
        prepare(client, session, 2)
        used, other = ours.serials()
        image = client.infer(random_image(program))
        message = next(image)
        for _ in range(step):
            sent.append(message)
            message = image.send(session.handle(message))
        if lost == "reply":
            session.handle(message)
        ours, theirs = kept(ours), kept(theirs)
        again = Client(server.greeting(), "cleartext", store=ours)
        session = server.session(again.keys(), theirs)
        (_, _), *honest = rounds(session, again.infer(random_image(program)))
        assert other in honest[0][0]
        assert used not in b"".join(request for request, _ in honest)
        assert ours.serials() == theirs.serials() == []
        sent += [request for request, _ in honest if wire.position_of(request) in positions]
    assert len({*sent}) == len(sent), "no message is sent twice, of the same image"


def refuses_what_is_not_due(program: Program, position: int, variants: Iterable[int]) -> None:
    """At each of a node's four turns, of either party.

    Args:
        variants: of :func:`tests.he.parties.strange`.
    """
    for turn in range(4):
        for number in variants:
            client, session = parties(program, "cleartext")
            prepare(client, session)
            image = client.infer(random_image(program))
            reply = session.handle(next(image))
            while wire.position_of(reply) != position:
                reply = session.handle(image.send(reply))
            for _ in range(turn // 2):
                reply = session.handle(image.send(reply))
            take, due = (session.handle, image.send(reply)) if turn % 2 else (image.send, reply)
            with pytest.raises(RuleError, match="must"):
                take(strange(due)[number])
            assert client._prepared.store.serials() == session._prepared.store.serials() == []
            if turn % 2:  # a server begins anew; a client that gives up opens another session
                check(program, client, session, random_image(program), "waited")
