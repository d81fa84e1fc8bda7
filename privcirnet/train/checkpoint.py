"""The state of an interrupted run: written after every epoch, read when the same run is started again, then removed."""

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from privcirnet.artifact import forget_drafts, replacing
from privcirnet.config import TrainConfig
from privcirnet.errors import RuleError, first_line
from privcirnet.train.progress import EpochProgress

NAME = "resume.pt"
PLACES = frozenset({"root", "out", "device", "evaluate", "resume", "tensorboard", "data.root", "data.cache"})
"""Settings that do not change what a run computes."""
MAY_CHANGE = frozenset({"recipe.learning_rate", "recipe.min_learning_rate", "recipe.clip_gradient", "recipe.plan"})
"""Settings that may change when an interrupted run is resumed: those that rescue a run whose loss became NaN, and where
its plan is, whose block sizes are compared instead."""
FORMER = {
    "recipe.tail_limit": 6.0,
    "recipe.imitation": 1.0,
    "recipe.smallest_image": 0.0,
    "recipe.compile_backend": "inductor",
}
"""Settings that earlier versions recorded, with what is left of them: a constant, or nothing."""
PREPARED = frozenset({"block_sizes"})
"""Settings that a run knows only once its network is prepared."""


def save(folder: Path, progress: EpochProgress, settings: dict[str, Any]) -> None:
    """Write the state atomically.

    Raises:
        RuleError: the disk is full; the earlier state is kept.
    """
    with replacing(folder / NAME) as draft, draft.open("wb") as file:
        torch.save({"settings": settings, **vars(progress)}, file)


def load(folder: Path, settings: dict[str, Any]) -> EpochProgress | None:
    """Return the state of an interrupted run, or None if there is none.

    A setting that a run of an earlier version did not know had its default.

    Args:
        folder: run directory.
        settings: of the run, as nested plain data.

    Raises:
        RuleError: settings differ that must not, or the file is damaged; the state is neither used nor lost.
    """
    if (saved := _saved(folder)) is None:
        return None
    _compare(folder, saved.pop("settings"), settings)
    return EpochProgress(**saved)


def check(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse early what :func:`load` would refuse: before a run has prepared its network, which can take minutes.

    Args:
        folder: run directory.
        settings: as for :func:`load`, but for :data:`PREPARED`.

    Raises:
        RuleError: as for :func:`load`.
    """
    if (saved := _saved(folder)) is not None:
        given = {name: value for name, value in saved["settings"].items() if name not in PREPARED}
        _compare(folder, given, settings)


def _saved(folder: Path) -> dict[str, Any] | None:
    """Return what :func:`save` wrote, or None."""
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file makes torch raise whatever its bytes lead to
        got = f"{path}: {first_line(error)}"
        raise RuleError(
            "the state of an interrupted run must be whole", got=got, remedy="start over: resume=false"
        ) from error


def _compare(folder: Path, saved: dict[str, Any], settings: dict[str, Any]) -> None:
    """Refuse settings that are not those of the interrupted run."""
    defaults = flat(asdict(TrainConfig()))
    before, now = comparable(defaults | flat(saved)), comparable(defaults | flat(settings))
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    if changed := [f"{n}={now.get(n)} after {before.get(n)}" for n in names if n not in MAY_CHANGE]:
        raise RuleError(
            "an interrupted run must be resumed with its settings",
            got=f"{', '.join(changed)} for {folder / NAME}",
            remedy="give the earlier ones, another out=, or resume=false to start over",
        )


def remove(folder: Path) -> None:
    """Remove the state and the drafts of killed processes, once the run is complete."""
    (folder / NAME).unlink(missing_ok=True)
    forget_drafts(folder)


def comparable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flat settings that a result depends on, with paths in the root relative to it.

    Args:
        settings: from :func:`flat`, with a root.

    >>> comparable({"root": "/here", "out": "/here/qat", "recipe.init": "/here/replace", "recipe.epochs": 2})
    {'recipe.init': 'replace', 'recipe.epochs': 2}
    """
    root = f"{settings['root']}/"
    return {
        name: value.removeprefix(root) if isinstance(value, str) else value
        for name, value in settings.items()
        if name not in PLACES and (name not in FORMER or value != FORMER[name])
    }


def flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings with their names in one piece.

    Args:
        settings: plain data; what is inside of lists stays as it is.
        prefix: of all names.

    >>> flat({"recipe": {"epochs": 4}})
    {'recipe.epochs': 4}
    """
    found: dict[str, Any] = {}
    for name, value in settings.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return found
