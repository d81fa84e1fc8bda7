"""What a network or a party may do to a session: that session ends cleanly, others' answers stay right, no mask twice."""

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

import grpc
import numpy as np
import pytest

from privcirnet.errors import Lost
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import prepare, run
from privcirnet.he.ring import sampling
from privcirnet.service import messages
from privcirnet.service.client import ServiceClient
from privcirnet.service.limits import ServiceLimits
from privcirnet.service.messages import CHUNK
from privcirnet.service.refusals import Refused
from privcirnet.service.store import KeyStore, StoreLimits
from tests.conftest import ROOT
from tests.he.networks import network, random_image
from tests.service.running import reopened, rest, serving, started, until
from tests.service.strangers import Stream, channel

IMAGE, OTHER = random_image(network()), random_image(network(), 1)
ANSWER = interpret(network(), OTHER)["head"]


def right(logits) -> bool:
    """Whether logits are the integer network's, up to truncations on shares, of which each is one unit off at most."""
    return bool(np.abs(logits - ANSWER).max() < 0.2 * np.abs(ANSWER).max())


@contextmanager
def watched(monkeypatch, **more):
    """A service with a client that is in the middle of an image when the block begins, and gets its answer after it.

    Every mask that the server draws is remembered: none may come twice.
    """
    drawn, original = [], sampling.uniform

    def uniform(shape, t):
        mask = original(shape, t)
        drawn.append(hashlib.sha256(mask.tobytes()).digest())
        return mask

    monkeypatch.setattr(sampling, "uniform", uniform)
    with serving(Server(network(), "cleartext"), **more) as service:
        with ServiceClient(service.address, "cleartext") as bystander:
            prepare(bystander.client, bystander)
            exchange = bystander.client.infer(OTHER)
            message = exchange.send(bystander.handle(next(exchange)))
            yield service
            assert right(rest(exchange, bystander, message))
    assert len(set(drawn)) == len(drawn) > 0, "a mask came twice"
    assert not service.lines.of("the server failed")


def begun(remote) -> tuple[object, list[bytes]]:
    """An image after its first round: (the client's end, the requests so far and the next one)."""
    prepare(remote.client, remote)
    exchange = remote.client.infer(IMAGE)
    first = next(exchange)
    return exchange, [first, exchange.send(remote.handle(first))]


def test_a_killed_client(monkeypatch):
    """By the system, in the middle of an image, with no chance to say so."""
    program = (
        "import sys; from privcirnet.service.client import ServiceClient; from privcirnet.he.protocol.parties.session import run\n"
        "from tests.he.networks import network, random_image\n"
        "remote = ServiceClient(('127.0.0.1', int(sys.argv[1])), 'cleartext')\n"
        "stop = lambda _: (print('asked', flush=True), sys.stdin.read())\n"
        "run(remote.client, remote, random_image(network()), stop)"
    )
    with watched(monkeypatch) as service:
        command = [sys.executable, "-c", program, str(service.address[1])]
        client = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with client:
            assert client.stdout.readline() == "asked\n"
            assert service.sessions == 2
            os.kill(client.pid, signal.SIGKILL)
        until(lambda: service.sessions == 1)


@pytest.mark.slow
def test_a_killed_server(tmp_path):
    """A client notices at once; the keys are found after a restart, and the image begins again with fresh masks."""
    with started(tmp_path) as (port, _):
        remote = ServiceClient(("127.0.0.1", port), "cleartext")
        _, sent = begun(remote)
    with remote:
        began = time.monotonic()
        with pytest.raises(Lost):
            remote.handle(sent[-1])
        assert time.monotonic() - began < 5
        with started(tmp_path, port):
            remote._upload = lambda: pytest.fail("the keys are there")
            until(lambda: reopened(remote), 20)
            assert right(run(remote.client, remote, OTHER)[0])


def test_a_dropped_message(monkeypatch):
    """The request never comes: the server lets go after its deadline, the client after its own."""
    with watched(monkeypatch, limits=ServiceLimits(timeout_s=2.0)) as service:
        with ServiceClient(service.address, "cleartext", timeout_s=0.3) as remote:
            begun(remote)
            with pytest.raises(Lost, match=r"must stay until both are done: got nothing in 0\.3 s from"):
                remote._stream.receive(remote._most, 0.3)
            until(lambda: service.sessions == 1)
            remote.reopen()
            assert right(run(remote.client, remote, OTHER)[0])


def test_a_doubled_message(monkeypatch):
    with watched(monkeypatch) as service, ServiceClient(service.address, "cleartext") as remote:
        _, (first, _) = begun(remote)
        with pytest.raises(Refused, match=r"a message must be about step \d+"):
            remote.handle(first)
        until(lambda: service.sessions == 1)


def test_reordered_messages(monkeypatch):
    with watched(monkeypatch) as service, ServiceClient(service.address, "cleartext") as remote:
        _, (_, second) = begun(remote)
        remote.reopen()
        with pytest.raises(Refused, match="a message must be about step 65533"):
            remote.handle(second)


def test_reordered_chunks_and_a_tail(monkeypatch):
    """The last chunk first: what comes after it is not the message that is due."""
    with watched(monkeypatch) as service, ServiceClient(service.address, "cleartext") as remote:
        for data, last in ((b"tail", True), (bytes(CHUNK), False)):
            remote._stream.send(messages.SessionRequest(data=data, last=last))
        with pytest.raises(Refused):
            remote._stream.receive(1, 5.0)


@pytest.mark.parametrize("place", [0, 4, 6, 9])
def test_a_damaged_message(monkeypatch, place):
    with watched(monkeypatch) as service, ServiceClient(service.address, "cleartext") as remote:
        _, (_, second) = begun(remote)
        damaged = bytearray(second)
        damaged[place] ^= 0x80
        with pytest.raises(Refused):
            remote.handle(bytes(damaged))
        remote.reopen()
        assert right(run(remote.client, remote, OTHER)[0])


def test_damaged_bytes_of_http2(monkeypatch):
    """On the wire, below gRPC: with plain text the connection ends, with TLS they do not even get that far."""
    with watched(monkeypatch) as service:
        for noise in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(range(256)) * 64,
            os.urandom(4096),
        ):
            with socket.create_connection(service.address) as bare:
                bare.settimeout(10)
                with suppress(OSError):  # the service may have closed it already
                    bare.sendall(noise)
                    bare.shutdown(socket.SHUT_WR)
                    while bare.recv(1 << 16):
                        pass


def test_a_slow_client(monkeypatch):
    """It takes its time within its deadlines and gets its answer; nobody waits for it."""
    with watched(monkeypatch) as service, ServiceClient(service.address, "cleartext") as remote:
        began = time.monotonic()
        slow = remote.client.infer(OTHER)
        message = next(slow)
        for _ in range(2):
            time.sleep(0.2)
            message = slow.send(remote.handle(message))
        with ServiceClient(service.address, "cleartext") as quick:
            assert right(run(quick.client, quick, OTHER)[0])
        assert right(rest(slow, remote, message))
        assert time.monotonic() - began > 0.4


def test_an_expired_key(monkeypatch):
    """The server has forgotten it; the client registers it again by itself, and a stranger's call is refused."""
    now = [1e9]
    store = KeyStore(StoreLimits(days=1), clock=lambda: now[0])
    with watched(monkeypatch, books={"store": store}) as service:
        with ServiceClient(service.address, "cleartext") as remote, channel(service) as through:
            now[0] += 2 * 86_400
            stream = Stream(through, "Session")
            stream.send(messages.SessionRequest(program=messages.Program(name="only"), keys=remote._id))
            with pytest.raises(grpc.RpcError) as refused:
                next(stream.call)
            assert refused.value.code() == grpc.StatusCode.NOT_FOUND
            stream.close()
            remote.reopen()
            assert right(run(remote.client, remote, OTHER)[0])
        assert len(service.audited.of("keys registered")) == 2


def test_a_cancelled_image_frees_its_place(monkeypatch):
    """While it is being computed: the engine ends what it does, the place is free, the next one is served."""
    with watched(monkeypatch, limits=ServiceLimits(sessions=2)) as service:
        for _ in range(20):
            with ServiceClient(service.address, "cleartext") as remote:
                exchange = remote.client.infer(IMAGE)
                remote._stream.send(messages.SessionRequest(data=next(exchange), last=True))
            until(lambda: service.sessions == 1)
