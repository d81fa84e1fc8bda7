"""Files of a data set by name: those of a folder, or of a tar archive read as a stream, never unpacked to disk.

A folder is walked once for its names, sizes and times. An archive is read once for its names when they are asked for,
and once more for the contents of the wanted ones. Links in archives, and whatever is hidden, are ignored.

torchvision's ImageFolder needs unpacked files. Measured on CIFAR-10's 60,000: unpacking took 32 s more than the 36 s
for which they are read as a stream and decoded, and removing them 241 s.
"""

import hashlib
import os
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path

from privcirnet.errors import RuleError

ARCHIVES = (".tar", ".tar.gz", ".tgz")
LARGEST_FILE = 256 * 2**20
"""Limit for one file in an archive, bytes."""
LARGEST_RATIO = 100
"""Limit for the unpacked size over the archive's own size, beyond the first 2^30 bytes."""
LARGEST_COUNT = 5_000_000
"""Limit for the number of files in an archive."""


class Folder:
    """A folder; links are followed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def files(self) -> dict[str, tuple[int, ...]]:
        """Return size and times of each file by its name, relative to the folder, with "/" between parts."""
        facts: dict[str, tuple[int, ...]] = {}
        for place, below, names in os.walk(self.path, followlinks=True):
            below[:] = [name for name in below if not name.startswith(".")]
            start = Path(place).relative_to(self.path).as_posix()
            for name in names:
                if not name.startswith("."):
                    facts[posixpath.normpath(f"{start}/{name}")] = _facts(Path(place, name))
        return facts

    @property
    def stamp(self) -> str:
        """Digest of every file's name, size and times."""
        return hashlib.sha256(repr(sorted(self.files.items())).encode()).hexdigest()

    def read(self, names: Collection[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names and readers of their contents."""
        for name in names:
            yield name, (self.path / name).read_bytes


class Archive:
    """A .tar, .tar.gz or .tgz file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def files(self) -> frozenset[str]:
        """Names of its files, with "/" between parts.

        Raises:
            RuleError: the archive is broken or absurdly large.
        """
        return frozenset(name for name, _ in self._members())

    @property
    def stamp(self) -> str:
        """Size and times of the archive."""
        return repr(_facts(self.path))

    def read(self, names: Collection[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
        """Yield names and readers of their contents in the archive's order; reading stops after the last of them."""
        remaining = set(names)
        for name, content in self._members(remaining):
            if name in remaining:
                remaining.remove(name)
                yield name, lambda content=content: content
            if not remaining:
                return

    def _members(self, selected: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
        """Yield the names of all files, and the contents of the selected ones."""
        total = 0
        try:
            with tarfile.open(self.path, "r|*") as archive:
                for count, member in enumerate(archive):
                    total += member.size
                    self._check_size(member, total, count)
                    name = posixpath.normpath(member.name)
                    if member.isreg() and not any(part.startswith(".") for part in name.split("/")):
                        stream = archive.extractfile(member) if name in selected else None
                        yield name, stream.read() if stream else b""
        except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
            remedy = "give a .tar or .tar.gz file and check that it is complete"
            raise RuleError("an archive must be readable", got=f"{self.path} ({error})", remedy=remedy) from None

    def _check_size(self, member: tarfile.TarInfo, total: int, count: int) -> None:
        limit = 2**30 + LARGEST_RATIO * self.path.stat().st_size
        if member.size > LARGEST_FILE or total > limit or count >= LARGEST_COUNT:
            got = f"{self.path}: {total:,} bytes up to file {count + 1:,}, {member.name}"
            raise RuleError("an archive must have a sensible size", got=got, remedy="unpack it and give the folder")


Tree = Folder | Archive


def _facts(path: Path) -> tuple[int, ...]:
    """Return size and times; a file that is replaced under its old times (``cp -p``) has another time of change."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def called_below(root: Path, name: str) -> list[Path]:
    """Return the entries of a folder that are called like a data set, sorted; nothing if there is no folder.

    Args:
        name: name of the data set, with which an entry's begins but for case and punctuation, no digit behind it.
    """
    digits = r"(?!\d)" if name[-1:].isdigit() else ""
    pattern = re.compile(re.sub(r"[^a-z0-9]", "", name) + digits)
    entries = sorted(root.iterdir()) if root.is_dir() else []
    return [path for path in entries if pattern.match(re.sub(r"[^a-z0-9]", "", path.name.lower()))]


def locate(root: Path, name: str, fits: Callable[[Path], bool], expected: str) -> Tree:
    """Return the folder or archive that holds a data set.

    Args:
        root: an archive, the data set's folder, or a folder with one of them in it.
        name: name that folders and archives below the root must begin with; empty for any.
    """
    below = called_below(root, name)
    matches = [root] if root.is_file() or (root.is_dir() and fits(root)) else []
    matches = matches or [path for path in below if path.is_dir() and fits(path)]
    matches = matches or [path for path in below if path.name.endswith(ARCHIVES) and path.is_file()]
    if len(matches) == 1:
        return Folder(matches[0]) if matches[0].is_dir() else Archive(matches[0])
    where = root.absolute()
    if matches:
        names = ", ".join(path.name for path in matches)
        raise RuleError("data.root must hold one such data set", got=f"{names} in {where}", remedy="name one of them")
    looked = f"{expected}, there, in a folder {name}*, or in an archive {name}*.tar or {name}*.tar.gz"
    got = f"nothing in {where} (looked for {looked})" if root.is_dir() else f"no file or folder {where}"
    raise RuleError("the images must be there", got=got, remedy=f"put {expected} there, or set data.root=DIR")
