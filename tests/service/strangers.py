"""Calls as a client of another make could send them."""

import queue
from typing import Any

import grpc

from privcirnet.he.protocol.client import Client
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
