"""Evaluation keys that clients have registered, each under its SHA-256, until they expire.

Keys belong to the client that registered them: nobody else finds them. They are public in the sense of the
cryptography, yet name their owner, so the folder is the service's alone. A file's time of change is when it was
registered; its name says whose it is, so a restarted service finds all of them again.
"""

import hashlib
import mmap
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.files import private_folder
from privcirnet.service import messages
from privcirnet.service.messages import KEY_ID_BYTES
from privcirnet.service.refusals import ServiceError, busy, unknown

_SUFFIX, _DRAFT = ".keys", ".draft"
_DAY_S = 86_400.0


@dataclass
class StoreLimits:
    """The limits of the key store.

    Attributes:
        gigabytes: of all keys together, in 10^9 bytes.
        days: after which keys expire.
        folder: where state= is a Redis: a folder that all replicas share, or a URL of fsspec; empty: in Redis too.
    """

    gigabytes: float = 4.0
    days: float = 30.0
    folder: str = ""

    def __post_init__(self) -> None:
        got, remedy = f"gigabytes={self.gigabytes}, days={self.days}", "use 4 and 30"
        if min(self.gigabytes, self.days) <= 0:
            raise RuleError("a store of keys must have gigabytes and days over 0", got=got, remedy=remedy)

    @property
    def bytes(self) -> int:
        """The most bytes of all keys together."""
        return int(1e9 * self.gigabytes)


@dataclass
class _Kept:
    size: int
    registered: float
    body: bytes | None  # None: in a file


class KeyRegistry(Protocol):
    """The keys of all clients, of one server or of all replicas of a service."""

    @property
    def size(self) -> int:
        """The bytes of all keys, and of those that are being received."""
        ...

    def seconds_left(self, client: str, key_id: bytes) -> float:
        """Return the seconds for which a client's keys are kept; 0 if there are none."""
        ...

    def load(self, client: str, key_id: bytes) -> Message:
        """Return a client's keys, named by their SHA-256. It may take long, in any thread."""
        ...

    def receive(self, client: str, key_id: bytes, size: int, max_keys: int) -> "Registration":
        """Return a new registration of keys, which takes their bytes.

        Args:
            key_id: SHA-256 of the keys.
            size: most bytes that they may have.
            max_keys: most keys that the client may have; its oldest make room.
        """
        ...

    def forget(self, client: str, key_id: bytes) -> None:
        """Forget a client's keys."""
        ...

    def close(self) -> None:
        """End the use."""
        ...


class Registration(ABC):
    """Keys that are being received. It ends with :meth:`finish` or :meth:`cancel`, whichever comes first.

    Args:
        promised: most bytes that they may have.
    """

    def __init__(self, key_id: bytes, promised: int) -> None:
        self._id, self._promised = key_id, promised
        self._hash, self._size = hashlib.sha256(), 0

    @property
    def size(self) -> int:
        """The bytes so far."""
        return self._size

    def add(self, chunk: Any) -> bool:
        """Take the next bytes, and return whether they were the last.

        Raises:
            RuleError: the chunk is badly cut, or makes the keys too long.
        """
        data = messages.checked(chunk, self._size, self._promised)
        self._hash.update(data)
        self._size += len(data)
        self._write(data)
        return chunk.last

    def settle(self) -> None:
        """Check the keys, and move them to their store. It may take long, in any thread."""
        if self._hash.digest() != self._id:
            rule, remedy = "keys must have the SHA-256 that was announced", "send them again"
            raise RuleError(rule, got=self._hash.hexdigest()[:16], remedy=remedy)

    @abstractmethod
    def finish(self) -> None:
        """Keep the keys, once they are settled."""

    @abstractmethod
    def cancel(self) -> None:
        """Forget the keys if they have not been kept, and release their room."""

    @abstractmethod
    def _write(self, data: bytes) -> None:
        """Append some bytes."""


class KeyStore:
    """The keys of one server's clients.

    Args:
        folder: folder for files; None: keys are kept in memory, and forgotten at the end.
        clock: clock in seconds since 1970.
    """

    def __init__(
        self, limits: StoreLimits | None = None, folder: Path | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        self._limits, self._folder, self._clock = limits or StoreLimits(), folder, clock
        self._kept: dict[tuple[str, bytes], _Kept] = {}
        self._promised = 0
        if folder is not None:
            self._open(folder)

    @property
    def size(self) -> int:
        return sum(entry.size for entry in [*self._kept.values()]) + self._promised

    def seconds_left(self, client: str, key_id: bytes) -> float:
        self._expire()
        entry = self._kept.get((digest(client), key_id))
        return 0.0 if entry is None else entry.registered + self._limits.days * _DAY_S - self._clock()

    def load(self, client: str, key_id: bytes) -> Message:
        if self.seconds_left(client, key_id) > 0:
            owner = digest(client)
            entry = self._kept[owner, key_id]
            body = mapped(self._path(owner, key_id)) if entry.body is None else entry.body
            if hashlib.sha256(body).digest() == key_id:
                return body
            self.forget(client, key_id)
        raise not_registered(key_id)

    def receive(self, client: str, key_id: bytes, size: int, max_keys: int) -> Registration:
        self._expire()
        owner, limit = digest(client), self._limits.bytes
        mine = sorted((entry.registered, key) for (of, key), entry in self._kept.items() if of == owner)
        for _, oldest in mine[: max(len(mine) + 1 - max_keys, 0)]:
            self.forget(client, oldest)
        if self.size + size > limit:
            first = min((entry.registered for entry in self._kept.values()), default=self._clock())
            seconds = first + self._limits.days * _DAY_S - self._clock() if self._kept else 60.0
            raise full(limit, size, seconds)
        self._promised += size
        return _Draft(self, owner, key_id, size)

    def forget(self, client: str, key_id: bytes) -> None:
        self._drop(digest(client), key_id)

    def close(self) -> None:
        pass

    def _drop(self, owner: str, key_id: bytes) -> None:
        entry = self._kept.pop((owner, key_id), None)
        if entry is not None and entry.body is None:
            self._path(owner, key_id).unlink(missing_ok=True)

    def _expire(self) -> None:
        last = self._clock() - self._limits.days * _DAY_S
        for owner, key_id in [key for key, entry in [*self._kept.items()] if entry.registered <= last]:
            self._drop(owner, key_id)

    def _path(self, owner: str, key_id: bytes) -> Path:
        assert self._folder is not None
        return self._folder / f"{owner}.{key_id.hex()}{_SUFFIX}"

    def _open(self, folder: Path) -> None:
        try:
            private_folder(folder)
            for draft in folder.glob(f"*{_DRAFT}"):
                draft.unlink()
            for path in folder.glob(f"*{_SUFFIX}"):
                owner, _, key_id = path.name.removesuffix(_SUFFIX).partition(".")
                if len(key_id) != 2 * KEY_ID_BYTES:
                    raise ValueError(f"{path.name} is not of this store")
                status = path.stat()
                self._kept[owner, bytes.fromhex(key_id)] = _Kept(status.st_size, status.st_mtime, None)
        except RuleError:
            raise
        except (OSError, ValueError) as problem:
            got = f"{folder}: {problem}"
            raise RuleError("the store of keys must be a folder of its own", got=got, remedy="choose another") from None


class _Draft(Registration):
    """Keys that are being received in a file of the store's folder, or in memory."""

    def __init__(self, store: KeyStore, owner: str, key_id: bytes, promised: int) -> None:
        super().__init__(key_id, promised)
        self._store, self._owner, self._chunks = store, owner, list[bytes]()
        self._draft: Path | None = None
        if store._folder is not None:
            self._draft = store._path(owner, key_id).with_suffix(f".{os.urandom(8).hex()}{_DRAFT}")
            self._file = os.fdopen(os.open(self._draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")

    def _write(self, data: bytes) -> None:
        if self._draft is None:
            self._chunks.append(data)
        else:
            self._file.write(data)

    def settle(self) -> None:
        super().settle()
        if self._draft is not None:
            self._file.flush()
            os.fsync(self._file.fileno())

    def finish(self) -> None:
        if self._draft is not None:
            self._draft.replace(self._store._path(self._owner, self._id))
        body = b"".join(self._chunks) if self._draft is None else None
        self._store._kept[self._owner, self._id] = _Kept(self._size, self._store._clock(), body)

    def cancel(self) -> None:
        self._store._promised -= self._promised
        self._promised = 0
        self._chunks.clear()
        if self._draft is not None:
            self._file.close()
            self._draft.unlink(missing_ok=True)


def mapped(path: Path) -> Message:
    """Return a file's mapped bytes, which take no memory of the process: those of a CKKS program are gigabytes."""
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)) if path.stat().st_size else b""


def digest(client: str) -> str:
    """Return the part of a file's name that stands for a client."""
    return hashlib.sha256(client.encode()).hexdigest()[:32]


def not_registered(key_id: bytes) -> ServiceError:
    """Return the refusal of keys that are not there."""
    rule, remedy = "a session's keys must be registered, and not expired", "register them again"
    return unknown(rule, key_id.hex()[:16] or "none", remedy)


def full(limit: int, size: int, seconds: float) -> ServiceError:
    """Return the refusal of keys that do not fit.

    Args:
        limit: most bytes of all keys.
        size: bytes of the keys that do not fit.
        seconds: seconds after which there is room for some.
    """
    return busy(f"a server must have room for keys, of {limit} bytes", f"{size} bytes more", seconds)
