"""Decoded data sets on disk: a folder with one .npy file for each array and facts.json, memory-mapped when read.

A folder is written under another name and renamed when it is complete, so readers see all of it or nothing. Two
processes that write the same folder at once do no harm: the last one remains, and the other keeps what it has mapped.
Every folder has facts of its own (a random name is among them) and never returns once it is moved away. So a reader
that finds the same facts before and after it opened the files has opened the files of one folder.
"""

import hashlib
import json
import logging
import math
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.images import Allocate
from privcirnet.errors import RuleError

VERSION = 2
"""Another one when files are decoded otherwise."""
FACTS = "facts.json"
_ATTEMPTS = 100
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Arrays:
    """A decoded data set.

    Attributes:
        arrays: {train,test}_images, uint8 (N, C, H, W), and {train,test}_labels, int64 (N,).
        classes: names by label.
    """

    arrays: dict[str, NDArray[Any]]
    classes: tuple[str, ...]


Decode = Callable[[Allocate], tuple[str, ...]]
"""Fills the arrays that it allocates and returns the classes."""


def default_folder() -> Path:
    """Return the folder privcirnet in $XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "privcirnet"


def in_memory(decode: Decode) -> Arrays:
    """Decode without a cache.

    Args:
        decode: fills the arrays that it allocates and returns the classes.

    Returns:
        The data set, in memory.
    """
    arrays: dict[str, NDArray[Any]] = {}

    def allocate(name: str, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
        arrays[name] = np.empty(shape, kind)
        return arrays[name]

    return Arrays(arrays, decode(allocate))


def mapped(folder: Path, fingerprint: dict[str, Any], decode: Decode) -> Arrays:
    """Read a cache folder, or decode and write it.

    Args:
        folder: of this data set.
        fingerprint: of its source, as JSON; the folder is stale if its own differs.
        decode: called when the folder is missing, stale or broken.

    Returns:
        The data set, memory-mapped from the folder.

    Raises:
        RuleError: the folder cannot be written, or is too large for its disk.
    """
    try:
        return read(folder, fingerprint)
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        _log.info("decoding: the cache %s cannot be used (%s)", folder, error)
    draft = _draft_of(folder)
    try:
        arrays: dict[str, np.memmap[Any, Any]] = {}

        def allocate(name: str, shape: tuple[int, ...], kind: type) -> NDArray[Any]:
            size, free = math.prod(shape) * np.dtype(kind).itemsize, shutil.disk_usage(draft).free
            if size > free:
                got = f"{size:,} bytes for {free:,} free in {folder.parent}"
                raise RuleError("the cache must fit on its disk", got=got, remedy="set data.cache=DIR")
            arrays[name] = np.lib.format.open_memmap(draft / f"{name}.npy", "w+", np.dtype(kind), shape)
            return arrays[name]

        classes = decode(allocate)
        for array in arrays.values():
            array.flush()
        shapes = {name: [list(array.shape), array.dtype.str] for name, array in arrays.items()}
        _write_facts(draft, {"fingerprint": fingerprint, "classes": list(classes), "arrays": shapes})
        result = read(draft, fingerprint)
        _publish(draft, folder)
        return result
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def read(folder: Path, fingerprint: dict[str, Any]) -> Arrays:
    """Map a cache folder into memory; pages can be written to, but changes stay in this process.

    Args:
        folder: of the data set.
        fingerprint: of its source, as JSON.

    Returns:
        The data set.

    Raises:
        OSError: there is no such folder or file.
        EOFError: a file in it is empty.
        ValueError: it is of another source or version, or broken.
    """
    text = (folder / FACTS).read_text()
    held = json.loads(text)
    facts = held["facts"]
    if held["sha256"] != _checksum(facts) or facts["version"] != VERSION:
        raise ValueError(f"{FACTS} is broken or of another version")
    if facts["fingerprint"] != fingerprint:
        raise ValueError("the source has changed")
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in facts["arrays"]}
    if (folder / FACTS).read_text() != text:
        raise ValueError("another process replaced it meanwhile")
    for name, array in arrays.items():
        if [list(array.shape), array.dtype.str] != facts["arrays"][name]:
            raise ValueError(f"{name}.npy has another shape or type")
        if name.endswith("labels") and not (array.min() >= 0 and array.max() < len(facts["classes"])):
            raise ValueError(f"{name}.npy has a label without a class")
    return Arrays(arrays, tuple(facts["classes"]))


def _draft_of(folder: Path) -> Path:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    except OSError as error:
        remedy = "set data.cache=DIR, or data.cache= for none"
        raise RuleError(
            "the cache must be a folder to write to", got=f"{folder.parent} ({error})", remedy=remedy
        ) from None


def _publish(draft: Path, folder: Path) -> None:
    """Rename a draft; an existing folder is moved away first, repeatedly if another process puts one there."""
    draft.chmod(0o755)
    for attempt in range(_ATTEMPTS):
        try:
            draft.rename(folder)
            return
        except OSError:
            if not folder.exists() and attempt == _ATTEMPTS - 1:
                raise
        old = draft.with_name(f"{draft.name}.{attempt}")
        try:
            folder.rename(old)
        except FileNotFoundError:
            continue
        shutil.rmtree(old, ignore_errors=True) if old.is_dir() else old.unlink()


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    facts = {"version": VERSION, "folder": uuid.uuid4().hex, **facts}
    (folder / FACTS).write_text(json.dumps({"facts": facts, "sha256": _checksum(facts)}, indent=1))


def _checksum(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
