"""Progress of a run and its record: a table and TensorBoard events while it trains, a picture of its curves at the end.

The table is history.csv, with one row for each epoch. It is rewritten from the run's history each time, so a run that
was killed and resumed has every epoch once. TensorBoard's own record writer writes the events. Torch's SummaryWriter
runs it in a thread, which prints a traceback when the disk is full, and the run hears of it some 30 steps later; a step
takes it five times as long (63 us instead of 13).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from privcirnet.artifact.records import write_text
from privcirnet.he.system.files import room_for


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


TABLE = "history.csv"
EVENTS = "tensorboard"
CURVES = "curves.png"
COLUMNS = ("epoch", "loss", "top1", "learning_rate", "images_per_second", "seconds")


class Record:
    """The table and the events of a run; a context manager that closes them.

    Args:
        start: state that a resumed run starts from; its later events are hidden, because the run repeats them.
        top1: accuracy before the first epoch, percent.
    """

    def __init__(self, folder: Path, tensorboard: bool, start: EpochProgress | None, top1: float) -> None:
        self._folder = folder
        self._top1 = start.history[-1]["top1"] if start else top1
        self._steps = start.state["schedule"]["last_epoch"] if start else 0
        self._events = Events(folder / EVENTS, self._steps + 1) if tensorboard else None

    def step(self, step: Step) -> str:
        """Record a step, and return a line for people, with the accuracy after the epoch before.

        Raises:
            RuleError: the disk is full.
        """
        self._steps = step.number
        if self._events:
            self._events.write(step.number, {"step/loss": step.loss, "step/learning_rate": step.learning_rate})
        return f"{self._line(step.mean_loss, step.images_per_second)}{' in bfloat16' if step.mixed else ''}"

    def _line(self, loss: float, images_per_second: float) -> str:
        return f"loss {loss:.3f}  top-1 {self._top1:.2f} %  {images_per_second:,.0f} images/s"

    def epoch(self, history: Sequence[Mapping[str, float]]) -> str:
        """Record the last epoch of a history, and return a line for people.

        Raises:
            RuleError: the disk is full.
        """
        last = history[-1]
        self._top1 = last["top1"]
        write_text(self._folder / TABLE, table(history))
        if self._events:
            names = ("loss", "top1", "images_per_second")
            self._events.write(self._steps, {f"epoch/{name}": last[name] for name in names})
            self._events.flush()
        return self._line(last["loss"], last["images_per_second"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._events:
            self._events.close()


class Events:
    """A file of TensorBoard scalars.

    Args:
        first: next step; events of other files in the folder from there on are hidden.

    Raises:
        RuleError: the disk is full; all methods raise it too.
    """

    def __init__(self, folder: Path, first: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # pyright: ignore[reportAttributeAccessIssue]
        from tensorboard.summary.writer.record_writer import RecordWriter

        # TensorBoard reads files in the order of their names
        self._path, self._event = folder / f"events.out.tfevents.{time.time_ns()}", Event
        with room_for(self._path):
            folder.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("wb")
            self._records = RecordWriter(self._file)
        self._add(file_version="brain.Event:2")
        self._add(step=first, session_log=SessionLog(status=SessionLog.START))

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Write scalars."""
        self._add(step=step, summary={"value": [{"tag": tag, "simple_value": v} for tag, v in values.items()]})

    def _add(self, **what: Any) -> None:
        with room_for(self._path):
            self._records.write(self._event(wall_time=time.time(), **what).SerializeToString())

    def flush(self) -> None:
        """Make everything written so far visible to readers."""
        with room_for(self._path):
            self._file.flush()

    def close(self) -> None:
        """Flush and close the file."""
        with room_for(self._path):
            self._file.close()


def table(history: Sequence[Mapping[str, float]]) -> str:
    """Return a history as CSV, one row for each epoch.

    Args:
        history: figures per epoch, with any of :data:`COLUMNS`.

    >>> print(table([{"epoch": 1, "loss": 0.5, "top1": 97.25, "learning_rate": 1e-3}]), end="")
    epoch,loss,top1,learning_rate,images_per_second,seconds
    1,0.5,97.25,0.001,,
    """
    rows = [",".join(COLUMNS)]
    rows += [",".join(f"{entry[name]:.6g}" if name in entry else "" for name in COLUMNS) for entry in history]
    return "\n".join(rows) + "\n"


def picture(folder: Path, history: Sequence[Mapping[str, float]], title: str) -> None:
    """Draw the curves of a complete run; nothing for a run without epochs.

    Raises:
        RuleError: the disk is full.
    """
    from privcirnet.report import plots

    if history:
        plots.curves(folder / CURVES, history, title)
