"""The inventory of prepared work: of one process, or of all that share it.

Whoever takes an entry out has the prepared work, and nobody else ever has it: this claim is needed to use a body,
so a copied file is of no use to anybody.
"""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.claims import Claims
from privcirnet.he.protocol.offline.store_files import Found, Label
from privcirnet.he.system.process import Process


class Item(NamedTuple):
    """An entry of the inventory.

    Attributes:
        size: bytes of the body.
        since: time when it was made, in seconds since 1970.
        here: whether this process can reach the body; it may lie in another one's memory.
    """

    size: int
    since: float
    here: bool = True


@dataclass(frozen=True)
class Room:
    """The limits on prepared work that is kept.

    Attributes:
        limit: most bytes of the bodies that are here; None for any number.
        most: most inferences of one peer, wherever they are; None for any number.
    """

    limit: int | None = None
    most: int | None = None

    def check(self, label: Label, size: int, exists: bool, used: int, count: int) -> None:
        """Raise unless an entry may be added.

        Args:
            size: bytes of the entry.
            exists: whether there is such an entry.
            used: bytes of the bodies that are here.
            count: number of inferences of its peer.
        """
        if exists:
            rule, remedy = "prepared work must have a serial of its own", "prepare again"
            raise RuleError(rule, got=label.serial.hex(), remedy=remedy)
        if self.limit is not None and used + size > self.limit:
            rule, remedy = f"prepared work must fit into {self.limit} bytes", "raise prepared_gb="
            raise RuleError(rule, got=f"{used} bytes and {size} more", remedy=remedy)
        if self.most is not None and count >= self.most:
            rule, remedy = f"a client may have {self.most} inferences prepared", "use them first"
            raise RuleError(rule, got="one more", remedy=remedy)


class Inventory(Protocol):
    """The inventory of prepared work."""

    @property
    def size(self) -> int:
        """Bytes of the bodies that are here."""
        ...

    def add(self, label: Label, size: int, room: Room) -> None:
        """Add prepared work whose body is here, ``size`` bytes of it.

        Raises:
            RuleError: there is no room, or its serial is known.
        """
        ...

    def claim(self, label: Label) -> bool:
        """Return whether an entry was there, and take it out: so it is for one caller, once and for all."""
        ...

    def of(self, peer: bytes) -> dict[Label, Item]:
        """Return the entries of a peer, oldest first; ``peer``: digest of its name."""
        ...

    def here(self, older: float = 0.0) -> list[Label]:
        """Return the labels of bodies that are here, oldest first; ``older``: least age in seconds."""
        ...

    def close(self) -> None:
        """End the use. Entries that would be lost with this process are taken out."""
        ...


class LocalInventory:
    """The inventory of one process. A copy of the process (fork) begins without any.

    Args:
        clock: clock in seconds since 1970.
        entries: prepared work that is there from the start.
        claims: claims that the use of a folder's files needs; None where nothing outlives this process.
    """

    def __init__(self, clock: Callable[[], float], entries: Iterable[Found] = (), claims: Claims | None = None) -> None:
        self._clock, self._lock, self._process, self._claims = clock, threading.Lock(), Process(), claims
        ordered = sorted(entries, key=lambda entry: entry.since)
        self._items = {entry.label: Item(entry.size, entry.since) for entry in ordered}

    @property
    def size(self) -> int:
        with self._held():
            return self._used()

    def add(self, label: Label, size: int, room: Room) -> None:
        if self._claims is not None:
            self._claims.add(label)
        try:
            with self._held():
                count = sum(entry.peer == label.peer for entry in self._items)
                room.check(label, size, label in self._items, self._used(), count)
                self._items[label] = Item(size, self._clock())
        except BaseException:
            if self._claims is not None:
                self._claims.remove(label)
            raise

    def claim(self, label: Label) -> bool:
        with self._held():
            present = self._items.pop(label, None) is not None
        return present and (self._claims is None or self._claims.remove(label))

    def of(self, peer: bytes) -> dict[Label, Item]:
        with self._held():
            return {label: item for label, item in self._items.items() if label.peer == peer}

    def here(self, older: float = 0.0) -> list[Label]:
        last = self._clock() - older
        with self._held():
            return [label for label, item in self._items.items() if item.since <= last or not older]

    def close(self) -> None:
        with self._held():
            self._items.clear()
        if self._claims is not None:
            self._claims.close()

    def _used(self) -> int:
        return sum(item.size for item in self._items.values())

    def _held(self) -> threading.Lock:
        """Return the lock of the entries; a copy of the process (fork) gets another one, and no entries."""
        if self._process.changed():
            self._lock, self._items = threading.Lock(), {}
        return self._lock
