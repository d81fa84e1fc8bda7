"""Files of a data set as a tree of names: a folder, or a tar archive read as a stream, never unpacked to disk.

A folder is walked once for its names, sizes and times. An archive is read once for its names when they are asked for,
and once more for the contents of the wanted ones. Links in archives are ignored.
"""

import hashlib
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

from privcirnet.errors import RuleError

ARCHIVES = (".tar", ".tar.gz", ".tgz")
LARGEST_FILE = 256 * 2**20
"""Limit for one file in an archive, bytes."""
LARGEST_RATIO = 100
"""Limit for the unpacked size over the archive's own size, beyond the first 2^30 bytes."""
LARGEST_COUNT = 5_000_000
"""Limit for the number of files in an archive."""


@dataclass(frozen=True)
class Listing:
    """The names in a tree, relative to it, with "/" between parts; hidden files are left out.

    Attributes:
        files: every file.
        folders: every folder, empty ones too.
    """

    files: frozenset[str]
    folders: frozenset[str]


class Tree(Protocol):
    """Named files that can be listed and read."""

    path: Path

    @property
    def listing(self) -> Listing:
        """The names of files and folders."""
        ...

    @property
    def stamp(self) -> str:
        """What changes when a file does, is moved, or is replaced."""
        ...

    def read(self, names: Collection[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names and readers of their contents, in any order.

        Args:
            names: of files, as in :attr:`listing`.
        """
        ...


class Folder:
    """A tree on disk; links are followed.

    Args:
        path: of the folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def _walked(self) -> tuple[Listing, str]:
        files, folders = dict[str, tuple[int, ...]](), set[str]()
        for place, below, names in os.walk(self.path, followlinks=True):
            start = Path(place).relative_to(self.path).as_posix()
            below[:] = sorted(name for name in below if not name.startswith("."))
            folders |= {posixpath.normpath(posixpath.join(start, name)) for name in below}
            for name in names:
                if not name.startswith("."):
                    files[posixpath.normpath(posixpath.join(start, name))] = _facts(Path(place, name))
        digest = hashlib.sha256()
        for name in [*sorted(folders), *sorted(files)]:
            digest.update(os.fsencode(name) + b"\0" + repr(files.get(name)).encode() + b"\0")
        return Listing(frozenset(files), frozenset(folders)), digest.hexdigest()

    @property
    def listing(self) -> Listing:
        """The names of files and folders."""
        return self._walked[0]

    @property
    def stamp(self) -> str:
        """A digest of every file's name, size and times."""
        return self._walked[1]

    def read(self, names: Collection[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names in the given order, and readers of their contents.

        Args:
            names: of files, as in :attr:`listing`.
        """
        for name in names:
            yield name, (self.path / name).read_bytes


class Archive:
    """A .tar, .tar.gz or .tgz file.

    Args:
        path: of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def listing(self) -> Listing:
        """The names of files and folders.

        Raises:
            RuleError: the archive is broken or absurdly large.
        """
        return self._listed

    @cached_property
    def _listed(self) -> Listing:
        files, folders = set[str](), set[str]()
        for name, member, _ in self._members():
            if member.isreg() or member.isdir():
                (files if member.isreg() else folders).add(name)
                parts = name.split("/")
                folders.update("/".join(parts[:end]) for end in range(1, len(parts)))
        return Listing(frozenset(files), frozenset(folders))

    @property
    def stamp(self) -> str:
        """The archive's size and times."""
        return repr(_facts(self.path))

    def read(self, names: Collection[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names in the archive's order, and readers of their contents; stops after the last of them.

        Args:
            names: of files, as in :attr:`listing`.

        Raises:
            RuleError: the archive is broken or absurdly large.
        """
        left = set(names)
        for name, _, content in self._members(left):
            if name in left:
                left.remove(name)
                yield name, lambda content=content: content
            if not left:
                return

    def _members(self, wanted: Collection[str] = ()) -> Iterator[tuple[str, tarfile.TarInfo, bytes]]:
        """Yield plain names, members, and the contents of the wanted ones."""
        total = 0
        try:
            with tarfile.open(self.path, "r|*") as archive:
                for count, member in enumerate(archive):
                    total += member.size
                    self._check_size(member, total, count)
                    name = posixpath.normpath(member.name)
                    if not any(part.startswith(".") for part in name.split("/")):
                        stream = archive.extractfile(member) if name in wanted and member.isreg() else None
                        yield name, member, stream.read() if stream else b""
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            remedy = "give a .tar or .tar.gz file and check that it is complete"
            raise RuleError("an archive must be readable", got=f"{self.path} ({error})", remedy=remedy) from None

    def _check_size(self, member: tarfile.TarInfo, total: int, count: int) -> None:
        most = 2**30 + LARGEST_RATIO * self.path.stat().st_size
        if member.size > LARGEST_FILE or total > most or count >= LARGEST_COUNT:
            raise RuleError(
                "an archive must have a sensible size",
                got=f"{self.path}: {total:,} bytes up to file {count + 1:,}, {member.name}",
                remedy="unpack it and give the folder",
            )


def _facts(path: Path) -> tuple[int, ...]:
    """Size and times; a file that is replaced under its old times (``cp -p``) has another time of change."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def open_tree(path: Path) -> Tree:
    """Return the tree of a folder or an archive.

    Args:
        path: of the folder or archive.
    """
    return Folder(path) if path.is_dir() else Archive(path)


def called(path: Path, name: str) -> bool:
    """Return whether a file's name begins with a data set's, ignoring case and punctuation.

    Args:
        path: of the file or folder.
        name: of the data set.

    >>> called(Path("cifar-10-images.tar"), "cifar10"), called(Path("CIFAR100"), "cifar10")
    (True, False)
    """
    plain, wanted = re.sub(r"[^a-z0-9]", "", path.name.lower()), re.sub(r"[^a-z0-9]", "", name)
    digits = r"(?!\d)" if wanted[-1:].isdigit() else ""
    return re.match(wanted + digits, plain) is not None


def called_below(root: Path, name: str) -> list[Path]:
    """Return the entries of a folder that are :func:`called` like a data set, sorted; nothing if there is no folder.

    Args:
        root: folder.
        name: of the data set.
    """
    return sorted(path for path in root.iterdir() if called(path, name)) if root.is_dir() else []


def locate(root: Path, name: str, fits: Callable[[Path], bool], wanted: str) -> Tree:
    """Return the folder or archive that holds a data set.

    Args:
        root: an archive, the data set's folder, or a folder with one of them in it.
        name: that folders and archives below the root must begin with; empty for any.
        fits: whether a folder has what is needed.
        wanted: the same in words.

    Raises:
        RuleError: there is none, or more than one.
    """
    if root.is_file() or (root.is_dir() and fits(root)):
        return open_tree(root)
    below = called_below(root, name)
    found = [path for path in below if path.is_dir() and fits(path)]
    found = found or [path for path in below if path.name.endswith(ARCHIVES) and path.is_file()]
    if len(found) == 1:
        return open_tree(found[0])
    where = root.absolute()
    if found:
        names = ", ".join(path.name for path in found)
        raise RuleError("data.root must hold one such data set", got=f"{names} in {where}", remedy="name one of them")
    looked = f"{wanted}, there, in a folder {name}*, or in an archive {name}*.tar or {name}*.tar.gz"
    got = f"nothing in {where} (looked for {looked})" if root.is_dir() else f"no file or folder {where}"
    raise RuleError("the images must be there", got=got, remedy=f"put {wanted} there, or set data.root=DIR")
