"""Whole messages over TCP: each of the kind that is due, no longer than agreed, in time, or a :class:`RuleError`.

The server begins. Each side first sends 8 bytes, magic "PCNT", u16 version, u16 zero; the client does so after it has
received the server's. Then frames, little-endian: u8 kind, u64 length, and the bytes:

    server  GREETING  the program's public description
    client  KEYS      public key and Galois keys
    server  READY     nothing
    client  REQUEST   ┐ as often as there are rounds, image after image:
    server  REPLY     ┘ messages of :mod:`protocol.wire`
    server  ERROR     JSON with "rule", "got", "remedy", instead of what is due; it then hangs up

A frame's kind and length are checked before memory is taken for it. The transport neither encrypts nor authenticates
messages: SECURITY.md says what to put around it.
"""

import json
import socket
import struct
import time
from typing import Any, cast

import numpy as np

from privcirnet.errors import RuleError

MAGIC, VERSION = b"PCNT", 1
GREETING, KEYS, READY, REQUEST, REPLY, ERROR = range(1, 7)

SLOWEST = 1 << 15
"""Bytes a second: a peer that sends or receives a long message more slowly is disconnected."""
MAX_ERROR = 1 << 15
"""Most bytes of an error that is read: three texts as JSON, whatever their characters."""
_HELLO, _HEADER = struct.Struct("<4sHH"), struct.Struct("<BQ")
_MAX_TEXT = 500
"""Most characters of each text of an error."""
_GOODBYE = 2.0
"""Seconds that an error may take to reach the peer before the connection is closed."""
_KEEP_ALIVE = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""A peer whose machine has gone is noticed after a minute."""


class Lost(RuleError):
    """The peer hung up, or was too slow."""


class HungUp(Lost):
    """The peer hung up between two messages."""


class Refused(RuleError):
    """The peer refused, and said why."""


class Channel:
    """One end of a connection.

    Args:
        connection: connected.
        peer: what the peer is called in errors.
        timeout_s: seconds to wait for the next message to begin.

    Attributes:
        timeout_s: as given.
    """

    def __init__(self, connection: socket.socket, peer: str, timeout_s: float) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEP_ALIVE.items():
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection, self._peer, self.timeout_s = connection, peer, timeout_s

    def send_hello(self) -> None:
        """Send the protocol's name and version.

        Raises:
            Refused: the peer had sent an error.
            Lost: it hung up.
        """
        self._transmit(_HELLO.pack(MAGIC, VERSION, 0), b"")

    def receive_hello(self, timeout_s: float) -> None:
        """Receive the protocol's name and version, and raise unless they are this one's.

        Args:
            timeout_s: seconds to wait for them.

        Raises:
            RuleError: another protocol, or another version of it.
            Lost: the peer hung up or sent nothing.
        """
        magic, version, zero = _HELLO.unpack(self._fill(_HELLO.size, timeout_s))
        if magic != MAGIC or zero:
            got, remedy = f"{magic!r} from {self._peer}", "check the address: privcirnet's serve.py must listen there"
            raise RuleError("both sides must speak privcirnet's protocol", got=got, remedy=remedy)
        if version != VERSION:
            got, remedy = f"{version} from {self._peer}", "install the same release on both sides"
            raise RuleError(f"both sides must speak version {VERSION} of the protocol", got=got, remedy=remedy)

    def send(self, kind: int, body: bytes) -> None:
        """Send one message.

        Args:
            kind: :data:`GREETING` to :data:`ERROR`.
            body: the message.

        Raises:
            Refused: the peer had sent an error.
            Lost: it hung up, or received the message too slowly.
        """
        self._transmit(_HEADER.pack(kind, len(body)), body)

    def receive(self, kind: int, most: int) -> bytes:
        """Receive one message and return its bytes.

        Args:
            kind: the kind that is due.
            most: bytes that it may have.

        Returns:
            the message.

        Raises:
            Refused: the peer sent an error instead.
            RuleError: another kind, or a longer message.
            Lost: it hung up, or was too slow.
        """
        found, length = _HEADER.unpack(self._fill(_HEADER.size, self.timeout_s, between=True))
        if found == ERROR and length <= MAX_ERROR:
            raise self._refused(self._fill(length, self.timeout_s))
        if found != kind or length > most:
            got = f"kind {found}, {length} bytes"
            remedy = "use the same version and program on both sides"
            raise RuleError(f"a message must be of kind {kind} with at most {most} bytes here", got=got, remedy=remedy)
        return self._fill(length, self.timeout_s + length / SLOWEST)

    def refuse(self, error: RuleError, hello: bool = False) -> None:
        """Tell the peer why the connection ends, if it still listens.

        Closing a connection with unread bytes would discard the error before the peer has read it. So what the peer
        still sends is read and dropped for a moment.

        Args:
            error: the reason.
            hello: whether nothing has been exchanged yet. Then the protocol's name comes first, and nothing is read.
        """
        texts = {"rule": error.rule, "got": str(error.got), "remedy": error.remedy}
        body = json.dumps({name: text[:_MAX_TEXT] for name, text in texts.items()}).encode()
        end = time.monotonic() + _GOODBYE
        try:
            self._connection.settimeout(_GOODBYE)
            first = _HELLO.pack(MAGIC, VERSION, 0) if hello else b""
            self._connection.sendall(first + _HEADER.pack(ERROR, len(body)) + body)
            self._connection.shutdown(socket.SHUT_WR)
            while not hello and (left := end - time.monotonic()) > 0:
                self._connection.settimeout(left)
                if not self._connection.recv(1 << 16):
                    return
        except OSError:
            pass

    def close(self) -> None:
        """Close the connection, also while another thread waits for a message."""
        try:
            self._connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self._connection.close()

    def _transmit(self, head: bytes, body: bytes) -> None:
        try:
            self._connection.settimeout(self.timeout_s + len(body) / SLOWEST)
            sent = self._connection.sendmsg([head, body])
            self._connection.sendall(head[sent:])
            self._connection.sendall(memoryview(body)[max(sent - len(head), 0) :])
        except OSError as problem:
            raise self._reason(problem) from None

    def _reason(self, problem: OSError) -> RuleError:
        """Why nothing can be sent: the error that the peer sent last, if it sent one."""
        try:
            kind, length = _HEADER.unpack(self._fill(_HEADER.size, _GOODBYE))
            if kind == ERROR and length <= MAX_ERROR:
                return self._refused(self._fill(length, _GOODBYE))
        except RuleError:
            pass
        return self._lost(problem.strerror or str(problem) or type(problem).__name__)

    def _fill(self, size: int, seconds: float, between: bool = False) -> bytes:
        """Receive exactly ``size`` bytes within ``seconds``; ``between`` messages the peer may hang up."""
        buffer, filled, end = np.empty(size, dtype=np.uint8), 0, time.monotonic() + seconds
        view = buffer.data
        while filled < size:
            left = end - time.monotonic()
            if left <= 0:
                raise self._lost(f"{filled} of {size} bytes in {seconds:.3g} s")
            try:
                self._connection.settimeout(left)
                count = self._connection.recv_into(view[filled:])
            except TimeoutError:
                continue
            except OSError as problem:
                raise self._lost(problem.strerror or str(problem)) from None
            if not count:
                raise self._lost(f"the end after {filled} of {size} bytes", HungUp if between and not filled else Lost)
            filled += count
        return buffer.tobytes()

    def _lost(self, got: str, kind: type[Lost] = Lost) -> Lost:
        return kind("a peer must stay until both are done", got=f"{got} from {self._peer}", remedy="connect again")

    def _refused(self, body: bytes) -> Refused:
        """The error that the peer sent, as text that a terminal can show."""
        try:
            found: Any = json.loads(body)
            texts = [str(cast(object, found[name])) for name in ("rule", "got", "remedy")]
        except (ValueError, KeyError, TypeError, RecursionError):
            texts = ["no reason was given", f"{len(body)} bytes", "ask whoever runs it"]
        rule, got, remedy = ("".join(c if c.isprintable() else "?" for c in text[:_MAX_TEXT]) for text in texts)
        return Refused(f"{self._peer} refused: {rule}", got=got, remedy=remedy)


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of "HOST:PORT".

    Args:
        text: a name or an address, in brackets where it contains colons, and a decimal port.

    >>> parse_address("127.0.0.1:5050"), parse_address("[::1]:5050")
    (('127.0.0.1', 5050), ('::1', 5050))

    Raises:
        RuleError: the text is not of that form.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 0xFFFF:
        raise RuleError("a server's address must be HOST:PORT", got=repr(text), remedy="e.g. server=127.0.0.1:5050")
    return host.strip("[]"), int(port)
