"""Where prepared work waits for its image: in memory or in a folder, used once, bound to its owner."""

import secrets
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from privcirnet.errors import RuleError
from privcirnet.he.protocol.offline.store import Binding, digest_of
from privcirnet.he.protocol.offline.store_files import DIGEST_BYTES, SERIAL_BYTES, Label, Note, StoreFiles, Unusable
from privcirnet.he.system.process import Process

_DAY_S = 86_400.0


@dataclass
class _Kept:
    size: int
    since: float
    body: bytes | bytearray = b""
    whole: bool = True
    """False while its file is being written."""


class PreparedWork:
    """Correlated randomness of all owners, within one limit. A copy of the process (fork) begins without any.

    Args:
        folder: for files; None: in memory, forgotten at the end.
        limit: bytes in all; None for any number. What does not fit is refused: nobody loses any to others.
        days: after which correlated randomness is dropped; None for never.
        note: is told in a line what was removed unused, and why.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        folder: Path | None = None,
        limit: int | None = None,
        days: float | None = None,
        note: Note = lambda line: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._limit, self._days, self._note, self._clock = limit, days, note, clock
        self._files = StoreFiles(folder, note) if folder else None
        self._owner = b""
        self._lock, self._kept, self._process = threading.Lock(), dict[Label, _Kept](), Process()
        if self._files is not None:
            found = sorted(self._files.found(), key=lambda one: one.since)
            self._kept = {one.label: _Kept(one.size, one.since) for one in found}

    @property
    def size(self) -> int:
        """Bytes of all prepared work."""
        with self._held():
            return sum(kept.size for kept in self._kept.values())

    @property
    def owner(self) -> bytes:
        """32 random bytes that a client's prepared work is bound to; a folder has the same ones from now on."""
        if not self._owner:
            self._owner = self._files.owner() if self._files else secrets.token_bytes(DIGEST_BYTES)
        return self._owner

    def _held(self) -> threading.Lock:
        """The lock of what is kept; of a copy of the process another one, and nothing is kept."""
        if self._process.changed():
            self._lock, self._kept = threading.Lock(), {}
        return self._lock

    def close(self) -> None:
        """Let another process have the folder. Nothing is kept or taken afterwards."""
        with self._held():
            self._kept.clear()
        if self._files is not None:
            self._files.close()

    def of(self, binding: Binding) -> "BoundStore":
        """Return the store of one owner."""
        return BoundStore(self, binding)

    def fits(self, size: int) -> bool:
        """Return whether there is room for more; ``size``: bytes of all of it."""
        self.expire()
        return self._limit is None or self.size + size <= self._limit

    @property
    def limit(self) -> int | None:
        """Bytes of all prepared work, at most; None for any number."""
        return self._limit

    def count(self, peer: str) -> int:
        """Return how many inferences are prepared with a peer."""
        self.expire()
        digest = digest_of(peer)
        with self._held():
            return sum(label.peer == digest for label in self._kept)

    def expire(self) -> None:
        """Drop what is too old."""
        if self._days is not None:
            last = self._clock() - self._days * _DAY_S
            self._drop_all(lambda label, kept: kept.since <= last, f"older than {self._days:g} days")

    def retain(self, programs: Collection[bytes], peer: str | None = None) -> int:
        """Return of how many inferences prepared work was dropped: that of other programs, of one peer or of all."""
        digest = None if peer is None else digest_of(peer)
        return self._drop_all(
            lambda label, kept: label.program not in programs and digest in (None, label.peer), "of another program"
        )

    def make_room(self, binding: Binding, most: int, more: int = 1) -> None:
        """Drop a peer's oldest prepared work of other owners, which a client that began anew has left, to make room.

        Args:
            most: inferences that may be prepared with the peer.
        """
        excess = self.count(binding.peer) + more - most
        digest = digest_of(binding.peer)
        with self._held():
            others = [of for of in self._kept if of.peer == digest and of.owner != binding.owner][: max(excess, 0)]
        self._drop_all(lambda label, kept: label in others, "left behind by its owner")

    def _drop_all(self, chosen: Callable[[Label, _Kept], bool], why: str) -> int:
        with self._held():
            labels = [label for label, kept in self._kept.items() if chosen(label, kept)]
        for label in labels:
            self.drop(label)
        if labels:
            self._note(f"prepared work of {len(labels)} inferences was removed unused: {why}")
        return len(labels)

    def put(self, label: Label, data: bytes | bytearray) -> None:
        """Keep prepared work: :meth:`PreparedStore.put`."""
        self.expire()
        with self._held():
            used = sum(kept.size for kept in self._kept.values())
            if label in self._kept:
                rule, remedy = "prepared work must have a serial of its own", "prepare again"
                raise RuleError(rule, got=label.serial.hex(), remedy=remedy)
            if self._limit is not None and used + len(data) > self._limit:
                rule, remedy = f"prepared work must fit into {self._limit} bytes", "raise prepared_gb="
                raise RuleError(rule, got=f"{used} bytes and {len(data)} more", remedy=remedy)
            self._kept[label] = _Kept(len(data), self._clock(), b"" if self._files else data, whole=not self._files)
        if self._files is not None:
            self._write(self._files, label, data)

    def _write(self, files: StoreFiles, label: Label, data: bytes | bytearray) -> None:
        try:
            files.put(label, data)
        except BaseException:
            with self._held():
                self._kept.pop(label, None)
            raise
        with self._held():
            kept = self._kept.get(label)
            if kept is not None:
                kept.whole = True
        if kept is None:  # dropped meanwhile
            files.remove(label)

    def take(self, label: Label) -> bytes | bytearray:
        """Remove prepared work and return it: :meth:`PreparedStore.take`.

        Returns:
            its bytes.
        """
        self.expire()
        with self._held():
            kept = self._kept.get(label)
            if kept is None or not kept.whole:
                rule, remedy = "prepared work must be there and whole", "go on without it: prepare again"
                raise Unusable(rule, got=f"none of serial {label.serial.hex()}", remedy=remedy)
            del self._kept[label]
        return self._files.take(label) if self._files else kept.body

    def drop(self, label: Label) -> None:
        """Remove prepared work, if it is there."""
        with self._held():
            kept = self._kept.pop(label, None)
        if kept is not None and self._files is not None:
            self._files.remove(label)

    def whole(self, binding: Binding) -> dict[bytes, int]:
        """Return the size of each prepared work of an owner, by serial, oldest first."""
        self.expire()
        wanted = binding.label(bytes(SERIAL_BYTES))[:-1]
        with self._held():
            return {
                label.serial: kept.size for label, kept in self._kept.items() if label[:-1] == wanted and kept.whole
            }


class BoundStore:
    """A :class:`PreparedStore`: the prepared work of one owner among those of all.

    Args:
        prepared_work: of all owners.
    """

    def __init__(self, prepared_work: PreparedWork, binding: Binding) -> None:
        self._prepared_work, self._binding = prepared_work, binding

    @property
    def size(self) -> int:
        return sum(self._prepared_work.whole(self._binding).values())

    def put(self, serial: bytes, data: bytes | bytearray) -> None:
        self._prepared_work.put(self._binding.label(serial), data)

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
