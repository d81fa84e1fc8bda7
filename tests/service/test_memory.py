"""A service that is connected to over and over takes no more memory than before."""

import gc
import weakref

import pytest

from privcirnet.he.protocol.parties import server as server_module
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import run
from privcirnet.service.client import ServiceClient
from tests.he.networks import network, random_image
from tests.service.running import serving, until

CONNECTS, GROWTH = 1000, 12 << 20
KEYS = 1 << 20
"""Bytes that the loaded keys of a session have here, for a leak of a few of them to be seen."""


def resident() -> int:
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def test_a_closed_session_is_gone_without_a_search_for_cycles():
    server = Server(network(), "cleartext")
    client = Client(server.greeting(), "cleartext")
    gc.disable()
    try:
        session = server.session(client.keys())
        run(client, session, random_image(network()))
        session.close()
        gone = weakref.ref(session)
        del session
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.slow
def test_memory_is_flat_over_a_thousand_connects(monkeypatch):
    """Each with a session of its own, one in ten with an image; Python never looks for cycles meanwhile."""
    held: list[weakref.ref] = []

    class Loaded(bytearray):
        """Keys that can be watched."""

    original = server_module.Server.session

    def session(self, keys, store, owner):
        made = original(self, keys, store, owner)
        made._keys = made._keys if isinstance(made._keys, Loaded) else _Watched(made._keys)
        held.append(weakref.ref(made._keys))
        return made

    class _Watched(list):
        def __init__(self, keys):
            super().__init__([keys, bytearray(b"x") * KEYS])

    monkeypatch.setattr(server_module.Server, "session", session)
    handle = Session.handle

    def unwatched(self, message):
        watched, self._keys = self._keys, self._keys[0]
        try:
            return handle(self, message)
        finally:
            self._keys = watched

    monkeypatch.setattr(Session, "handle", unwatched)
    image = random_image(network())
    with serving(Server(network(), "cleartext")) as service:
        gc.disable()
        try:
            for number in range(CONNECTS):
                if number == CONNECTS // 5:
                    before = resident()
                with ServiceClient(service.address, "cleartext") as remote:
                    if number % 10 == 0:
                        run(remote.client, remote, image)
                until(lambda: not service.sessions)
            until(lambda: not any(ref() is not None for ref in held))
            assert len(held) == CONNECTS
            assert resident() - before < GROWTH
        finally:
            gc.enable()
