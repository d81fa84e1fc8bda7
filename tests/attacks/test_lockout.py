"""Strangers open connections and say nothing, or too little, until nobody else gets one."""

import contextlib
import hashlib
import json
import socket
import ssl

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from privcirnet.errors import RuleError
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service import connections, limits, messages
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.client import ServiceClient
from privcirnet.service.connections import Connections, Peer
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.log import Log
from privcirnet.service.metrics import Metrics
from tests.he.networks import network, random_image
from tests.service.authorities import Issued
from tests.service.running import serving, until
from tests.service.strangers import call, channel

IMAGE = random_image(network())
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"


@pytest.fixture
def hasty(monkeypatch):
    monkeypatch.setattr(connections, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(connections, "_LOOK_S", 0.05)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """(a server's folder with one client's token, that client's)."""
    folder, authority = tmp_path_factory.mktemp("tls"), Issued("authority", signs=True)
    server, client = folder / "server", folder / "client"
    Issued("server", authority).write(server, "server")
    (server / "tokens.json").write_text(json.dumps({"alice": hashlib.sha256(b"0123").hexdigest()}))
    client.mkdir()
    (client / "ca.crt").write_bytes(authority.pem)
    (client / "client.token").write_text("0123")
    (client / "client.token").chmod(0o600)
    return server, client


@pytest.fixture
def open_sockets():
    with contextlib.ExitStack() as stack:
        yield lambda one: stack.enter_context(one) or one


def bare(service, client):
    return socket.create_connection(("localhost", service.address[1]))


def greeted(service, client):
    """A connection of TLS that has said that it speaks HTTP/2, and no more."""
    context = ssl.create_default_context(cafile=str(client / "ca.crt"))
    context.set_alpn_protocols(["h2"])
    found = context.wrap_socket(bare(service, client), server_hostname="localhost")
    found.sendall(GREETING)
    return found


def ended(one):
    """Whether the server has ended a connection."""
    one.settimeout(0.01)
    try:
        while one.recv(1 << 12):
            pass
    except (TimeoutError, ssl.SSLWantReadError):
        return False
    except OSError:
        pass
    return True


def count(service, name, **labels):
    return service.books.metrics.registry.get_sample_value(f"privcirnet_{name}", labels)


@pytest.mark.parametrize("stranger", [bare, greeted])
def test_silent_connections_lock_nobody_out_and_do_not_last(stranger, folders, open_sockets, hasty):
    """As many as the server once took in all."""
    server, client = folders
    access = ClientAccess.of(client)
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        opened = [open_sockets(stranger(service, client)) for _ in range(service.books.limits.of_address + 4)]
        with ServiceClient(("localhost", service.address[1]), "cleartext", access=access) as remote:
            run(remote.client, remote, IMAGE)
            until(lambda: all(map(ended, opened)))
            run(remote.client, remote, IMAGE)
        lines = service.lines.of("connections closed")
        assert {line["peer"] for line in lines} <= {"127.0.0.1", "::/64"}
        assert sum(line["count"] for line in lines) >= len(opened)
        assert len(lines) <= 20
        closed = [count(service, "connections_closed_total", why=why) or 0 for why in connections.REASONS]
        assert sum(closed) == sum(line["count"] for line in lines)


def test_calls_without_a_name_are_no_reason_to_stay(folders, hasty):
    """Refused calls and health checks, again and again."""
    server, client = folders
    credentials = grpc.ssl_channel_credentials((client / "ca.crt").read_bytes())
    with serving(Server(network(), "cleartext"), access=ServerAccess.of(server)) as service:
        with grpc.secure_channel(f"localhost:{service.address[1]}", credentials) as through:
            health = health_pb2_grpc.HealthStub(through)
            for _ in range(5):
                assert health.Check(health_pb2.HealthCheckRequest()).status == 1
                with pytest.raises(grpc.RpcError):
                    call(through, "Programs", messages.ProgramsRequest())
            until(lambda: count(service, "connections_closed_total", why=connections.REASONS[0]))


def test_a_watch_of_the_health_stays_while_it_lasts(hasty):
    with serving(Server(network(), "cleartext")) as service, channel(service) as through:
        watch = health_pb2_grpc.HealthStub(through).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == 1
        with contextlib.closing(bare(service, None)) as silent:
            until(lambda: ended(silent))
        assert watch.is_active()
        watch.cancel()


def test_an_address_has_so_many_connections(open_sockets, monkeypatch):
    """The oldest without a name go; a client of the same address comes in and stays."""
    monkeypatch.setattr(connections, "_LOOK_S", 0.2)
    with serving(Server(network(), "cleartext"), ServiceLimits(sessions=2, connections=8)) as service:
        with ServiceClient(service.address, "cleartext") as first:
            opened = [open_sockets(bare(service, None)) for _ in range(30)]
            with ServiceClient(service.address, "cleartext") as second:
                until(lambda: sum(map(ended, opened)) == 24)
                for remote in (first, second):
                    run(remote.client, remote, IMAGE)
            assert all(map(ended, opened[:20]))
        assert service.lines.of("connections closed")[0]["why"] == "too many of one address"


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_who_goes_first():
    """Silent ones, then the oldest strangers of an address, then its newest clients; newcomers have until the next look."""
    clock, lines = Clock(), []
    watched = Connections(ServiceLimits(connections=3), Log(lines.append), Metrics(), clock)
    host, others = "10.0.0.1", "2001:db8::"

    def unwelcome(*peers):
        return {(str(peer.host), peer.port) for peer in watched.unwelcome(peers)}

    own = [Peer.of(host, port) for port in range(8)]
    neighbours = [Peer.of(f"{others}{number}", 1) for number in range(1, 6)]
    for peer in (own[0], own[1]):
        watched.know(f"ipv4:{host}:{peer.port}")
    assert not unwelcome(*own[:3])
    clock.now = 1.0
    assert unwelcome(*own[:5]) == {(host, 2)}, "a stranger, and not those that have just come"
    clock.now = 2.0
    assert unwelcome(*own[:5]) == {(host, 2), (host, 3)}
    watched.know(f"ipv4:{host}:3")
    watched.know(f"ipv4:{host}:4")
    assert unwelcome(own[0], own[1], own[3], own[4]) in ({(host, 3)}, {(host, 4)}), "the newest client"
    clock.now = 3.0
    unwelcome(*neighbours)
    clock.now = 4.0
    assert len(unwelcome(*neighbours)) == 2, "a customer's network counts as one address"
    clock.now = 3.0 + limits.HANDSHAKE_S
    assert len(unwelcome(*neighbours)) == 5, "silent"


def test_strangers_leave_room_whatever_their_addresses():
    clock = Clock()
    limits = ServiceLimits()
    watched = Connections(limits, Log(), Metrics(), clock)
    peers = [Peer.of(f"10.0.{number // 250}.{number % 250}", 1) for number in range(limits.most)]
    assert not watched.unwelcome(peers)
    clock.now = 1.0
    assert len(watched.unwelcome(peers)) == limits.most - limits.most // 2


@pytest.mark.parametrize(
    ("call", "system"),
    [
        ("ipv4:127.0.0.1:5050", ("127.0.0.1", 5050)),
        ("ipv6:%5B::1%5D:5050", ("::1", 5050)),
        ("ipv6:%5Bfe80::1%25eth0%5D:5050", ("fe80::1%eth0", 5050)),
        ("ipv4:127.0.0.1:5050", ("::ffff:127.0.0.1", 5050)),
    ],
)
def test_a_call_s_peer_is_the_connection_s(call, system):
    assert Peer.of_call(call) == Peer.of(*system)


def test_connections_are_a_number():
    with pytest.raises(RuleError, match="a number of connections: got connections=-1"):
        ServiceLimits(connections=-1)
