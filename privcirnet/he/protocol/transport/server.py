"""The server's end: it listens, and serves each connection in a thread of its own.

A session computes on all cores, so sessions take turns, request by request, and only waiting and sending overlap. A
connection takes a thread and the memory of the client's keys, its shares and one message; their number is limited.
Whatever goes wrong with a connection ends that connection alone.
"""

import socket
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.protocol import message_sizes, wire
from privcirnet.he.protocol.server import Server, Session
from privcirnet.he.protocol.transport import tcp
from privcirnet.he.protocol.transport.tcp import Channel, HungUp, Lost

_HELLO_SECONDS = 30.0
"""Seconds after which a peer that has not said hello is disconnected."""
_POLL = 0.2
"""Seconds between two looks at whether the server is to stop."""
_AT_END = 10.0
"""Seconds that connections may take to end when the server stops."""
_PAUSE = 0.5
"""Seconds before the next try where the system has no room for another connection."""

Log = Callable[[str], object]


@dataclass(frozen=True)
class ConnectionLimits:
    """How many clients a server takes, and how long it waits for them.

    Attributes:
        connections: the most at once; further clients are refused.
        timeout_s: seconds for which a client may be silent.
    """

    connections: int = 4
    timeout_s: float = 120.0


class TcpServer:
    """A server that listens for clients.

    Args:
        server: with the weights.
        address: host and port to listen at; port 0 takes a free one.
        limits: how many clients it takes, and how long it waits for them.
        log: called with a line for each connection, inference, error and end.
        finished: called with a session after each of its inferences, in this process. It is for a harness that audits
            both parties; no message from a client reaches it.

    Attributes:
        address: host and port, as a client can reach them.

    Raises:
        RuleError: it cannot listen there.
    """

    def __init__(
        self,
        server: Server,
        address: tuple[str, int] = ("127.0.0.1", 0),
        limits: ConnectionLimits = ConnectionLimits(),
        log: Log = lambda line: None,
        finished: Callable[[Session], object] = lambda session: None,
    ) -> None:
        self._server, self._limits, self._log, self._finished = server, limits, log, finished
        self._greeting, self._most = server.greeting(), message_sizes.largest(server.program)
        self._turn, self._lock, self._ended = threading.Lock(), threading.Lock(), threading.Event()
        self._connections: dict[Channel, threading.Thread] = {}
        self._number = 0
        self._listener = _listening(address)
        self.address: tuple[str, int] = self._listener.getsockname()[:2]

    def run(self) -> None:
        """Serve until :meth:`stop`, or until this thread is interrupted; then close all connections."""
        try:
            with self._listener:
                while not self._ended.is_set():
                    self._accept()
        finally:
            self._ended.set()
            with self._lock:
                connections = dict(self._connections)
            for channel in connections:
                channel.close()
            for thread in connections.values():
                thread.join(_AT_END)

    def stop(self) -> None:
        """Make :meth:`run` return, from any thread."""
        self._ended.set()

    def _accept(self) -> None:
        try:
            connection, peer = self._listener.accept()
        except TimeoutError:
            return
        except OSError as problem:
            self._log(f"a connection could not be accepted: {problem.strerror or problem}")
            self._ended.wait(_PAUSE)
            return
        try:
            channel = Channel(connection, "the client", self._limits.timeout_s)
        except OSError:  # the client has gone already
            connection.close()
            return
        self._number += 1
        name = f"client {self._number} ({peer[0]}:{peer[1]})"
        if not self._started(channel, name):
            self._turn_away(channel, name)

    def _started(self, channel: Channel, name: str) -> bool:
        """Whether there is room for one more connection; if so, a thread serves it now."""
        thread = threading.Thread(target=self._serve, args=(channel, name), name=name, daemon=True)
        with self._lock:  # which the thread takes before it ends
            if len(self._connections) >= self._limits.connections:
                return False
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left
                return False
            self._connections[channel] = thread
        return True

    def _turn_away(self, channel: Channel, name: str) -> None:
        """Say that there is no room. A client of this protocol has not sent anything yet, so nothing is awaited."""
        most = self._limits.connections
        rule, remedy = f"a server has at most {most} clients at once", "try again later"
        channel.refuse(RuleError(rule, got="one more", remedy=remedy), hello=True)
        channel.close()
        self._log(f"{name}: turned away, there is no room")

    def _serve(self, channel: Channel, name: str) -> None:
        """Serve one connection to its end, whatever that is."""
        try:
            self._log(f"{name}: connected")
            self._converse(channel, name)
        except HungUp:
            self._log(f"{name}: left")
        except RuleError as error:
            self._log(f"{name}: {error}")
            if not isinstance(error, Lost):
                channel.refuse(error)
        except Exception:
            self._log(f"{name}: the server failed\n{traceback.format_exc()}")
            channel.refuse(RuleError("a server must not fail", got="it did", remedy="ask whoever runs it"))
        finally:
            channel.close()
            with self._lock:
                del self._connections[channel]

    def _converse(self, channel: Channel, name: str) -> None:
        channel.send_hello()
        channel.send(tcp.GREETING, self._greeting)
        channel.receive_hello(_HELLO_SECONDS)
        session = self._session(channel.receive(tcp.KEYS, self._most.keys))
        channel.send(tcp.READY, b"")
        seconds, exchanged = 0.0, 0
        while True:
            request = channel.receive(tcp.REQUEST, self._most.request)
            started = time.perf_counter()
            with self._turn:
                reply = session.handle(request)
            seconds, exchanged = seconds + time.perf_counter() - started, exchanged + len(request) + len(reply)
            channel.send(tcp.REPLY, reply)
            if wire.position_of(reply) == wire.OUTPUT:
                self._finished(session)
                self._log(f"{name}: an image, {seconds:.2f} s of work, {exchanged / 1e6:.2f} MB")
                seconds, exchanged = 0.0, 0

    def _session(self, keys: bytes) -> Session:
        with self._turn:
            return self._server.session(keys)


def _listening(address: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        listener = socket.create_server(address, family=family)
    except OSError as problem:
        got, remedy = f"{address[0]}:{address[1]}: {problem.strerror or problem}", "choose another port= or host="
        raise RuleError("a server must be able to listen at its address", got=got, remedy=remedy) from None
    listener.settimeout(_POLL)
    return listener
