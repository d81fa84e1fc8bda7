"""The interface of a program to a service: its public description, message sizes, and both ends of a session.

The number of rounds of an image, and any preparation, are the program's own business. All messages are
framed alike (:mod:`protocol.framing.wire`), and none is parsed before its length is what the description fixes.
"""

from collections.abc import Generator, Sequence
from typing import Protocol

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import Known
from privcirnet.he.protocol.framing.message_sizes import MessageSizes
from privcirnet.he.protocol.framing.meter import Meter
from privcirnet.he.protocol.offline.store import PreparedStore
from privcirnet.he.rlwe.wire_bytes import Message


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
    def known(self) -> Known:
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
    def known(self) -> Known:
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
