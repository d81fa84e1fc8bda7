"""Image files of a folder or an object store, listed and read ahead of their use.

Their location is the path of a folder, or a URL of fsspec: ``s3://bucket/prefix``, ``memory://folder``.
"""

import threading
from collections import deque
from collections.abc import Container, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from queue import SimpleQueue
from typing import Any, NamedTuple

from fsspec.core import url_to_fs
from fsspec.implementations.local import LocalFileSystem
from numpy.typing import NDArray

from privcirnet.data.images import SUFFIXES
from privcirnet.data.picture import MOST_BYTES, PreparesInputs
from privcirnet.errors import RuleError, first_line

AHEAD = 8
"""Number of pictures that are read before they are asked for."""
_SUFFIXES = {"", ".gif", *SUFFIXES}
"""Suffixes of files that should be pictures; objects of a store often have none."""


class File(NamedTuple):
    """A file that should be a picture.

    Attributes:
        path: absolute path, or one with its protocol.
        size: size in bytes.
    """

    path: str
    size: int


class Picture(NamedTuple):
    """A picture as a network sees it.

    Attributes:
        pixels: int64 (C, H, W), see :class:`~privcirnet.data.picture.Prepared`; None: it cannot be read.
        refused: reason why it cannot be read; "" for one that can.
    """

    path: str
    pixels: NDArray[Any] | None
    refused: str = ""


class StoreFailed(RuleError):
    """A folder or store that does not answer: nothing is wrong with its pictures."""


class Pictures:
    """The image files beneath a folder or a prefix.

    Args:
        source: a path, or a URL of fsspec.

    Attributes:
        source: prefix with which the paths of its files begin.

    Raises:
        RuleError: nothing is there, it cannot be read, or a package for it is not installed.
    """

    def __init__(self, source: str) -> None:
        with _found(source):
            self._store, root = url_to_fs(source)
            self._root = root.rstrip("/")
            if not self._store.exists(self._root):
                raise FileNotFoundError("nothing is there")
        self.source = self._whole(self._root)
        if next(self.files(), None) is None:
            rule, remedy = (
                "a folder must have pictures",
                f"their names end in {', '.join(sorted(_SUFFIXES - {''}))} or have no end",
            )
            raise RuleError(rule, got=f"none in {source}", remedy=remedy)

    def files(self) -> Iterator[File]:
        """Yield the files that are pictures by their names, folder by folder; hidden ones are left out.

        Raises:
            RuleError: a folder cannot be listed.
        """
        with _found(self.source):
            if self._store.isfile(self._root):
                yield File(self.source, self._store.size(self._root) or 0)
                return
            for _, folders, infos in self._store.walk(self._root, detail=True, on_error="raise"):
                inner = {name: folders[name] for name in sorted(folders) if not name.startswith(".")}
                folders.clear()
                folders.update(inner)  # which is where the walk goes on
                for name in sorted(infos):
                    if self._is_picture(name, infos[name]):
                        yield File(self._whole(infos[name]["name"]), infos[name]["size"] or 0)

    def _is_picture(self, name: str, info: Mapping[str, Any]) -> bool:
        """Return whether a file is to be read: links to files are; links to folders, which may be circular, are not."""
        if name.startswith(".") or PurePosixPath(name).suffix.lower() not in _SUFFIXES:
            return False
        return info["type"] == "file" or bool(info.get("islink") and self._store.isfile(info["name"]))

    def read(self, file: File, preparation: PreparesInputs) -> Picture:
        """Return a file as a network sees it, or why it cannot be one.

        Raises:
            StoreFailed: the store does not answer.
        """
        try:
            if file.size > MOST_BYTES:
                rule = f"an image file must have at most {MOST_BYTES >> 20} MiB"
                raise RuleError(rule, got=f"{file.size:,} bytes", remedy="make the picture smaller")
            return Picture(file.path, preparation.prepare(self._content(file.path)).pixels)
        except StoreFailed:
            raise
        except RuleError as error:
            return Picture(file.path, None, str(error))

    def _content(self, path: str) -> bytes:
        try:
            return self._store.cat_file(path)
        except (FileNotFoundError, PermissionError) as error:
            remedy = "let it be read, or leave it out"
            raise RuleError("a picture must be there to be read", got=first_line(error), remedy=remedy) from None
        except Exception as error:  # each store has errors of its own
            got, remedy = f"{path}: {first_line(error)}", "the same command continues once it does"
            raise StoreFailed("a store must answer", got=got, remedy=remedy) from None

    @property
    def _is_local(self) -> bool:
        return isinstance(self._store, LocalFileSystem)

    def _whole(self, path: str) -> str:
        return path if self._is_local else self._store.unstrip_protocol(path)


class Listing:
    """The files of a folder or store without those processed already, listed by a thread while they are read.

    Attributes:
        count: number of files listed so far, those processed already included.
        known: number of files among these that were processed already.
    """

    def __init__(self, pictures: Pictures, processed: Container[str] = ()) -> None:
        self.count = self.known = 0
        self._pictures, self._known = pictures, processed
        self._found = SimpleQueue[File | Exception | None]()
        threading.Thread(target=self._list, name="privcirnet listing", daemon=True).start()

    def _list(self) -> None:
        try:
            for file in self._pictures.files():
                self.count += 1
                if file.path in self._known:
                    self.known += 1
                else:
                    self._found.put(file)
            self._found.put(None)
        except Exception as error:
            self._found.put(error)

    def __iter__(self) -> Iterator[File]:
        while (entry := self._found.get()) is not None:
            if isinstance(entry, Exception):
                raise entry
            yield entry


def read_ahead(pictures: Pictures, files: Iterable[File], preparation: PreparesInputs) -> Generator[Picture]:
    """Yield pictures as a network sees them, in order; :data:`AHEAD` of them are read before they are asked for.

    Raises:
        RuleError: the store does not answer, or cannot be listed.
    """
    pool, waiting = ThreadPoolExecutor(AHEAD, "privcirnet pictures"), deque[Future[Picture]]()
    try:
        for file in files:
            waiting.append(pool.submit(pictures.read, file, preparation))
            if len(waiting) > AHEAD:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def _found(source: str) -> Iterator[None]:
    """Turn errors of fsspec and its stores into one line."""
    rule = "images= must be a number of held-out images, or a folder or URL of pictures that can be listed"
    try:
        yield
    except RuleError:
        raise
    except ImportError as error:
        raise RuleError(
            rule, got=f"{source}: {first_line(error)}", remedy="pip install 'privcirnet[s3]' for s3://"
        ) from None
    except Exception as error:  # each store has errors of its own
        remedy = "give images=32, images=DIR or images=s3://BUCKET/PREFIX, with the credentials that its store takes"
        raise RuleError(rule, got=f"{source}: {first_line(error)}", remedy=remedy) from None
