"""The interface of a program to a service: its public description, message sizes, and both ends of a session.

The number of rounds of an image, and any preparation, are the program's own business. All messages are
framed alike (:mod:`protocol.wire`), and none is parsed before its length is what the description fixes. A session
begins with the *greeting*, the program's public description, which is untrusted. Each party measures with a *meter*.
"""

import json
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol, cast

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.program import limits, signature
from privcirnet.he.program.program import PublicDescription
from privcirnet.he.program.signature import PublicKey
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.protocol.wire import MessageSizes
from privcirnet.he.rlwe.wire_bytes import Message


@dataclass
class Meter:
    """Seconds and operations of one party.

    Attributes:
        seconds: node -> seconds of work.
        counts: node -> operations by name (server only).
    """

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    @contextmanager
    def time(self, *nodes: str) -> Generator[None, None, None]:
        """Add the time of the block to a node, or in equal parts to several.

        Yields:
            nothing, once. A block that raises is not counted.
        """
        start = time.perf_counter()
        yield
        seconds = (time.perf_counter() - start) / len(nodes)
        for node in nodes:
            self.seconds[node] += seconds

    @contextmanager
    def count(self, node: str, counter: Counter[str]) -> Generator[None, None, None]:
        """Add the operations that the block adds to an engine's counter to a node.

        Yields:
            nothing, once. A block that raises is not counted.
        """
        before = counter.copy()
        yield
        self.counts[node] += counter - before


class ServedSession(Protocol):
    """The server's end: one client's inferences, one image after the other."""

    @property
    def meters(self) -> Sequence[Meter]:
        """The meters of images, and of all offline work, if there is any."""
        ...

    @property
    def dropped(self) -> list[str]:
        """The reasons why prepared work could not be used, in words."""
        ...

    def handle(self, message: bytes) -> bytes:
        """Return the reply to a request.

        Raises:
            RuleError: it is not the request that is due.
        """
        ...

    def seen(self) -> object:
        """Return the values of the last inference that an audit of both parties compares; no message asks for them."""
        ...

    def close(self) -> None:
        """Forget the client."""
        ...


class ServedClient(Protocol):
    """The client's end: its keys, its requests and its results."""

    @property
    def known(self) -> PublicDescription:
        """The public description of the program."""
        ...

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of the program's messages."""
        ...

    @property
    def meters(self) -> Sequence[Meter]:
        """The meters of images, and of all offline work, if there is any."""
        ...

    def keys(self) -> bytes:
        """Return the keys that the server needs once, before any image."""
        ...

    def infer(self, image: Values) -> Generator[bytes, bytes, Values]:
        """Run the program on one image, or on a batch if it is made for one.

        Yields:
            requests; the generator is sent the reply to each.

        Raises:
            RuleError: the image does not fit, or a reply is malformed.
            ImpossibleResultError: the result is wider than right ones are.
        """
        ...

    def agree(self) -> Generator[bytes, bytes, None]:
        """Drop the prepared work of which the server has no half.

        Yields:
            requests, if there may be prepared work.
        """
        ...

    def forget_session(self) -> None:
        """Drop state whose other half only the session's server has: a new session begins."""
        ...

    def close(self) -> None:
        """Forget the keys."""
        ...


class Served(Protocol):
    """A program, its weights encoded, ready for sessions."""

    @property
    def known(self) -> PublicDescription:
        """The public description of the program."""
        ...

    @property
    def sizes(self) -> MessageSizes:
        """The most bytes of its messages."""
        ...

    def in_words(self) -> str:
        """Describe the program's computation and its cost, for the operator."""
        ...

    def greeting(self) -> bytes:
        """Return the program's public description, signed or not; no weight is in it."""
        ...

    def session(self, keys: Message | None, store: PreparedStore | None = None, owner: bytes = b"") -> ServedSession:
        """Return a session with one client.

        Args:
            keys: result of :meth:`ServedClient.keys`; None: the client has sent none.
            store: store of work prepared with this client; None: memory, for as long as the session.
            owner: 32 random bytes that a client chose for all that it prepares.

        Raises:
            RuleError: the keys are missing, or not those that the program needs.
        """
        ...

    def client(self, engine: str) -> ServedClient:
        """Return a client in this process."""
        ...

    def prepared_bytes(self, owner: bytes) -> int:
        """Return the bytes of one prepared inference.

        Raises:
            RuleError: nothing can be prepared.
        """
        ...


def unprepared() -> RuleError:
    """Return the error for a preparation where there is no offline phase."""
    rule, remedy = "only interactive programs have an offline phase", "send the image"
    return RuleError(rule, got="a preparation", remedy=remedy)


def read_greeting(greeting: bytes, key: PublicKey | None, mode: str) -> object:
    """Return a greeting's plain data; nothing in it is checked but its length, its signature and its mode.

    Args:
        key: the key that must have signed the description; None for any.
        mode: mode of the client's program: "interactive" or "ckks".
    """
    if len(greeting) > limits.MAX_BYTES:
        rule, remedy = f"a greeting must have at most {limits.MAX_BYTES} bytes", "connect to a server"
        raise RuleError(rule, got=f"{len(greeting)} bytes", remedy=remedy)
    try:
        data = json.loads(greeting)
    except (ValueError, RecursionError):
        got, remedy = f"{len(greeting)} bytes that are not", "connect to a server"
        raise RuleError("a greeting must be JSON", got=got, remedy=remedy) from None
    if key is not None:
        _check_signature(key, data)
    if (server_mode := _mode(data) or mode) != mode:
        raise RuleError(
            f"the server's program must be {mode}", got=f"mode={server_mode}", remedy=f"give mode={server_mode}"
        )
    return data


def closed() -> RuleError:
    """Return the error for a client that is used after it was closed."""
    return RuleError("a client must be open", got="a closed one", remedy="make another from the server's greeting")


def _mode(greeting: object) -> str:
    """Return the mode of a greeting's program; "" if it has no known one."""
    names = cast(dict[str, object], greeting) if isinstance(greeting, dict) else ()
    return "interactive" if "nodes" in names else "ckks" if "format" in names else ""


def _check_signature(key: PublicKey, greeting: object) -> None:
    """Raise unless a greeting's description is signed with a key.

    Raises:
        RuleError: it is not.
    """
    description = dict(cast(dict[str, object], greeting)) if isinstance(greeting, dict) else {}
    hex_signature = description.pop("signature", "")
    try:
        signed = bytes.fromhex(hex_signature) if isinstance(hex_signature, str) else b""
    except ValueError:
        signed = b"no signature"
    signature.check_description(key, description, signed)
