"""Whoever connects and says nothing, or says it slowly, does not keep the page's browser out."""

import socket
import time
import urllib.request
from contextlib import ExitStack, suppress
from http.client import HTTPConnection
from urllib.parse import urlsplit

import h11
import pytest

from privcirnet.page import server
from tests.page import samples
from tests.service.running import until

HALVES = {
    "nothing": b"",
    "half a request line": b"GET /",
    "half of its headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n",
    "half of an image": b"POST {path}classify HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\n"
    b"Content-Length: 9000\r\n\r\nhalf",
    "a stranger's image": b"POST /classify HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9000\r\n\r\nhalf",
}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(server, "SECONDS", {h11.IDLE: 0.5, h11.SEND_BODY: 0.5})


def served():
    return samples.served(samples.page(samples.Service(samples.program())).page)


def connected(address: str) -> socket.socket:
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port), timeout=20)


def opens(address: str) -> bool:
    parts = urlsplit(address)
    connection = HTTPConnection(parts.hostname, parts.port, timeout=20)
    connection.request("GET", parts.path)
    status = connection.getresponse().status
    connection.close()
    assert status in (200, 503)
    return status == 200


@pytest.mark.parametrize("count", [1, 34])
@pytest.mark.parametrize("said", HALVES)
def test_silent_connections_are_ended(capfd, said, count):
    """All of them, and nothing but a line is said of it."""
    with served() as address, ExitStack() as stack:
        parts = urlsplit(address)
        words = HALVES[said].replace(b"{path}", parts.path.encode()).replace(b"{host}", parts.netloc.encode())
        silent = [stack.enter_context(connected(address)) for _ in range(count)]
        for each in silent:
            each.sendall(words)
        until(lambda: opens(address))
        for each in silent:
            with suppress(ConnectionError):
                while each.recv(4096):
                    pass
    assert "Traceback" not in capfd.readouterr().err


def drip(slow: socket.socket) -> None:
    slow.sendall(b"GET / HTTP/1.1\r\n")
    for _ in range(1000):
        slow.sendall(b"A: b\r\n")
        time.sleep(0.02)


def test_a_request_that_comes_drop_by_drop_has_a_deadline_too():
    with served() as address, connected(address) as slow, pytest.raises(ConnectionError):
        drip(slow)


def test_an_answer_may_take_longer_than_a_request():
    service = samples.Service(samples.program())
    service.before = lambda number: time.sleep(0.3)
    with samples.served(samples.page(service).page) as address:
        origin = "/".join(address.split("/")[:3])
        request = urllib.request.Request(f"{address}classify/0", data=b"", headers={"Origin": origin}, method="POST")
        assert "event: answer" in urllib.request.urlopen(request, timeout=60).read().decode()
