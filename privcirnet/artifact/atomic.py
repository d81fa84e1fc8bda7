"""Atomic writing: a file or folder appears under its name when it is complete, or not at all."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A draft beside a file that takes its place when the block succeeds, and disappears when it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    draft = Path(name)
    try:
        yield draft
        draft.chmod(0o644)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """The same for a folder; the old one comes back if the new one cannot take its place."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    old = draft.with_name(f"{draft.name}.old")
    try:
        yield draft
        draft.chmod(0o755)
        if folder.exists():
            folder.replace(old)
        draft.replace(folder)
    finally:
        if old.exists() and not folder.exists():
            old.replace(folder)
        shutil.rmtree(draft, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
