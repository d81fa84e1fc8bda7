"""Stores in which prepared work waits for its image: in memory or in a folder, used once, bound to its owner."""

import secrets
import time
from collections.abc import Callable, Collection
from pathlib import Path

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.claims import Claims, usual_place
from privcirnet.he.protocol.offline.inventory import Inventory, LocalInventory, Room
from privcirnet.he.protocol.offline.store import Binding, digest_of
from privcirnet.he.protocol.offline.store_files import (
    DIGEST_BYTES,
    SERIAL_BYTES,
    Label,
    Note,
    StoreFiles,
    UnusablePreparationError,
)

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
            rule, remedy = "prepared work must be there and whole", "go on without it: prepare again"
            raise UnusablePreparationError(rule, got=f"none of serial {label.serial.hex()}", remedy=remedy)
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
