"""An interrupted run's state: written after every epoch, read when the same run is started again, then removed."""

import os
import tempfile
from pathlib import Path
from typing import Any

import torch

from privcirnet.training.loop import Progress

NAME = "resume.pt"


def save(folder: Path, progress: Progress, settings: dict[str, Any]) -> None:
    """Write the state atomically."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, draft = tempfile.mkstemp(dir=folder, prefix=f".{NAME}.")
    os.close(handle)
    torch.save({"settings": settings, **vars(progress)}, draft)
    Path(draft).replace(folder / NAME)


def load(folder: Path, settings: dict[str, Any]) -> Progress | None:
    """The state of an interrupted run with the same settings, or None."""
    path = folder / NAME
    if not path.is_file():
        return None
    saved = torch.load(path, weights_only=True)
    if saved.pop("settings") != settings:
        return None
    return Progress(**saved)


def remove(folder: Path) -> None:
    """Forget the state: the run is complete."""
    (folder / NAME).unlink(missing_ok=True)
