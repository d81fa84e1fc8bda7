"""Somebody reads the memory of a process whose session is over: a core dump, a swapped page, another bug.

Closing a client or a session zeroes the arrays of its shares and of the client's key, and nothing refers to its keys
any longer.
"""

import gc
import weakref
from collections.abc import Iterator

import pytest

from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from tests.he.networks import network, random_image


@pytest.fixture(autouse=True)
def without_collection() -> Iterator[None]:
    """References alone: nobody knows when Python looks for cycles."""
    gc.disable()
    yield
    gc.enable()


class Keys(frozenset[int]):
    """Evaluation keys that can be watched."""


def test_a_closed_session_leaves_no_keys_and_no_shares() -> None:
    server = Server(network(), "cleartext")
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    session._keys = Keys(session._keys or ())
    keys = weakref.ref(session._keys)
    held = []
    for _ in range(2):
        run(client, session, random_image(server.program))
        held.append(([*_shares(session)], [*client.shares.values()]))
    (first, mine_before), (second, mine) = held
    assert not any(share.any() for share in first + mine_before), "of the image before"
    assert all(share.any() for share in second)
    assert any(share.any() for share in mine)
    session.close()
    assert keys() is None
    assert not any(share.any() for share in second)
    assert not session.shares


@pytest.mark.parametrize("name", ["kernel", "tenseal"])
def test_a_closed_client_leaves_no_keys_and_no_shares(name: str) -> None:
    server = Server(network(), name)
    client = Client(server.greeting(), name)
    with server.session(client.keys()) as session:
        run(client, session, random_image(server.program))
    engine, held = weakref.ref(client._open()), [*client.shares.values()]
    assert any(share.any() for share in held)
    key = client._open()._key() if name == "kernel" else None
    client.close()
    assert engine() is None, "and with it SEAL's objects, which zero their secrets"
    assert key is None or not key.any(), "other references to the key find zeros"
    assert not any(share.any() for share in held)
    client.close()


def test_the_image_that_was_given_is_left_as_it_was() -> None:
    server = Server(network(), "cleartext")
    image = random_image(server.program)
    before = image.copy()
    with Client(server.greeting(), "cleartext") as client:
        run(client, server.session(client.keys()), image)
    assert (image == before).all()


def _shares(session) -> list:
    return [share for share in session.shares.values() if share is not None]
