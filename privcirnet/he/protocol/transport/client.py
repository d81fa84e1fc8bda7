"""The client's end of a connection, which the client uses like a session in its own process."""

import socket
import time
from types import TracebackType

from privcirnet.errors import RuleError
from privcirnet.he.program import limits
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol import message_sizes
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.transport import tcp
from privcirnet.he.protocol.transport.tcp import Channel

TIMEOUT_S = 600.0
"""Seconds that a server may take to reply: it may have other clients to serve first."""
_CONNECTING = 10.0
"""Seconds that a server may take to accept a connection and to greet."""


class TcpClient:
    """A connection to a server that replies to one client's requests; ``with`` closes it.

    Args:
        address: host and port.
        engine: the client's. "kernel" and "tenseal" are the same, "cleartext" hides nothing; the client alone decides.
        timeout_s: seconds to wait for a reply.
        key: with which the program must be signed; None for any.

    Attributes:
        client: made from the server's greeting; the server has accepted its keys.
        bytes_keys: bytes of the keys, which are sent once.
        seconds: time to connect, to make the keys and to have the server load them.

    Raises:
        RuleError: no server of this protocol listens there; the greeting is damaged or not secure; the keys are
            refused.
    """

    def __init__(
        self,
        address: tuple[str, int],
        engine: str = "kernel",
        timeout_s: float = TIMEOUT_S,
        key: PublicKey | None = None,
    ) -> None:
        started = time.perf_counter()
        self._channel = Channel(_connected(address), f"the server at {address[0]}:{address[1]}", timeout_s)
        try:
            self._channel.receive_hello(_CONNECTING)
            greeting = self._channel.receive(tcp.GREETING, limits.MAX_BYTES)
            self.client = Client(greeting, engine, key)
            self._channel.send_hello()
            self._most = message_sizes.largest(self.client.program).reply
            keys = self.client.keys()
            self._channel.send(tcp.KEYS, keys)
            self._channel.receive(tcp.READY, 0)
        except BaseException:
            self._channel.close()
            raise
        self.bytes_keys, self.seconds = len(keys), time.perf_counter() - started

    def handle(self, message: bytes) -> bytes:
        """Return the server's reply to a request.

        Args:
            message: the client's request.

        Raises:
            RuleError: the server refused, hung up, or sent something else.
        """
        self._channel.send(tcp.REQUEST, message)
        return self._channel.receive(tcp.REPLY, self._most)

    def __enter__(self) -> "TcpClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()
        self.client.close()


def _connected(address: tuple[str, int]) -> socket.socket:
    try:
        return socket.create_connection(address, timeout=_CONNECTING)
    except OSError as problem:
        got = f"{address[0]}:{address[1]}: {problem.strerror or problem}"
        raise RuleError("a server must listen at its address", got=got, remedy="start one with serve.py") from None
