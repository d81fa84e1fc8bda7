"""Room for encoded weights: a cap on memory, and a folder that keeps them from one start to the next.

Every image needs every weight once, in the same order. To drop the least recently used would then drop just what is
needed next, and everything would be encoded anew for every image; so the first to come stay, as far as the cap goes,
and the others are encoded again each time (or read from the folder, if there is one).

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

Encode = Callable[[Residues, Integers], None]
"""Write the weights of these numbers to an array (count, L, n)."""

_AT_ONCE = 256
"""Weights that are encoded together for a file."""


@dataclass
class WeightCache:
    """What all layers of a server share.

    Attributes:
        limit: bytes of encoded weights that may stay in memory; None: all of them.
        folder: for files; None: none are written.
    """

    limit: int | None = None
    folder: Path | None = None
    taken: int = 0
    _lock: Any = field(default_factory=Lock, repr=False)

    @classmethod
    def of(cls, gigabytes: float, folder: str = "") -> "WeightCache":
        """Room as settings give it; an empty folder is none."""
        return cls(int(1e9 * gigabytes), Path(folder) if folder else None)

    def take(self, weights: int, size: int) -> int:
        """How many of a layer's weights of that many bytes may stay; they are then taken."""
        with self._lock:
            free = weights if self.limit is None else max(self.limit - self.taken, 0) // size
            self.taken += min(weights, free) * size
            return min(weights, free)

    def held(self, shape: tuple[int, int, int], encode: Encode, fingerprint: Callable[[], str]) -> "CachedWeights":
        """A layer's weights.

        Args:
            shape: (weights, L, n).
            encode: makes them.
            fingerprint: of all that they are made of.

        Raises:
            RuleError: the folder cannot be written.
        """
        stay = self.take(shape[0], 8 * shape[1] * shape[2])
        if self.folder is not None:
            mapped = _file(self.folder / f"{fingerprint()}.npy", shape, encode)
            return CachedWeights(
                np.asarray(mapped), shape, encode, cast(Any, mapped)._mmap if stay < shape[0] else None
            )
        kept = np.empty((stay, *shape[1:]), dtype=np.uint64)
        encode(kept, np.arange(stay))
        return CachedWeights(kept, shape, encode)


@dataclass(frozen=True)
class CachedWeights:
    """A layer's weights, as far as they are held.

    Attributes:
        kept: the first of them, or all of them in a file.
        shape: of all of them.
        encode: makes the others.
        mapping: of a file that may not stay in memory.
    """

    kept: Residues
    shape: tuple[int, int, int]
    encode: Encode
    mapping: mmap.mmap | None = None

    def fetch(self, first: int, end: int) -> tuple[Residues, int]:
        """(an array that holds weights first to end, the number of its first weight)."""
        if end <= len(self.kept):
            return self.kept, 0
        made = np.empty((end - first, *self.shape[1:]), dtype=np.uint64)
        own = max(len(self.kept) - first, 0)
        made[:own] = self.kept[first : first + own]
        self.encode(made[own:], np.arange(first + own, end))
        return made, first

    def release(self) -> None:
        """Give back what may not stay: the pages of a file."""
        if self.mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self.mapping.madvise(mmap.MADV_DONTNEED)


def _file(path: Path, shape: tuple[int, int, int], encode: Encode) -> Residues:
    """The mapped file; it is written first, under another name, if it is not there or not of this shape."""
    try:
        found = np.load(path, mmap_mode="c") if path.exists() else None
        if found is not None and (found.shape, found.dtype) == (shape, np.dtype(np.uint64)):
            return found
    except (ValueError, EOFError):
        pass
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        made = np.lib.format.open_memmap(draft, mode="w+", dtype=np.uint64, shape=shape)
        for first in range(0, shape[0], _AT_ONCE):
            some = np.empty((min(_AT_ONCE, shape[0] - first), *shape[1:]), dtype=np.uint64)
            encode(some, np.arange(first, first + len(some)))
            made[first : first + len(some)] = some
        made.flush()
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
