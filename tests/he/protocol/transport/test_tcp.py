"""Frames over TCP: what is sent arrives, and everything else is one clean error, in time and in little memory."""

import json
import random
import socket
import struct
import threading

import pytest

from privcirnet.errors import RuleError
from privcirnet.he.protocol.transport import tcp
from privcirnet.he.protocol.transport.tcp import Channel, HungUp, Lost, Refused, parse_address
from tests.he.protocol.transport.connections import pair

FRAME = struct.Struct("<BQ")


@pytest.fixture
def ends():
    """(a channel of the tested kind, the bare socket at its other end)."""
    here, there = pair()
    with here, there:
        yield Channel(here, "the peer", timeout_s=5.0), there


def test_messages_arrive_whole(ends):
    channel, bare = ends
    other = Channel(bare, "the peer", timeout_s=5.0)
    for body in (b"", b"x", bytes(range(256)) * 40_000):
        sender = threading.Thread(target=channel.send, args=(tcp.REQUEST, body))
        sender.start()
        assert other.receive(tcp.REQUEST, len(body)) == body
        sender.join()


def test_the_bytes_on_the_wire(ends):
    channel, bare = ends
    channel.send_hello()
    channel.send(tcp.KEYS, b"abc")
    assert bare.recv(20, socket.MSG_WAITALL) == b"PCNT\x01\x00\x00\x00" + b"\x02\x03" + bytes(7) + b"abc"


def test_hello(ends):
    channel, bare = ends
    bare.sendall(b"PCNT\x01\x00\x00\x00")
    channel.receive_hello(5.0)
    channel.send_hello()
    assert bare.recv(8) == b"PCNT\x01\x00\x00\x00"


@pytest.mark.parametrize(
    ("sent", "match"),
    [
        (b"GET / HTTP/1.1\r\n", r"must speak privcirnet's protocol: got b'GET ' from the peer; check"),
        (b"PCNT\x02\x00\x00\x00", "must speak version 1 of the protocol: got 2 from the peer; install the same"),
        (b"PCNT\x01\x00\x00\x01", "must speak privcirnet's protocol"),
        (b"PCNT\x01", "must stay until both are done: got the end after 5 of 8 bytes"),
        (b"", "got the end after 0 of 8 bytes"),
    ],
)
def test_a_peer_that_speaks_something_else(ends, sent, match):
    channel, bare = ends
    bare.sendall(sent)
    bare.shutdown(socket.SHUT_WR)
    with pytest.raises(RuleError, match=match):
        channel.receive_hello(5.0)


@pytest.mark.parametrize(
    ("sent", "kind", "match"),
    [
        (FRAME.pack(tcp.REQUEST, 101), RuleError, "of kind 4 with at most 100 bytes here: got kind 4, 101 bytes"),
        (FRAME.pack(tcp.REQUEST, 2**64 - 1), RuleError, f"got kind 4, {2**64 - 1} bytes"),
        (FRAME.pack(tcp.KEYS, 5), RuleError, "got kind 2, 5 bytes"),
        (FRAME.pack(tcp.ERROR, tcp.MAX_ERROR + 1), RuleError, "got kind 6"),
        (FRAME.pack(255, 0), RuleError, "got kind 255"),
        (FRAME.pack(tcp.REQUEST, 5) + b"1234", Lost, "got the end after 4 of 5 bytes"),
        (FRAME.pack(tcp.REQUEST, 5)[:-1], Lost, "got the end after 8 of 9 bytes"),
        (b"", HungUp, "got the end after 0 of 9 bytes"),
    ],
)
def test_frames_that_are_not_due(ends, sent, kind, match):
    channel, bare = ends
    bare.sendall(sent)
    bare.shutdown(socket.SHUT_WR)
    with pytest.raises(kind, match=match) as found:
        channel.receive(tcp.REQUEST, 100)
    assert isinstance(found.value, HungUp) == (kind is HungUp)


def test_an_announced_length_takes_no_memory(ends):
    """Room is made as bytes come: a promise of a gigabyte is cheap for both."""
    channel, bare = ends
    channel.timeout_s = 0.1
    bare.sendall(FRAME.pack(tcp.KEYS, 1 << 30))
    bare.shutdown(socket.SHUT_WR)
    before = _resident()
    with pytest.raises(Lost, match="the end after 0 of 1073741824 bytes"):
        channel.receive(tcp.KEYS, 1 << 30)
    assert _resident() - before < 1 << 24


def _resident() -> int:
    with open("/proc/self/status") as status:
        return next(1024 * int(line.split()[1]) for line in status if line.startswith("VmHWM"))


@pytest.mark.parametrize("first", [b"", FRAME.pack(tcp.REQUEST, 10), FRAME.pack(tcp.REQUEST, 10) + b"1234"])
def test_a_peer_that_goes_silent(ends, first):
    channel, bare = ends
    channel.timeout_s = 0.2
    bare.sendall(first)
    with pytest.raises(Lost, match=r"got \d+ of \d+ bytes in 0\.2\d* s"):
        channel.receive(tcp.REQUEST, 100)


def test_a_peer_that_sends_a_byte_now_and_then(ends):
    """Every byte is in time, the message is not."""
    channel, bare = ends
    channel.timeout_s = 0.5
    bare.sendall(FRAME.pack(tcp.REQUEST, 1000))
    done = threading.Event()

    def drip() -> None:
        while not done.wait(0.05):
            bare.sendall(b"x")

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(Lost, match=r"got \d+ of 1000 bytes in 0\.53\d* s"):
            channel.receive(tcp.REQUEST, 1000)
    finally:
        done.set()
        thread.join()


def test_a_peer_that_takes_nothing(ends, monkeypatch):
    monkeypatch.setattr(tcp, "SLOWEST", 1 << 40)
    monkeypatch.setattr(tcp, "_GOODBYE", 0.1)
    channel, _ = ends
    channel.timeout_s = 0.3
    with pytest.raises(Lost, match="must stay until both are done"):
        channel.send(tcp.REPLY, bytes(1 << 26))


def test_a_peer_that_is_gone(ends, monkeypatch):
    monkeypatch.setattr(tcp, "_GOODBYE", 0.1)
    channel, bare = ends
    bare.close()
    with pytest.raises(Lost):
        any(channel.send(tcp.REPLY, bytes(1 << 20)) for _ in range(20))


def test_an_error_reaches_the_peer_with_its_reason(ends):
    channel, bare = ends
    other = Channel(bare, "the server", timeout_s=5.0)
    teller = threading.Thread(target=other.refuse, args=(RuleError("a rule", got=3, remedy="mend it"),))
    teller.start()
    with pytest.raises(Refused, match=r"^the peer refused: a rule: got 3; mend it$"):
        channel.receive(tcp.REPLY, 100)
    channel.close()
    teller.join()


def _ask(channel, request):
    channel.send(tcp.REQUEST, request)
    return channel.receive(tcp.REPLY, 100)


def test_an_error_reaches_a_peer_that_is_still_sending(ends):
    """Its unread bytes must not take the error back."""
    channel, bare = ends
    other = Channel(bare, "the server", timeout_s=5.0)
    teller = threading.Thread(target=other.refuse, args=(RuleError("a rule", got=3, remedy="mend it"),))
    teller.start()
    with pytest.raises(Refused, match="a rule: got 3; mend it"):
        _ask(channel, bytes(1 << 24))
    channel.close()
    teller.join()


@pytest.mark.parametrize("character", ["x", "\n", "\x00", "é", "\U0001f600", "\ud800"])
def test_errors_of_any_text_are_short_enough(ends, character):
    channel, bare = ends
    other = Channel(bare, "the server", timeout_s=5.0)
    text = character * 10_000
    teller = threading.Thread(target=other.refuse, args=(RuleError(text, got=text, remedy=text),))
    teller.start()
    with pytest.raises(Refused, match="the peer refused: "):
        channel.receive(tcp.REPLY, 100)
    channel.close()
    teller.join()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"rule": 1}',
        b"\xff" * 100,
        b"[" * 4000,
        json.dumps({"rule": "\x1b[31mred\n", "got": "\u202e" * 3000, "remedy": {"a": []}}).encode()[:4096],
        json.dumps({"rule": "\x1b[31mred\n", "got": "\u202e", "remedy": {"a": []}}).encode(),
    ],
)
def test_an_error_of_a_stranger_is_plain_text_on_one_line(ends, body):
    channel, bare = ends
    bare.sendall(FRAME.pack(tcp.ERROR, len(body)) + body)
    with pytest.raises(Refused) as found:
        channel.receive(tcp.REPLY, 100)
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 2000


def test_random_bytes_are_a_clean_error():
    chance = random.Random(0)
    for _ in range(300):
        here, bare = pair()
        channel = Channel(here, "the peer", timeout_s=1.0)
        noise = chance.randbytes(chance.randrange(40))
        if chance.random() < 0.5:
            noise = FRAME.pack(chance.randrange(8), chance.randrange(64)) + noise
        bare.sendall(noise)
        bare.close()
        with pytest.raises(RuleError):
            any(channel.receive(tcp.REQUEST, 32) == "" for _ in range(100))
        channel.close()


@pytest.mark.parametrize("text", ["", "5050", "host:", ":5050", "host:x", "host:70000", "host:-1"])
def test_addresses_that_are_none(text):
    with pytest.raises(RuleError, match="a server's address must be HOST:PORT"):
        parse_address(text)
