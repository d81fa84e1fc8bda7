"""A client goes on after its certificate has expired, or its authority was taken away.

TLS checks a certificate at the handshake. A connection that stays open, or that resumes an earlier one with a ticket,
is not asked again: tickets last two days.
"""

import socket
import ssl
from contextlib import closing
from datetime import timedelta

import pytest

from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.service import certificates
from privcirnet.service.access import ClientAccess, ServerAccess
from privcirnet.service.client import ServiceClient
from privcirnet.service.messages import METHODS
from privcirnet.service.refusals import Refused
from privcirnet.service.server import Reloaded
from tests.he.networks import network, random_image
from tests.service.authorities import Issued
from tests.service.running import catalogue, serving, until

DATA, HEADERS, END = 0, 1, 1
"""Frames of HTTP/2, and the flag of a call's last one."""


class Caller:
    """A client that speaks to the server through OpenSSL, so that it can resume a connection.

    Args:
        folder: with ca.crt, client.crt, client.key.
        port: of the server.
    """

    def __init__(self, folder, port):
        self._port, self._session, self._stream = port, None, 1
        self._tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        self._tls.set_alpn_protocols(["h2"])
        self._tls.load_cert_chain(folder / "client.crt", folder / "client.key")
        self._open = None

    def connect(self, resumed=False):
        bare = socket.create_connection(("localhost", self._port), 10)
        self._open = self._tls.wrap_socket(
            bare, server_hostname="localhost", session=self._session if resumed else None
        )
        self._stream = 1
        self._open.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b""))
        return self

    def served(self):
        """Whether a call on this connection is answered with programs, and not refused."""
        headers = {b":method": b"POST", b":scheme": b"https", b":path": METHODS["Programs"].path.encode()}
        headers |= {b":authority": b"localhost", b"te": b"trailers", b"content-type": b"application/grpc"}
        packed = b"".join(b"\0" + bytes([len(k)]) + k + bytes([len(v)]) + v for k, v in headers.items())
        self._open.sendall(frame(HEADERS, 4, self._stream, packed) + frame(DATA, END, self._stream, bytes(5)))
        self._stream += 2
        data = b""
        for kind, flags, body in iter(self._frame, None):
            data += body if kind == DATA else b""
            if kind in (DATA, HEADERS) and flags & END:
                break
        self._session = self._open.session
        return b"only" in data

    def _frame(self):
        head = self._exactly(9)
        return head[3], head[4], self._exactly(int.from_bytes(head[:3], "big"))

    def _exactly(self, size):
        found = b""
        while len(found) < size:
            found += self._open.recv(size - len(found)) or pytest.fail("the connection ended")
        return found

    def close(self):
        if self._open:
            self._open.close()


def frame(kind, flags, stream, body):
    return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body


@pytest.fixture
def authority():
    return Issued("authority", signs=True)


@pytest.fixture
def folder(authority, tmp_path):
    """Of a server."""
    folder = tmp_path / "server"
    Issued("server", authority).write(folder, "server")
    (folder / "clients.crt").write_bytes(authority.pem)
    return folder


@pytest.fixture
def service(folder):
    def reload(before):
        return Reloaded(before, ServerAccess.of(folder))

    offered = catalogue(only=Server(network(), "cleartext"))
    with serving(offered, access=ServerAccess.of(folder), reload=reload) as found:
        yield found


def caller(tmp_path, service, authority, signer=None, **how):
    """A client, whose certificate the authority or a signer between has signed."""
    folder, between = tmp_path / "client", [signer] if signer else []
    Issued("alice", signer or authority, **how).write(folder, "client", *between)
    (folder / "ca.crt").write_bytes(authority.pem)
    return closing(Caller(folder, service.address[1]))


@pytest.mark.parametrize("between", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
def test_an_expired_certificate_opens_nothing(between, resumed, tmp_path, service, authority, monkeypatch):
    signer = Issued("signer", authority, signs=True) if between else None
    with caller(tmp_path, service, authority, signer, hours=1) as client:
        assert client.connect().served()
        if resumed:
            client.close()
            assert client.connect(resumed=True).served(), "as long as it holds"
        later = certificates.now() + timedelta(hours=2)
        monkeypatch.setattr(certificates, "now", lambda: later)
        if resumed:
            client.close()
            client.connect(resumed=True)
            assert client._open.session_reused, "TLS lets it in"
        assert not client.served()
    assert "a certificate that has expired, or of another authority" in service.lines.of("refused")[-1]["why"]
    assert not service.audited


def test_an_open_session_ends_with_its_certificate(tmp_path, service, authority, monkeypatch):
    folder = tmp_path / "client"
    Issued("alice", authority, hours=1).write(folder, "client")
    (folder / "ca.crt").write_bytes(authority.pem)
    at = "localhost", service.address[1]
    with ServiceClient(at, "cleartext", access=ClientAccess.of(folder)) as remote:
        run(remote.client, remote, random_image(network()))
        later = certificates.now() + timedelta(hours=2)
        monkeypatch.setattr(certificates, "now", lambda: later)
        with pytest.raises(Refused, match="a certificate that has expired"):
            run(remote.client, remote, random_image(network()))


def test_an_authority_that_was_taken_away_lets_nobody_in(tmp_path, service, authority, folder):
    with caller(tmp_path, service, authority) as client, caller(tmp_path, service, authority) as later:
        assert client.connect().served()
        assert later.connect().served()
        later.close()
        (folder / "clients.crt").write_bytes(Issued("another", signs=True).pem)
        service.reload()
        until(lambda: service.lines.of("reloaded"))
        assert not client.served(), "a connection that was open"
        with pytest.raises((OSError, pytest.fail.Exception)):
            later.connect(resumed=True).served()
        (folder / "clients.crt").write_bytes(authority.pem)
        service.reload()
        until(lambda: len(service.lines.of("reloaded")) == 2)
        assert client.served(), "it holds again"


def test_a_client_is_no_authority(authority):
    """Who has a certificate signs another one with it. The handshake would not let it in; the check does not either."""
    alice, signer = Issued("alice", authority), Issued("signer", authority, signs=True)
    forged = Issued("bob", alice)
    assert certificates.in_force(alice.pem, b"", authority.pem)
    assert certificates.in_force(Issued("carol", signer).pem, signer.pem, authority.pem)
    assert not certificates.in_force(forged.pem, alice.pem, authority.pem)
    assert not certificates.in_force(Issued("carol", signer).pem, b"", authority.pem)
    assert not certificates.in_force(b"", b"", authority.pem)
    assert not certificates.in_force(alice.pem, b"none", authority.pem)
