"""A cache of encoded weights: a limit on memory, and a folder that keeps them from one start to the next.

Every image needs every weight once, in the same order. To drop the least recently used would then drop just what is
needed next, and everything would be encoded anew for every image. So the first weights stay, as far as the limit goes,
and the others are encoded again each time, or read from the folder if there is one.

A file of the folder holds one layer, named after a checksum of all that it is made of: weights, plan and parameters. It
is mapped, not read, and is as trusted as the program itself: whoever can write there can change the model.
"""

import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any, cast

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Integers, Residues
from privcirnet.he.system.files import private_folder

Encode = Callable[[Residues, Integers], None]
"""A function that writes the weights of these numbers to an array (count, L, n)."""

_AT_ONCE = 256
"""Weights that are encoded together for a file."""


@dataclass
class WeightCache:
    """Encoded weights' memory, which all layers of a server share.

    Attributes:
        limit: bytes of encoded weights that may stay in memory; None: all of them.
        folder: folder for files; None: none are written.
        taken: bytes that layers have so far.
    """

    limit: int | None = None
    folder: Path | None = None
    taken: int = 0
    _lock: Any = field(default_factory=Lock, repr=False)

    @classmethod
    def of(cls, gigabytes: float, folder: str = "") -> "WeightCache":
        """Return a cache as settings describe it.

        Args:
            gigabytes: limit on memory, in 10^9 bytes.
            folder: folder for files; "" for none.
        """
        return cls(int(1e9 * gigabytes), Path(folder) if folder else None)

    def take(self, weights: int, size: int) -> int:
        """Reserve memory for as many of a layer's weights as the limit allows.

        Args:
            size: bytes of one of them.

        Returns:
            how many may stay in memory.
        """
        with self._lock:
            free = weights if self.limit is None else max(self.limit - self.taken, 0) // size
            self.taken += min(weights, free) * size
            return min(weights, free)

    def layer(self, shape: tuple[int, int, int], encode: Encode, fingerprint: Callable[[], str]) -> "CachedWeights":
        """Return a layer's weights, encoded as far as they stay.

        Args:
            shape: shape of all weights, (weights, L, n).
            encode: function that writes weights by number.
            fingerprint: a checksum of all that they are made of; only asked for with a folder.

        Raises:
            RuleError: the folder cannot be written.
        """
        stay = self.take(shape[0], 8 * shape[1] * shape[2])
        if self.folder is not None:
            mapped = _file(self.folder / f"{fingerprint()}.npy", shape, encode)
            return CachedWeights(
                np.asarray(mapped), shape, encode, cast(Any, mapped)._mmap if stay < shape[0] else None
            )
        weights = np.empty((stay, *shape[1:]), dtype=np.uint64)
        encode(weights, np.arange(stay))
        return CachedWeights(weights, shape, encode)


@dataclass(frozen=True)
class CachedWeights:
    """A layer's weights, as far as the cache holds them.

    Attributes:
        kept: first weights, or all of them in a file.
        shape: shape of all of them, (weights, L, n).
        mapping: mapping of a file that may not stay in memory.
    """

    kept: Residues
    shape: tuple[int, int, int]
    encode: Encode
    mapping: mmap.mmap | None = None

    def fetch(self, first: int, end: int) -> tuple[Residues, int]:
        """Return some weights; those that are not in the cache are encoded.

        Args:
            first: number of the first weight.
            end: number after the last one.

        Returns:
            (an array that holds these weights, the number of its first weight).
        """
        if end <= len(self.kept):
            return self.kept, 0
        weights = np.empty((end - first, *self.shape[1:]), dtype=np.uint64)
        cached = max(len(self.kept) - first, 0)
        weights[:cached] = self.kept[first : first + cached]
        self.encode(weights[cached:], np.arange(first + cached, end))
        return weights, first

    def release(self) -> None:
        """Give back what may not stay in memory: the pages of a file."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


def _file(path: Path, shape: tuple[int, int, int], encode: Encode) -> Residues:
    """Return the mapped file; it is written first, under another name, if it is missing or of another shape."""
    try:
        private_folder(path.parent)
        stored = np.load(path, mmap_mode="c") if path.exists() else None
        if stored is not None and (stored.shape, stored.dtype) == (shape, np.dtype(np.uint64)):
            return stored
    except RuleError:
        raise
    except (ValueError, EOFError, OSError):
        pass
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600))
        mapped = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint64, shape=shape)
        for first in range(0, shape[0], _AT_ONCE):
            some = np.empty((min(_AT_ONCE, shape[0] - first), *shape[1:]), dtype=np.uint64)
            encode(some, np.arange(first, first + len(some)))
            mapped[first : first + len(some)] = some
        mapped.flush()
        os.replace(draft, path)
    except OSError as problem:
        with suppress(OSError):
            draft.unlink()
        raise RuleError(
            "the folder of encoded weights must be writable and have room",
            got=f"{path}: {problem.strerror or problem}",
            remedy="free some space, or choose another folder or none",
        ) from problem
    return np.load(path, mmap_mode="c")
