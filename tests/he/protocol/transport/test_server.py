"""A server on TCP: clients, strangers, the dead and the many."""

import gc
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol import message_sizes, wire
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session
from privcirnet.he.protocol.session import run
from privcirnet.he.protocol.transport import server as service_module
from privcirnet.he.protocol.transport import tcp
from privcirnet.he.protocol.transport.client import TcpClient
from privcirnet.he.protocol.transport.server import ConnectionLimits, TcpServer
from privcirnet.he.protocol.transport.tcp import Lost, Refused
from privcirnet.he.ring import sampling
from tests.he.networks import network, random_image
from tests.he.parties import seeded
from tests.he.protocol.transport.connections import Guarded, serving

HELLO = b"PCNT\x01\x00\x00\x00"
FRAME = struct.Struct("<BQ")
IMAGE = random_image(network())
ROOT = Path(__file__).parents[4]


def until(condition, seconds=10.0):
    """Wait for something that another thread does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def logged(service: Guarded, words: str) -> bool:
    return any(words in line for line in service.lines)


def expected(engine: str, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Logits of both parties in this process, with masks that repeat."""
    server = Server(network(), engine)
    client = Client(server.greeting(), engine)
    session = server.session(client.keys())
    monkeypatch.setattr(sampling, "uniform", seeded(7))
    return run(client, session, IMAGE)[0]


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_logits_over_tcp_are_those_of_one_process(engine, monkeypatch):
    """With the same masks, bit for bit; over and over on one connection."""
    wanted = expected(engine, monkeypatch)
    with serving(Server(network(), engine)) as service, TcpClient(service.address, engine) as remote:
        for _ in range(2):
            monkeypatch.setattr(sampling, "uniform", seeded(7))
            logits, traffic = run(remote.client, remote, IMAGE)
            assert np.array_equal(logits, wanted)
            assert len(traffic) == message_sizes.rounds(network())
    assert sum("an image, " in line for line in service.lines) == 2


def test_two_clients_at_once_do_not_disturb_each_other():
    """Their requests alternate, image by image and step by step; each has its own keys, masks and shares."""
    program, images = network(), [random_image(network(), seed) for seed in range(4)]
    server = Server(program, "cleartext")
    client = Client(server.greeting(), "cleartext")
    session = server.session(client.keys())
    wanted = [run(client, session, image)[0] for image in images]
    found: dict[int, np.ndarray] = {}
    with serving(server) as service:
        meet = threading.Barrier(2, timeout=10)

        def ask(numbers):
            with TcpClient(service.address, "cleartext") as remote:
                meet.wait()
                for number in numbers:
                    found[number], _ = run(remote.client, remote, images[number], lambda _: meet.wait())

        threads = [threading.Thread(target=ask, args=(numbers,)) for numbers in ((0, 1), (2, 3))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    for number, logits in enumerate(wanted):
        assert np.abs(found[number] - logits).max() < 0.2 * np.abs(logits).max(), "up to truncations"


def test_sessions_take_turns(monkeypatch):
    """Counters and threads belong to the engine, of which there is one."""
    original, inside, most = Session.handle, [], []

    def watched(self, message):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.02)
        try:
            return original(self, message)
        finally:
            inside.pop()

    monkeypatch.setattr(Session, "handle", watched)
    with serving(Server(network(), "cleartext")) as service:

        def ask():
            with TcpClient(service.address, "cleartext") as remote:
                run(remote.client, remote, IMAGE)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
    assert len(most) == 3 * message_sizes.rounds(network())
    assert max(most) == 1


def test_a_client_too_many_is_told_and_may_come_again():
    with serving(Server(network(), "cleartext"), ConnectionLimits(connections=1)) as service:
        with TcpClient(service.address, "cleartext"):
            with pytest.raises(Refused, match="refused: a server has at most 1 clients at once: got one more; try"):
                TcpClient(service.address, "cleartext")
        until(lambda: logged(service, "left"))
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)


def test_the_servers_refusal_reaches_the_client():
    with serving(Server(network(), "cleartext")) as service, TcpClient(service.address, "cleartext") as remote:
        with pytest.raises(Refused, match=r"refused: a message must be about step 1: got magic b'PCN1', st"):
            remote.handle(wire.frame(3, []))
        with pytest.raises(Lost):
            remote.handle(wire.frame(1, []))
    assert logged(service, "a message must be about step 1")


def test_keys_of_another_program_are_refused(monkeypatch):
    monkeypatch.setattr(Client, "keys", lambda self: b"no keys")
    with serving(Server(network(), "cleartext")) as service:
        with pytest.raises(Refused, match="keys must be for the plan's rotations"):
            TcpClient(service.address, "cleartext")


def test_a_bug_says_nothing_of_itself_to_the_client(monkeypatch):
    def broken(self, message):
        raise ZeroDivisionError("secret weight 3")

    with serving(Server(network(), "cleartext")) as service, TcpClient(service.address, "cleartext") as remote:
        with monkeypatch.context() as patch:
            patch.setattr(Session, "handle", broken)
            with pytest.raises(
                Refused, match=r"^the server at \S+ refused: a server must not fail: got it did; ask whoever"
            ):
                run(remote.client, remote, IMAGE)
        assert logged(service, "secret weight 3")
        with TcpClient(service.address, "cleartext") as again:
            run(again.client, again, IMAGE)


def opening(service: TcpServer) -> socket.socket:
    """A stranger that has read the greeting."""
    stranger = socket.create_connection(service.address)
    greeting = b""
    while len(greeting) < 17 or len(greeting) < 17 + FRAME.unpack(greeting[8:17])[1]:
        greeting += stranger.recv(1 << 20)
    return stranger


STRANGERS = {
    "silent": b"",
    "a browser": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "another version": b"PCNT\xff\x00\x00\x00",
    "half a hello": HELLO[:3],
    "no keys": HELLO,
    "half a header": HELLO + FRAME.pack(tcp.KEYS, 32)[:4],
    "half of the keys": HELLO + FRAME.pack(tcp.KEYS, 32) + bytes(7),
    "an endless key": HELLO + FRAME.pack(tcp.KEYS, 2**64 - 1) + bytes(100),
    "a request before keys": HELLO + FRAME.pack(tcp.REQUEST, 8) + bytes(8),
    "an error": HELLO + FRAME.pack(tcp.ERROR, 2) + b"{}",
    "wrong keys": HELLO + FRAME.pack(tcp.KEYS, 32) + bytes(32),
}


@pytest.mark.parametrize("end", ["close", "reset", "stay"])
def test_strangers_do_not_stop_the_service(end, monkeypatch):
    """Whatever they sent and however they leave, or do not; then a client is served."""
    monkeypatch.setattr(service_module, "_HELLO_SECONDS", 0.3)
    monkeypatch.setattr(tcp, "_GOODBYE", 0.3)
    server = Server(network(), "cleartext")
    with serving(server, ConnectionLimits(len(STRANGERS) + 1, timeout_s=0.5)) as service:
        strangers = []
        for sent in STRANGERS.values():
            strangers.append(opening(service))
            strangers[-1].sendall(sent)
        for stranger in strangers:
            if end == "reset":
                stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if end != "stay":
                stranger.close()
        until(lambda: not service._connections)
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)
        for stranger in strangers:
            stranger.close()
    assert not logged(service, "the server failed")


def test_random_conversations_leave_no_memory_and_no_thread(monkeypatch):
    """Strangers that talk nonsense behind a right hello or right keys; the later half takes nothing that stays."""
    monkeypatch.setattr(service_module, "_HELLO_SECONDS", 1.0)
    monkeypatch.setattr(tcp, "_GOODBYE", 0.05)
    chance, server = random.Random(0), Server(network(), "cleartext")
    keys = Client(server.greeting(), "cleartext").keys()
    with serving(server, ConnectionLimits(8, timeout_s=1.0)) as service:
        for number in range(300):
            if number == 150:
                until(lambda: not service._connections)
                tracemalloc.start()
            until(lambda: len(service._connections) < 8)
            stranger = opening(service)
            body = chance.randbytes(chance.randrange(60))
            kind, length = chance.randrange(8), chance.choice([len(body), chance.randrange(1 << 20), 1 << 40])
            allowed = HELLO + FRAME.pack(tcp.KEYS, len(keys)) + keys if chance.random() < 0.5 else HELLO
            stranger.sendall(allowed + FRAME.pack(kind, length) + body)
            stranger.close()
        until(lambda: not service._connections)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)
    assert grown < 300_000, "beside 300 lines of a log"
    assert not logged(service, "the server failed")


def test_a_killed_client_is_forgotten():
    """By the system, in the middle of an image, with no chance to say so."""
    program = (
        "import sys; from privcirnet.he.protocol.transport.client import TcpClient; from privcirnet.he.protocol.session import run\n"
        "from tests.he.networks import network, random_image\n"
        "remote = TcpClient(('127.0.0.1', int(sys.argv[1])), 'cleartext')\n"
        "stop = lambda _: (print('asked', flush=True), sys.stdin.read())\n"
        "run(remote.client, remote, random_image(network()), stop)"
    )
    with serving(Server(network(), "cleartext"), ConnectionLimits(connections=1)) as service:
        command = [sys.executable, "-c", program, str(service.address[1])]
        client = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with client:
            assert client.stdout.readline() == "asked\n"
            assert len(service._connections) == 1
            os.kill(client.pid, signal.SIGKILL)
        until(lambda: not service._connections)
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)


def test_no_message_asks_for_the_servers_shares():
    """What a harness is told, it is told by this process: a service has it only as a function that it was given."""
    seen = []
    with serving(Server(network(), "cleartext"), finished=seen.append) as service:
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)
            until(lambda: len(seen) == 1)
            assert isinstance(seen[0], Session)
        for kind in range(256):
            stranger = opening(service)
            stranger.settimeout(5)
            stranger.sendall(HELLO + FRAME.pack(kind, 0))
            answer = stranger.recv(1 << 16)
            assert answer == b"" or answer[0] == tcp.ERROR
            stranger.close()
            until(lambda: not service._connections)


@pytest.mark.parametrize(
    ("greeting", "match"),
    [
        (b"", "the end after 0 of 8 bytes"),
        (
            b"HTTP/1.1 400 Bad Request\r\n",
            "must speak privcirnet's protocol: got b'HTTP' from the server at 127.0.0.1:",
        ),
        (HELLO + FRAME.pack(tcp.GREETING, 1 << 30), "of kind 1 with at most 4194304 bytes here"),
        (HELLO + FRAME.pack(tcp.GREETING, 2) + b"[]", "description must be complete"),
        (HELLO + FRAME.pack(tcp.GREETING, 3) + b"no!", "a greeting must be JSON"),
        (HELLO + FRAME.pack(tcp.READY, 0), "got kind 3, 0 bytes"),
    ],
)
def test_a_client_that_meets_something_else(greeting, match):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer():
            connection, _ = listener.accept()
            connection.sendall(greeting)
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(RuleError, match=match):
            TcpClient(listener.getsockname(), "cleartext")
        thread.join()


def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
        with pytest.raises(
            RuleError, match=f"able to listen at its address: got 127.0.0.1:{address[1]}: Address already"
        ):
            TcpServer(Server(network(), "cleartext"), address)
    with pytest.raises(
        RuleError, match=f"a server must listen at its address: got 127.0.0.1:{address[1]}: Conn.*; start"
    ):
        TcpClient(address)


def test_a_reply_that_is_too_long_is_not_read(monkeypatch):
    with serving(Server(network(), "cleartext")) as service, TcpClient(service.address, "cleartext") as remote:
        monkeypatch.setattr(Session, "handle", lambda self, message: bytes(message_sizes.largest(network()).reply + 1))
        with pytest.raises(RuleError, match=r"of kind 5 with at most \d+ bytes here"):
            run(remote.client, remote, IMAGE)


def test_who_is_there_when_a_service_stops_is_sent_away():
    with serving(Server(network(), "cleartext")) as service:
        remote = TcpClient(service.address, "cleartext")
    with remote, pytest.raises(Lost, match="must stay until both are done"):
        run(remote.client, remote, IMAGE)


class Exhausted:
    """A listener that for a while has no room, as at the system's limit of open files."""

    def __init__(self, listener):
        self.listener, self.left = listener, 3

    def accept(self):
        if self.left:
            self.left -= 1
            raise OSError(24, "Too many open files")
        return self.listener.accept()

    def getsockname(self):
        return self.listener.getsockname()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.close()


def test_a_system_without_room_for_files_or_threads_is_waited_for(monkeypatch):
    monkeypatch.setattr(service_module, "_PAUSE", 0.01)
    original, listen = threading.Thread.start, service_module._listening

    def no_thread(self):
        if self.name.startswith("client 1 "):
            raise RuntimeError("can't start new thread")
        original(self)

    monkeypatch.setattr(service_module, "_listening", lambda address: Exhausted(listen(address)))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    with serving(Server(network(), "cleartext")) as service:
        with pytest.raises(Refused, match="try again later"):
            TcpClient(service.address, "cleartext")
        with TcpClient(service.address, "cleartext") as remote:
            run(remote.client, remote, IMAGE)
    assert sum("could not be accepted: Too many open files" in line for line in service.lines) == 3
