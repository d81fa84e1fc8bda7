"""Progress of a training run: after an epoch, for a resumed run, and within one, for display."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class EpochProgress:
    """The state of a run after an epoch, which a resumed run starts from.

    Attributes:
        history: figures per epoch, as :func:`privcirnet.train.loop.fit` returns them.
        state: model, optimizer, schedule and generator states, and the precision.
        top1_before: accuracy before the first epoch, percent; None if it is not known.
    """

    epoch: int = 0
    history: list[dict[str, float]] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    top1_before: float | None = None


@dataclass(frozen=True)
class Step:
    """The state of a run within an epoch, for display.

    Attributes:
        epochs: passes over the training images so far, 2.5 in the middle of the third.
    """

    number: int
    epochs: float
    loss: float
    mean_loss: float
    learning_rate: float
    images_per_second: float
    mixed: bool = False


def falls_to_chance(history: Sequence[Mapping[str, float]], classes: int) -> bool:
    """Return whether held-out accuracy fell to chance in the last epoch, for the first time, though the loss fell too.

    An accuracy is at chance if it is at most 1.5 times that of guesses, and at most five points above it. Before it was
    1.5 times that.

    Args:
        history: figures per epoch, as :func:`privcirnet.train.loop.fit` returns them; without "top1" nothing falls.

    >>> [falls_to_chance([{"loss": 2.0, "top1": 30.0}, {"loss": loss, "top1": 10.0}], 10) for loss in (2.1, 1.9)]
    [False, True]
    """
    limit = min(150 / classes, 100 / classes + 5)

    def fallen(epochs: Sequence[Mapping[str, float]]) -> bool:
        last, best = epochs[-1], max(epochs, key=lambda epoch: epoch.get("top1", 0.0))
        return last.get("top1", 100.0) <= limit < best.get("top1", 0.0) / 1.5 and last["loss"] < best["loss"]

    return fallen(history) and not any(fallen(history[:done]) for done in range(1, len(history)))
