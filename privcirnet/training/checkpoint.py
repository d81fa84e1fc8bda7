"""An interrupted run's state: written after every epoch, read when the same run is started again, then removed."""

from pathlib import Path
from typing import Any

import torch

from privcirnet.artifact import replacing
from privcirnet.training.loop import Progress

NAME = "resume.pt"


def save(folder: Path, progress: Progress, settings: dict[str, Any]) -> None:
    """Write the state atomically."""
    with replacing(folder / NAME) as draft:
        torch.save({"settings": settings, **vars(progress)}, draft)


def load(folder: Path, settings: dict[str, Any]) -> Progress | None:
    """The state of an interrupted run with the same settings, or None."""
    path = folder / NAME
    if not path.is_file():
        return None
    saved = torch.load(path, map_location="cpu", weights_only=True)
    if saved.pop("settings") != settings:
        return None
    return Progress(**saved)


def remove(folder: Path) -> None:
    """Forget the state: the run is complete."""
    (folder / NAME).unlink(missing_ok=True)
