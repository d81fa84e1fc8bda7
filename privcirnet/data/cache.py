"""Stored data sets on disk: one safetensors file each, memory-mapped when it is read.

It is written under another name and renamed when it is complete: readers see all of it or nothing, and keep what they
have mapped when another process replaces it. safetensors' own writer wants everything in memory, so the header is
written here and the arrays are filled in place: a data set may be larger than memory.
"""

import json
import logging
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from torch import Tensor

from privcirnet.errors import RuleError
from privcirnet.he.system.files import replacing

VERSION = 3
"""Version of the decoding: another one when files are decoded otherwise."""
_PLACE = "the cache must be a folder to write to", "set data.cache=DIR, or data.cache= for none"
_log = logging.getLogger(__name__)

Arrays = dict[str, NDArray[Any]]
"""Arrays by name: {train,test}_images, uint8 (N, C, H, W), and {train,test}_labels, int64 (N,)."""
Allocate = Callable[[tuple[str, ...], tuple[int, int], tuple[int, ...]], Arrays]
"""Function from classes, numbers of training and held-out images, and (C, H, W) to arrays in memory or a file."""
Decode = Callable[[Allocate], None]
"""Function that fills the arrays that it allocates."""


@dataclass(frozen=True)
class Stored:
    """A decoded data set.

    Attributes:
        tensors: tensors by name, see :data:`Arrays`.
        classes: names by label.
    """

    tensors: dict[str, Tensor]
    classes: tuple[str, ...]


def default_folder() -> Path:
    """Return the folder privcirnet in $XDG_CACHE_HOME, or in ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "privcirnet"


def in_memory(decode: Decode) -> Stored:
    """Return a data set, decoded without a cache."""
    stored: list[Stored] = []

    def allocate(classes: tuple[str, ...], counts: tuple[int, int], shape: tuple[int, ...]) -> Arrays:
        arrays: Arrays = {name: np.empty(size, kind) for name, kind, size in _layout(counts, shape)}
        stored.append(Stored({name: torch.from_numpy(array) for name, array in arrays.items()}, classes))
        return arrays

    decode(allocate)
    return stored[0]


def mapped(path: Path, source: dict[str, Any], decode: Decode) -> Stored:
    """Return a data set from its file, which is written first if it is missing, broken or of another source.

    Args:
        source: facts that change when the data set does, as JSON.

    Returns:
        The data set, memory-mapped; writes to it stay in this process.

    Raises:
        RuleError: the file cannot be written, or is too large for its disk.
    """
    facts = json.dumps({"version": VERSION, **source}, sort_keys=True)
    try:
        return _read(path, facts)
    except (OSError, SafetensorError, ValueError) as error:
        _log.info("decoding: the cache %s cannot be used (%s)", path, error)
    with replacing(path, _PLACE) as draft:
        decode(partial(_allocate, draft, facts))
        return _read(draft, facts)


def _layout(counts: tuple[int, int], shape: tuple[int, ...]) -> list[tuple[str, type, tuple[int, ...]]]:
    """Return names, types and shapes; labels come first, so that their eight bytes are aligned in a file."""
    parts = list(zip(("train", "test"), counts, strict=True))
    labels = [(f"{part}_labels", np.int64, (count,)) for part, count in parts]
    return [*labels, *((f"{part}_images", np.uint8, (count, *shape)) for part, count in parts)]


def _allocate(
    draft: Path, facts: str, classes: tuple[str, ...], counts: tuple[int, int], shape: tuple[int, ...]
) -> Arrays:
    """Write the header of a safetensors file, and map the arrays behind it, which are still empty."""
    header: dict[str, Any] = {"__metadata__": {"facts": facts, "classes": json.dumps(classes)}}
    layout, size = _layout(counts, shape), 0
    for name, kind, dimensions in layout:
        start, size = size, size + math.prod(dimensions) * np.dtype(kind).itemsize
        dtype = "I64" if kind is np.int64 else "U8"
        header[name] = {"dtype": dtype, "shape": dimensions, "data_offsets": [start, size]}
    if size > (free := shutil.disk_usage(draft.parent).free):
        got = f"{size:,} bytes for {free:,} free in {draft.parent}"
        raise RuleError("the cache must fit on its disk", got=got, remedy="set data.cache=DIR")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with draft.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(file.tell() + size)
    start = 8 + len(text)
    return {
        name: np.memmap(draft, kind, "r+", start + header[name]["data_offsets"][0], dimensions)
        for name, kind, dimensions in layout
    }


def _read(path: Path, facts: str) -> Stored:
    """Read a file with its header and arrays from one version: safetensors opens its path once for each."""
    with path.open("rb") as opened:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        replaced = not os.path.samestat(os.fstat(opened.fileno()), path.stat())
    if replaced:
        return _read(path, facts)
    if metadata.get("facts") != facts:
        raise ValueError("it is of another source or version")
    return Stored(tensors, tuple(json.loads(metadata["classes"])))
