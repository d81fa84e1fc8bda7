"""Whoever is silent, slow, stays too long or never says who it is, is ended in time; a client beside it is served."""

import grpc
import pytest

from privcirnet.he.protocol.parties.server import Server, Session
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.service import limits as limits_module
from privcirnet.service import messages, server, sessions
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.messages import CHUNK
from privcirnet.service.refusals import Refused
from tests.he.networks import network, random_image
from tests.service.running import ask, serving, until
from tests.service.strangers import Stream, channel

IMAGE = random_image(network())


@pytest.fixture
def hasty(monkeypatch):
    """Short deadlines for everything that comes before a session."""
    for module in (server, sessions, limits_module):
        monkeypatch.setattr(module, "HANDSHAKE_S", 0.3)


@pytest.mark.parametrize("name", ["Session", "RegisterKeys"])
def test_a_call_that_says_nothing_takes_no_place_and_ends(hasty, name):
    with serving(Server(network(), "cleartext"), ServiceLimits(sessions=1)) as service, channel(service) as through:
        silent = [Stream(through, name) for _ in range(5)]
        ask(service)
        for stream in silent:
            with pytest.raises(grpc.RpcError) as ended:
                stream.call.result() if name == "RegisterKeys" else next(stream.call)
            assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            stream.close()


def test_keys_that_are_announced_and_never_come(hasty):
    """They held the service for minutes; now they hold room for keys, for a moment, and no place of a session."""
    with serving(Server(network(), "cleartext"), ServiceLimits(1, timeout_s=0.3)) as service:
        with channel(service) as through:
            stream = Stream(through, "RegisterKeys")
            stream.send(messages.KeysUpload(program=messages.Program(), id=bytes(32)))
            until(lambda: service.books.store.size)
            ask(service)
            with pytest.raises(grpc.RpcError) as ended:
                stream.call.result()
            assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
            until(lambda: not service.books.store._promised)
            stream.close()


def test_a_client_that_goes_silent_in_an_image():
    with serving(Server(network(), "cleartext"), ServiceLimits(1, timeout_s=0.3)) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            prepare(remote.client, remote)
            remote.handle(next(remote.client.infer(IMAGE)))
            until(lambda: not service.sessions)
            with pytest.raises(Refused, match=r"the next message must be in time: got none in 0\.3 s"):
                remote.handle(b"")
        ask(service)


def test_half_a_message_is_not_waited_for():
    with serving(Server(network(), "cleartext"), ServiceLimits(1, timeout_s=0.3)) as service:
        with channel(service) as through:
            stream = Stream(through, "RegisterKeys")
            stream.send(messages.KeysUpload(program=messages.Program(), id=bytes(32)))
            stream.send(messages.KeysUpload(data=bytes(CHUNK)))
            with pytest.raises(grpc.RpcError):
                stream.call.result()
            stream.close()
        ask(service)


def test_a_session_has_a_greatest_age():
    """However busy: it runs image after image."""
    with serving(Server(network(), "cleartext"), ServiceLimits(1, age_s=0.5)) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            with pytest.raises(Refused, match=r"a session's end must be in time: got none in 0\.5 s"):
                any(run(remote.client, remote, IMAGE)[0] is None for _ in range(1000))
        until(lambda: not service.sessions)
        ask(service)


def test_a_client_that_takes_nothing(monkeypatch):
    """It sends and never reads: its replies fill what the transport holds, and no more."""
    monkeypatch.setattr(limits_module, "SLOWEST", 1 << 40)
    monkeypatch.setattr(Session, "handle", lambda self, message: message_of(1 << 24))
    with serving(Server(network(), "cleartext"), ServiceLimits(1, timeout_s=0.5)) as service:
        with ServiceClient(service.address, "cleartext") as remote:
            for _ in range(2):
                remote._stream.send(messages.SessionRequest(data=b"x", last=True))
            until(lambda: not service.sessions)
            assert service.lines.of("refused")[-1]["why"].startswith("a client that takes a reply must be in time")


def message_of(size):
    from privcirnet.he.protocol import wire

    return wire.frame(1, [bytes(size)])
