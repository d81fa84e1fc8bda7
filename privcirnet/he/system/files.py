"""Files and folders: complete under their names or not at all, safe from a power cut, and their owner's alone."""

import errno
import os
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from privcirnet.errors import RuleError


def to_disk(path: Path) -> None:
    """Wait until a file, or a folder's names, are on the disk: only then may it take the place of another."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def private_folder(folder: Path) -> None:
    """Make a folder that is its owner's alone, or check that it is.

    An existing folder is not changed: it may be somebody else's, or everybody's.
    """
    if not folder.is_dir():
        folder.mkdir(parents=True, mode=0o700)
    status = folder.stat()
    owner, mode = status.st_uid, status.st_mode & 0o777
    if owner != os.geteuid():
        rule, remedy = "a folder with weights or keys must be this user's own", "run as its owner, or name another"
        raise RuleError(rule, got=f"{folder} of user {owner}, for user {os.geteuid()}", remedy=remedy)
    if mode & 0o077:
        rule, remedy = "a folder with weights or keys must be its owner's alone", f"chmod 700 {folder}, or name another"
        raise RuleError(rule, got=f"{folder} with mode {mode:o}", remedy=remedy)


_DRAFT = ".draft"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RESULTS = "results must have a folder that can be written", "give another out= or root="


@contextmanager
def room_for(path: Path) -> Generator[None]:
    """Turn the error of a full disk or an exceeded quota into one line, while a file or folder is written.

    Yields:
        Nothing.
    """
    try:
        yield
    except RuleError:
        raise
    except Exception as error:
        # torch raises an error of its own while it handles the system's, safetensors has the number in its text
        causes = (error, error.__context__)
        for number in _NO_ROOM:
            if any(getattr(e, "errno", None) == number or f"(os error {number})" in str(e) for e in causes):
                raise RuleError(
                    "a disk must have room for what is written",
                    got=f"{path}: {os.strerror(number)}",
                    remedy="make room and start again: earlier files are kept, training resumes from its last epoch",
                ) from None
        raise


@contextmanager
def replacing(path: Path, place: tuple[str, str] = _RESULTS) -> Generator[Path]:
    """Yield the path of an empty draft beside a file, which it replaces if the block succeeds; else it is deleted.

    Args:
        path: path of the file; missing parent folders are created.

    Raises:
        RuleError: the disk is full, or the folder around it cannot be made.
    """
    with room_for(path):
        with _writable(path.parent, place):
            handle, name = tempfile.mkstemp(_DRAFT, f".{path.name}.", path.parent)
        os.close(handle)
        draft = Path(name)
        try:
            yield draft
            to_disk(draft)
            draft.chmod(0o644)
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)


def forget_drafts(folder: Path) -> None:
    """Remove the drafts that killed processes left in a folder; nobody else may be writing there now."""
    for draft in folder.glob(f".*{_DRAFT}"):
        draft.unlink(missing_ok=True)


@contextmanager
def _writable(folder: Path, place: tuple[str, str] = _RESULTS) -> Generator[None]:
    """Create a folder unless it is there, for what is made in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise
        rule, remedy = place
        raise RuleError(rule, got=f"{folder}: {error.strerror}", remedy=remedy) from None


@contextmanager
def replacing_folder(folder: Path) -> Generator[Path]:
    """Yield the path of an empty draft beside a folder, which it replaces if the block succeeds; else it is deleted.

    If the draft cannot take its place, the old folder is restored.

    Raises:
        RuleError: the disk is full, or the folder around it cannot be made.
    """
    with room_for(folder):
        with _writable(folder.parent):
            draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        old = draft.with_name(f"{draft.name}.old")
        try:
            yield draft
            for path in (*draft.rglob("*"), draft):
                to_disk(path)
            draft.chmod(0o755)
            if folder.exists():
                folder.replace(old)
            draft.replace(folder)
            to_disk(folder.parent)
        finally:
            if old.exists() and not folder.exists():
                old.replace(folder)
            shutil.rmtree(draft, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
