"""Stores of registered keys' bytes: in Redis, in a folder, or wherever fsspec reaches.

Nothing here is trusted: whoever reads a body compares it with its SHA-256. A body has a random name, and none is used
before it is whole and in the index; what a replica leaves that is killed meanwhile is of no use to anybody.
"""

import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from privcirnet.errors import RuleError
from privcirnet.he.rlwe.wire_bytes import Message
from privcirnet.he.system.private_folder import private_folder
from privcirnet.service.refusals import SharedStateUnavailableError, Unwritten
from privcirnet.service.shared.link import DAY_MS, RedisConnection
from privcirnet.service.store import mapped

_PIECE = 1 << 22
"""Bytes of a body in one string of Redis: short enough to be sent at once."""
_SOON_S = 10.0


class BlobStore(Protocol):
    """A store of bodies by name."""

    def put(self, name: str, file: BinaryIO) -> None:
        """Keep a file's bytes from its present position.

        Raises:
            Unwritten: it cannot be kept.
            SharedStateUnavailableError: the store cannot be reached.
        """
        ...

    def get(self, name: str, size: int) -> Message:
        """Return a body of ``size`` bytes; if it is not whole any more, some of it.

        Raises:
            SharedStateUnavailableError: the store cannot be reached.
        """
        ...

    def remove(self, name: str) -> None:
        """Remove a body, if it is there and can be reached."""
        ...


class RedisBlobs:
    """Bodies in Redis, in pieces.

    Args:
        days: days after which a body goes by itself.
    """

    def __init__(self, link: RedisConnection, days: float) -> None:
        self._link, self._milliseconds = link, round(DAY_MS * (days + 1))

    def put(self, name: str, file: BinaryIO) -> None:
        number = 0
        while piece := file.read(_PIECE):
            self._link.do("SET", self._key(name, number), piece, "PX", self._milliseconds)
            number += 1

    def get(self, name: str, size: int) -> Message:
        body = bytearray()
        for number in range(-(-size // _PIECE)):
            body += self._link.do("GETRANGE", self._key(name, number), 0, _PIECE)
        return body

    def remove(self, name: str) -> None:
        with suppress(SharedStateUnavailableError):
            number = 0
            while self._link.do("DEL", self._key(name, number)):
                number += 1

    def _key(self, name: str, number: int) -> str:
        return self._link.key("body", name, str(number))


class InFolder:
    """Bodies in a folder that all replicas share."""

    def __init__(self, folder: Path) -> None:
        private_folder(folder)
        self._folder = folder

    def put(self, name: str, file: BinaryIO) -> None:
        path = self._folder / name
        with _writing(self._folder):
            try:
                with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as body:
                    shutil.copyfileobj(file, body)
                    body.flush()
                    os.fsync(body.fileno())
            except OSError:
                path.unlink(missing_ok=True)
                raise

    def get(self, name: str, size: int) -> Message:
        try:
            return mapped(self._folder / name)
        except FileNotFoundError:
            return b""
        except OSError as problem:
            raise SharedStateUnavailableError(_SOON_S) from problem

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / name).unlink()


class InObjectStore:
    """Bodies wherever fsspec reaches, such as ``s3://bucket/keys``.

    Args:
        url: URL of fsspec; its library finds the credentials.
    """

    def __init__(self, url: str) -> None:
        try:
            from fsspec.core import url_to_fs

            self._files, self._root = url_to_fs(url)
        except (ImportError, ValueError) as problem:
            rule, remedy = "keys.folder= must be a folder, or a URL of fsspec", "pip install 'privcirnet[s3]' for s3://"
            raise RuleError(rule, got=problem, remedy=remedy) from None

    def put(self, name: str, file: BinaryIO) -> None:
        with _writing(self._root), self._files.open(self._path(name), "wb") as body:
            shutil.copyfileobj(file, body)

    def get(self, name: str, size: int) -> Message:
        try:
            with self._files.open(self._path(name), "rb") as body:
                return body.read(size + 1)
        except FileNotFoundError:
            return b""
        except Exception as problem:  # each file system has its own
            raise SharedStateUnavailableError(_SOON_S) from problem

    def remove(self, name: str) -> None:
        with suppress(Exception):
            self._files.rm_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"


def bodies_in(folder: str, link: RedisConnection, days: float) -> BlobStore:
    """Return the store of keys' bodies, once one could be written and removed there.

    Args:
        folder: path, URL of fsspec, or "" for Redis.
        days: days after which a body goes by itself, where it can.

    Raises:
        RuleError: nothing can be written there.
    """
    if not folder:
        return RedisBlobs(link, days)
    blobs = InObjectStore(folder) if "://" in folder else InFolder(Path(folder))
    name = f"probe-{os.urandom(8).hex()}"
    try:
        with open(os.devnull, "rb") as nothing:
            blobs.put(name, nothing)
    except Unwritten as problem:
        raise RuleError("keys.folder= must be written to", got=problem, remedy="compare keys.folder=") from None
    blobs.remove(name)
    return blobs


@contextmanager
def _writing(place: Path | str) -> Generator[None]:
    try:
        yield
    except Exception as problem:  # each file system has its own
        raise Unwritten(f"keys cannot be kept in {place}: {problem}") from problem
