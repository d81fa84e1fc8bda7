"""The state of an interrupted run: written after every epoch, read when the same run is started again, then removed.

:func:`rollback_on_failure` gives a network in memory back as it was.
"""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from privcirnet.artifact.run import Run
from privcirnet.errors import RuleError, first_line
from privcirnet.he.system.files import forget_drafts, replacing
from privcirnet.train.record import EpochProgress

NAME = "resume.pt"
MAY_CHANGE = frozenset({"recipe.learning_rate", "recipe.min_learning_rate", "recipe.clip_gradient", "recipe.plan"})
"""Settings that may change when an interrupted run is resumed: those that rescue a run whose loss became NaN, and the
path of its plan, whose block sizes are compared instead."""
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

    Raises:
        RuleError: settings differ that must not, or the file is damaged; the state is neither used nor lost.
    """
    if (saved := _saved(folder)) is None:
        return None
    _check(folder, saved.pop("settings"), settings)
    return EpochProgress(**saved)


def check(folder: Path, settings: dict[str, Any]) -> None:
    """Refuse settings that :func:`load` would refuse, before a run has prepared its network, which can take minutes."""
    if (saved := _saved(folder)) is not None:
        comparable = {name: value for name, value in saved["settings"].items() if name not in PREPARED}
        _check(folder, comparable, settings)


def _saved(folder: Path) -> dict[str, Any] | None:
    """Return the state that :func:`save` wrote, or None."""
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


def _check(folder: Path, saved: dict[str, Any], settings: dict[str, Any]) -> None:
    rule = "an interrupted run must be resumed with its settings"
    remedy = "give the earlier ones, another out=, or resume=false to start over"
    Run(folder, settings, MAY_CHANGE).require_same(saved, rule, remedy)


def remove(folder: Path) -> None:
    """Remove the state and the drafts of killed processes, once the run is complete."""
    (folder / NAME).unlink(missing_ok=True)
    forget_drafts(folder)


@contextmanager
def rollback_on_failure(model: nn.Module) -> Generator[None]:
    """Give the network its weights, buffers, gradients and modes back if an exception ends the block.

    An interruption (Ctrl-C) is none: the network keeps its progress so far.

    Cost: a copy of its tensors.

    Yields:
        Nothing.
    """
    tensors = [(tensor, tensor.detach().clone()) for tensor in (*model.parameters(), *model.buffers())]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    try:
        yield
    except Exception:
        with torch.no_grad():
            for tensor, before in tensors:
                tensor.copy_(before)
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
        raise
