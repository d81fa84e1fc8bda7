"""Calls as a client of another make could send them."""

import queue
import socket
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import grpc

from privcirnet.he.protocol.parties.client import Client
from privcirnet.service import messages


def channel(service) -> grpc.Channel:
    return grpc.insecure_channel(f"{service.address[0]}:{service.address[1]}", [("grpc.use_local_subchannel_pool", 1)])


def call(through: grpc.Channel, name: str, sent: Any) -> Any:
    method = messages.METHODS[name]
    make = getattr(through, method.shape)
    made = make(method.path, method.request.SerializeToString, method.response.FromString)
    return made.future(sent) if method.shape == "stream_unary" else made(sent)


class Stream:
    """A stream whose messages are sent one by one."""

    def __init__(self, through: grpc.Channel, name: str) -> None:
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.call = call(through, name, iter(self._queue.get, None))

    def send(self, message: Any) -> None:
        self._queue.put(message)

    def close(self) -> None:
        self._queue.put(None)
        self.call.cancel()


def opening(client: Client, keys_id: bytes) -> Any:
    return messages.SessionRequest(program=messages.Program(name="only"), keys=keys_id)


@contextmanager
def takes_nothing(service, path: str, *sent: bytes) -> Generator[socket.socket]:
    """A call on a connection of its own, whose windows for flow control let nothing through to it."""

    def frame(kind: int, flags: int, stream: int, body: bytes) -> bytes:
        return len(body).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + body

    def header(name: bytes, value: bytes) -> bytes:
        return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value

    headers = {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": path.encode(),
        b":authority": b"localhost",
        b"te": b"trailers",
        b"content-type": b"application/grpc",
    }
    no_window = b"\0\4" + bytes(4)
    content = [
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, no_window) + frame(4, 1, 0, b""),
        frame(1, 4, 1, b"".join(header(*pair) for pair in headers.items())),
        *(frame(0, 0, 1, b"\0" + len(message).to_bytes(4, "big") + message) for message in sent),
    ]
    with socket.create_connection(service.address) as bare:
        bare.sendall(b"".join(content))
        yield bare
