"""A folder of prepared work, one file for each inference: whole or not there, and gone before it is used.

A file is written as a draft, synced, renamed, and the folder is synced. It is taken by removing it: its bytes leave
this module when the folder without it is on the disk. So whenever a process is killed, it is there unused, or gone.

Format: magic, binding (program, peer and owner), serial, length of the body, SHA-256 of all the rest; then the body.

*Claims* lie outside the folder, so a folder that is set back brings none of them back. A claim is an empty file, named
after its prepared work and made after it. It is removed, and the disk has confirmed that, before the prepared work is
read. So each is of no use without the other, whichever of them was restored from a backup, copied or moved. Both
together can be set back, as by the snapshot of a machine: that is not noticed.
"""

import fcntl
import hashlib
import os
import secrets
import struct
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.system.files import private_folder, to_disk

Note = Callable[[str], object]
"""Function called with a line about files that were removed, and the reason."""

DIGEST_BYTES, SERIAL_BYTES = 32, 16
MAX_HELD = 1024
"""Most inferences that a client prepares for."""
_MAGIC = b"PCNMAT01"
_LABEL = struct.Struct(f"{DIGEST_BYTES}s{DIGEST_BYTES}s{DIGEST_BYTES}s{SERIAL_BYTES}s")
_HEADER = struct.Struct(f"<8s{_LABEL.size}sQ")
_OLD_S = 86_400.0
"""Seconds after which an unknown file in a shared folder was left behind, whatever the clocks say."""
_SUFFIX, _DRAFT, _LOCK, _OWNER = ".prepared", ".draft", "lock", "owner"


class UnusablePreparationError(RuleError):
    """Correlated randomness that cannot be used and is there no longer: its other half must be dropped."""


def unusable(got: str) -> UnusablePreparationError:
    """Return the error for prepared work that is not there, or damaged."""
    rule, remedy = "prepared work must be there and whole", "go on without it: prepare again"
    return UnusablePreparationError(rule, got=got, remedy=remedy)


class FolderLockedError(RuleError):
    """Another process has the folder."""


class Label(NamedTuple):
    """The label of prepared work: its binding and its serial.

    Attributes:
        owner: digest that the client chose for all of its correlated randomness.
        serial: random number of one pair of halves.
    """

    program: bytes
    peer: bytes
    owner: bytes
    serial: bytes

    @classmethod
    def read(cls, message: bytes) -> "Label":
        """Return the label of some bytes.

        Raises:
            ValueError: the message has another length.
        """
        if len(message) != _LABEL.size:
            raise ValueError("a label of prepared work")
        return cls(*_LABEL.unpack(message))

    def to_bytes(self) -> bytes:
        """Return the label's bytes, on disk and in Redis."""
        return b"".join(self)

    @property
    def file_name(self) -> str:
        """The name of its file."""
        binding = hashlib.sha256(self.program + self.peer + self.owner).hexdigest()[:SERIAL_BYTES]
        return f"{binding}.{self.serial.hex()}{_SUFFIX}"


class Found(NamedTuple):
    """A file as it was found when the folder was opened.

    Attributes:
        size: bytes of the body.
        since: time when it was made, in seconds since 1970.
    """

    label: Label
    size: int
    since: float


class StoreFiles:
    """The folder, which one process at a time can open, or several that share an inventory.

    Args:
        folder: folder of the files; made if it is missing.
        shared: whether other processes may open it as shared, too.

    Raises:
        FolderLockedError: another process has it.
        RuleError: others can read the folder, or it cannot be written.
    """

    def __init__(self, folder: Path, note: Note, shared: bool = False) -> None:
        self._folder, self._note = folder, note
        with saying(folder):
            private_folder(folder)
            self._lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            rule, remedy = "a folder of prepared work must have one process at a time", "wait, or name another"
            raise FolderLockedError(rule, got=f"{folder}, which another one uses", remedy=remedy) from None
        for draft in folder.glob(f"*{_DRAFT}") if not shared else ():
            draft.unlink(missing_ok=True)

    def close(self) -> None:
        """Release the folder for another process."""
        os.close(self._lock)

    def owner(self) -> bytes:
        """Return the digest of this folder's client, random and the same from now on.

        Raises:
            RuleError: it cannot be written.
        """
        path = self._folder / _OWNER
        with saying(path):
            digest = path.read_bytes() if path.is_file() else b""
        if len(digest) != DIGEST_BYTES:
            if digest:
                self._note(f"{path} was damaged: earlier prepared work is not used any more")
            digest = secrets.token_bytes(DIGEST_BYTES)
            self._write(path, digest)
        return digest

    def found(self) -> Iterator[Found]:
        """Yield the files that are there, and remove those that are not whole."""
        for path in sorted(self._folder.glob(f"*{_SUFFIX}")):
            try:
                status = path.stat()
                with path.open("rb") as file:
                    label, size = _read_header(file.read(_HEADER.size))
                if path.name != label.file_name:
                    raise ValueError("it belongs to another name")
                if status.st_size != _HEADER.size + DIGEST_BYTES + size:
                    raise ValueError(f"it has {status.st_size} bytes of {_HEADER.size + DIGEST_BYTES + size}")
            except (OSError, ValueError) as problem:
                self._note(f"prepared work {path.name} was removed unused: {problem}")
                path.unlink(missing_ok=True)
            else:
                yield Found(label, size, status.st_mtime)

    def sweep(self, labels: Collection[Label]) -> None:
        """Remove old drafts and old files of unknown labels, which killed processes left in a shared folder.

        No file is used that is not known, so this is for the room alone, and nothing that is being written is old.
        """
        names, last = {label.file_name for label in labels}, time.time() - _OLD_S
        with saying(self._folder):
            for path in [*self._folder.glob(f"*{_SUFFIX}"), *self._folder.glob(f"*{_DRAFT}")]:
                with suppress(FileNotFoundError):  # another process was quicker
                    if path.name not in names and path.stat().st_mtime < last:
                        path.unlink()

    def put(self, label: Label, body: bytes | bytearray) -> None:
        """Write a file. It is on the disk when this returns, and not there if it raises.

        Raises:
            RuleError: the disk is full, or cannot be written.
        """
        header = _HEADER.pack(_MAGIC, label.to_bytes(), len(body))
        self._write(self._folder / label.file_name, header, _digest(header, body), body)

    def take(self, label: Label) -> bytes:
        """Return the body of a file, once the disk has confirmed its removal.

        Raises:
            UnusablePreparationError: there is no such file, or it is damaged; it is not there any more.
            RuleError: it cannot be removed.
        """
        path = self._folder / label.file_name
        try:
            with path.open("rb") as file:
                header, digest, body = file.read(_HEADER.size), file.read(DIGEST_BYTES), file.read()
        except OSError as problem:
            header, digest, body, damage = b"", b"", b"", problem.strerror
        else:
            right = header == _HEADER.pack(_MAGIC, label.to_bytes(), len(body)) and digest == _digest(header, body)
            damage = "" if right else "its checksum is wrong"
        if not self.remove(label):
            damage = "it was taken or removed before"
        if damage:
            raise unusable(f"{path.name}: {damage}")
        return body

    def remove(self, label: Label) -> bool:
        """Remove a file, confirmed by the disk, and return whether it was there.

        Raises:
            RuleError: it cannot be removed.
        """
        return unlinked(self._folder / label.file_name)

    def _write(self, path: Path, *parts: bytes | bytearray) -> None:
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}{_DRAFT}")
        with saying(path):
            try:
                with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    for part in parts:
                        file.write(part)
                    file.flush()
                    os.fsync(file.fileno())
                draft.replace(path)
                to_disk(self._folder)
            except BaseException:
                draft.unlink(missing_ok=True)
                path.unlink(missing_ok=True)
                raise


@contextmanager
def saying(path: Path) -> Generator[None]:
    """Turn the system's errors into errors of one line.

    Yields:
        Nothing.

    Raises:
        RuleError: the system has one.
    """
    try:
        yield
    except OSError as problem:
        rule, remedy = "prepared work must be kept on a disk", "make room, prepare less, or name another folder"
        raise RuleError(rule, got=f"{path}: {problem.strerror}", remedy=remedy) from None


def unlinked(path: Path) -> bool:
    """Remove a file, confirmed by the disk.

    Returns:
        Whether it was there.

    Raises:
        RuleError: it cannot be removed.
    """
    with saying(path):
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        to_disk(path.parent)
    return True


def _digest(header: bytes, body: bytes | bytearray) -> bytes:
    digest = hashlib.sha256(header)
    digest.update(body)
    return digest.digest()


def _read_header(header: bytes) -> tuple[Label, int]:
    if len(header) < _HEADER.size or not header.startswith(_MAGIC):
        raise ValueError("it does not begin as such a file")
    _, label, size = _HEADER.unpack(header)
    return Label.read(label), size


def usual_place() -> Path:
    """Return the folder of all claims of this user: in $XDG_STATE_HOME, or in ~/.local/state.

    Raises:
        RuleError: the user has no home.
    """
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    except RuntimeError as problem:
        rule, remedy = "claims on prepared work must have a folder", "name one in prepared_claims="
        raise RuleError(rule, got=problem, remedy=remedy) from None
    return state / "privcirnet" / "prepared"


class Claims:
    """The claims on what lies in one folder.

    Args:
        place: folder of the claims of all folders.
        folder: folder of the prepared work.
        owner: the folder's 32 random bytes, by which it finds its claims.

    Raises:
        RuleError: the claims would be set back with the folder, others can read them, or they cannot be written.
    """

    def __init__(self, place: Path, folder: Path, owner: bytes) -> None:
        if place.resolve().is_relative_to(folder.resolve()):
            rule, remedy = "claims must lie outside the folder of prepared work", "name another prepared_claims="
            raise RuleError(rule, got=f"{place} in {folder}", remedy=remedy)
        self._folder = place / owner.hex()
        with saying(self._folder):
            private_folder(self._folder)

    def __str__(self) -> str:
        return str(self._folder)

    def close(self) -> None:
        """Remove the folder of the claims, if there are none."""
        with suppress(OSError):
            self._folder.rmdir()

    def keep(self, labels: set[Label]) -> set[Label]:
        """Return what has a claim, and remove the claims on everything else."""
        names = {label.file_name for label in labels}
        with saying(self._folder):
            claimed = {path.name for path in self._folder.iterdir()}
            for name in claimed - names:
                (self._folder / name).unlink()
        return {label for label in labels if label.file_name in claimed}

    def add(self, label: Label) -> None:
        """Make a claim. It is on the disk when this returns, and not there if it raises.

        Raises:
            RuleError: there is one, the disk is full, or cannot be written.
        """
        path = self._folder / label.file_name
        with saying(path):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            try:
                to_disk(self._folder)
            except BaseException:
                path.unlink(missing_ok=True)
                raise

    def remove(self, label: Label) -> bool:
        """Return whether there was a claim; there is none any more, and the disk knows.

        Raises:
            RuleError: it cannot be removed.
        """
        return unlinked(self._folder / label.file_name)
