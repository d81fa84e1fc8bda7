"""Stores in which prepared work waits for its image: in memory or in a folder, used once, bound to its owner.

The inventory of a folder is one process's, or shared by several. Whoever takes an entry out has the prepared work, and
nobody else ever has it: this claim is needed to use a body, so a copied file is of no use to anybody.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store_files import (
    DIGEST_BYTES,
    SERIAL_BYTES,
    Claims,
    Found,
    Label,
    Note,
    StoreFiles,
    unusable,
    usual_place,
)
from privcirnet.he.system.process import Process


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


_DAY_S = 86_400.0


class PreparedWork:
    """Correlated randomness of all owners, within one limit. A copy of the process (fork) begins without any.

    Args:
        folder: folder for files; None: in memory, forgotten at the end.
        limit: most bytes in all; None for any number. Work that does not fit is refused: nobody loses any to others.
        days: age at which correlated randomness is dropped; None for never.
        note: function called with a line about work that was removed unused, and the reason.
        clock: clock in seconds since 1970.
        inventory: inventory that several processes share, and may share the folder then; None: one of this process.
        claims: folder of the claims on what is in ``folder``, outside of it; None: in the user's state folder.

    Raises:
        RuleError: a folder is another process's or another user's, or cannot be written.
    """

    def __init__(  # noqa: PLR0913
        self,
        folder: Path | None = None,
        limit: int | None = None,
        days: float | None = None,
        note: Note = lambda line: None,
        clock: Callable[[], float] = time.time,
        *,
        inventory: Inventory | None = None,
        claims: Path | None = None,
    ) -> None:
        self._limit, self._days, self._note = limit, days, note
        self._files = StoreFiles(folder, note, shared=inventory is not None) if folder else None
        self._owner, self._bodies = b"", dict[Label, bytes | bytearray]()
        self._inventory: Inventory
        if inventory is not None:
            self._inventory = inventory
            if self._files is not None:
                self._files.sweep(inventory.here())
        elif folder is not None and self._files is not None:
            self._inventory = self._claimed(self._files, folder, claims, clock)
        else:
            self._inventory = LocalInventory(clock)

    def _claimed(
        self, files: StoreFiles, folder: Path, place: Path | None, clock: Callable[[], float]
    ) -> LocalInventory:
        """Return the inventory of files with claims; others are removed from the folder."""
        claims, every = None, {file.label: file for file in files.found()}
        try:
            claims = Claims(place or usual_place(), folder, self.owner)
        except RuleError as error:
            if place is not None:
                files.close()
                raise
            self._note(f"prepared work will not outlive this process: {error}")
        claimed = claims.keep({*every}) if claims is not None else set[Label]()
        for label in every.keys() - claimed:
            files.remove(label)
        if lost := len(every) - len(claimed):
            where, why = f" in {claims}" if claims else "", "restored, copied or moved, or a process was killed"
            self._note(f"prepared work of {lost} inferences was removed, with no claim on it{where}: {why}")
        return LocalInventory(clock, [every[label] for label in claimed], claims)

    @property
    def size(self) -> int:
        """Bytes of all prepared work that is here."""
        return self._inventory.size

    @property
    def owner(self) -> bytes:
        """32 random bytes that a client's prepared work is bound to; a folder has the same ones from now on."""
        if not self._owner:
            self._owner = self._files.owner() if self._files else secrets.token_bytes(DIGEST_BYTES)
        return self._owner

    def close(self) -> None:
        """Release the folder for another process. Nothing is kept or taken afterwards."""
        self._inventory.close()
        self._bodies.clear()
        if self._files is not None:
            self._files.close()

    def of(self, binding: Binding, limit: Callable[[], int | None] = lambda: None) -> "BoundStore":
        """Return the store of one owner; ``limit``: most inferences prepared with its peer, None for any number."""
        return BoundStore(self, binding, limit)

    def fits(self, size: int) -> bool:
        """Return whether ``size`` more bytes fit."""
        self.expire()
        return self._limit is None or self.size + size <= self._limit

    @property
    def limit(self) -> int | None:
        """The most bytes of all prepared work; None for any number."""
        return self._limit

    def count(self, peer: str) -> int:
        """Return the number of inferences that are prepared with a peer."""
        self.expire()
        return len(self._inventory.of(digest_of(peer)))

    def expire(self) -> None:
        """Drop prepared work that is too old."""
        if self._days is not None:
            self._drop_all(self._inventory.here(self._days * _DAY_S), f"older than {self._days:g} days")

    def retain(self, programs: Collection[bytes], peer: str | None = None) -> int:
        """Return the number of inferences whose prepared work was dropped: of other programs, of one peer or all."""
        digest = None if peer is None else digest_of(peer)
        stale = [of for of in self._inventory.here() if of.program not in programs and digest in (None, of.peer)]
        return self._drop_all(stale, "of another program")

    def make_room(self, binding: Binding, limit: int, more: int = 1) -> None:
        """Drop a peer's oldest prepared work that its owner has left behind, to make room.

        It belongs to other owners, to a client that began anew, or lies in a process that the owner has left.

        Args:
            limit: most inferences that may be prepared with the peer.
        """
        self.expire()
        items = self._inventory.of(digest_of(binding.peer))
        stale = [label for label, item in items.items() if label.owner != binding.owner or not item.here]
        self._drop_all(stale[: max(len(items) + more - limit, 0)], "left behind by its owner")

    def _drop_all(self, labels: Collection[Label], why: str) -> int:
        for label in labels:
            self.drop(label)
        if labels:
            self._note(f"prepared work of {len(labels)} inferences was removed unused: {why}")
        return len(labels)

    def put(self, label: Label, data: bytes | bytearray, limit: int | None = None) -> None:
        """Keep prepared work: :meth:`PreparedStore.put`.

        Args:
            limit: most inferences that may be prepared with its peer; None for any number.
        """
        self.expire()
        room = Room(self._limit, limit)
        if self._files is None:
            self._sweep()
            self._inventory.add(label, len(data), room)
            self._bodies[label] = data
        else:
            items = self._inventory.of(label.peer)
            room.check(label, len(data), label in items, self.size, len(items))  # before anything is written
            self._files.put(label, data)
            try:
                self._inventory.add(label, len(data), room)
            except BaseException:
                self._files.remove(label)
                raise

    def _sweep(self) -> None:
        """Forget bodies in memory that another process has taken out of the inventory."""
        bodies = set(self._bodies)  # looked at first: what is being put is not among them
        for label in bodies.difference(self._inventory.here()):
            self._bodies.pop(label, None)

    def take(self, label: Label) -> bytes | bytearray:
        """Remove prepared work and return it: :meth:`PreparedStore.take`.

        Returns:
            its bytes.
        """
        self.expire()
        body = None
        if self._inventory.claim(label):
            body = self._files.take(label) if self._files else self._bodies.pop(label, None)
        if body is None:
            raise unusable(f"none of serial {label.serial.hex()}")
        return body

    def drop(self, label: Label) -> None:
        """Remove prepared work, if it is there."""
        if self._inventory.claim(label):
            self._bodies.pop(label, None)
            if self._files is not None:
                self._files.remove(label)

    def whole(self, binding: Binding) -> dict[bytes, int]:
        """Return the size of each prepared work of an owner that is here, by serial, oldest first."""
        self.expire()
        prefix, items = binding.label(bytes(SERIAL_BYTES))[:-1], self._inventory.of(digest_of(binding.peer))
        return {label.serial: item.size for label, item in items.items() if label[:-1] == prefix and item.here}


class BoundStore:
    """A :class:`PreparedStore`: the prepared work of one owner among those of all.

    Args:
        prepared_work: prepared work of all owners.
        limit: most inferences that may be prepared with its peer; None for any number.
    """

    def __init__(
        self, prepared_work: PreparedWork, binding: Binding, limit: Callable[[], int | None] = lambda: None
    ) -> None:
        self._prepared_work, self._binding, self._most = prepared_work, binding, limit

    @property
    def size(self) -> int:
        return sum(self._prepared_work.whole(self._binding).values())

    def put(self, serial: bytes, data: bytes | bytearray) -> None:
        self._prepared_work.put(self._binding.label(serial), data, self._most())

    def take(self, serial: bytes) -> bytes | bytearray:
        return self._prepared_work.take(self._binding.label(serial))

    def drop(self, serial: bytes) -> None:
        self._prepared_work.drop(self._binding.label(serial))

    def serials(self) -> list[bytes]:
        return [*self._prepared_work.whole(self._binding)]


class MemoryStore(BoundStore):
    """A store in memory, of one owner and without limit."""

    def __init__(self) -> None:
        super().__init__(PreparedWork(), Binding())
