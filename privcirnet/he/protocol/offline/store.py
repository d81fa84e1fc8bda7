"""The interface of a store of prepared work, and the binding of its contents."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES, SERIAL_BYTES, Label


class PreparedStore(Protocol):
    """A store of one party's prepared work for one client and one program."""

    @property
    def size(self) -> int:
        """Bytes of the prepared work."""
        ...

    def put(self, serial: bytes, data: bytes | bytearray) -> None:
        """Keep prepared work. It outlives this process, if the store does, when this returns.

        Args:
            serial: serial number of the pair, 16 random bytes.

        Raises:
            RuleError: the serial is known, there is no room, or the disk is full; nothing is kept then.
        """
        ...

    def take(self, serial: bytes) -> bytes | bytearray:
        """Remove prepared work and return it: nobody gets it a second time, whatever happens after this.

        Returns:
            this party's half.

        Raises:
            UnusablePreparationError: there is none, or it is damaged; it is there no longer.
        """
        ...

    def drop(self, serial: bytes) -> None:
        """Remove prepared work, if it is there."""
        ...

    def serials(self) -> list[bytes]:
        """Return the serials of the prepared work, oldest first."""
        ...


@dataclass(frozen=True)
class Binding:
    """The binding of prepared work. Correlated randomness is found only under the binding that it was kept under.

    Attributes:
        program: digest of the program, 32 bytes.
        peer: name of the other party: for a server the authenticated client's.
        owner: 32 random bytes of the client, for all of its correlated randomness.
    """

    program: bytes = bytes(DIGEST_BYTES)
    peer: str = ""
    owner: bytes = bytes(DIGEST_BYTES)

    def __post_init__(self) -> None:
        if {len(self.program), len(self.owner)} != {DIGEST_BYTES}:
            rule = f"an owner of prepared work must have {DIGEST_BYTES} bytes"
            raise RuleError(rule, got=f"{len(self.owner)} bytes", remedy="use the same release on both sides")

    def label(self, serial: bytes) -> Label:
        """Return the label of prepared work of this binding."""
        if len(serial) != SERIAL_BYTES:
            rule, remedy = f"a serial must have {SERIAL_BYTES} bytes", "use the same release on both sides"
            raise RuleError(rule, got=f"{len(serial)} bytes", remedy=remedy)
        return Label(self.program, digest_of(self.peer), self.owner, serial)


def put_all(store: PreparedStore, halves: Iterable[tuple[bytes, bytes | bytearray]]) -> None:
    """Keep all of some prepared work, or none.

    Args:
        halves: serials and the bytes to keep under them.
    """
    attempted = list[bytes]()
    try:
        for serial, data in halves:
            attempted.append(serial)
            store.put(serial, data)
    except BaseException:
        for serial in attempted:
            store.drop(serial)
        raise


def digest_of(name: str) -> bytes:
    """Return the digest that a peer's name is kept as."""
    return hashlib.sha256(name.encode()).digest()
