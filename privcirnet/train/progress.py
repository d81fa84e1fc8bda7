"""How far a training run is: after an epoch, as a resumed run starts from, and within one, for display."""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class EpochProgress:
    """The state of a run after an epoch, which a resumed run starts from.

    Attributes:
        history: per epoch, as :func:`privcirnet.train.loop.fit` returns it.
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
