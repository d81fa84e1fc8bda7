"""Where a party keeps what it prepared: material by its serial number, each taken once."""

import threading
from typing import Protocol

from privcirnet.errors import RuleError


class MaterialStore(Protocol):
    """Material of one owner and one program, by its serial number."""

    @property
    def size(self) -> int:
        """Bytes of all material."""
        ...

    def put(self, serial: bytes, data: bytes) -> None:
        """Keep one.

        Args:
            serial: its number, of which there is none yet.
            data: of the material.

        Raises:
            RuleError: there is no room.
        """
        ...

    def take(self, serial: bytes) -> bytes:
        """Return one, which is gone for good before this returns.

        Args:
            serial: its number.

        Raises:
            RuleError: there is none.
        """
        ...

    def drop(self, serial: bytes) -> None:
        """Remove one unused, if there is one.

        Args:
            serial: its number.
        """
        ...

    def serials(self) -> list[bytes]:
        """Return the numbers of all, the oldest first."""
        ...


class MemoryStore:
    """Material that ends with its process."""

    def __init__(self) -> None:
        self._held: dict[bytes, bytes] = {}
        self._lock = threading.Lock()

    @property
    def size(self) -> int:
        """See :attr:`MaterialStore.size`."""
        with self._lock:
            return sum(map(len, self._held.values()))

    def put(self, serial: bytes, data: bytes) -> None:
        """See :meth:`MaterialStore.put`."""
        with self._lock:
            assert serial not in self._held, "serial numbers are drawn anew"
            self._held[serial] = data

    def take(self, serial: bytes) -> bytes:
        """See :meth:`MaterialStore.take`."""
        with self._lock:
            data = self._held.pop(serial, None)
        if data is None:
            raise RuleError("material must be there", got=f"none of number {serial.hex()}", remedy="prepare again")
        return data

    def drop(self, serial: bytes) -> None:
        """See :meth:`MaterialStore.drop`."""
        with self._lock:
            self._held.pop(serial, None)

    def serials(self) -> list[bytes]:
        """See :meth:`MaterialStore.serials`."""
        with self._lock:
            return list(self._held)
