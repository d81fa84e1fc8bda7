"""Writing that outlives a power cut."""

import os
from pathlib import Path


def to_disk(path: Path) -> None:
    """Wait until a file, or a folder's names, are on the disk: only then may it take the place of another."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
