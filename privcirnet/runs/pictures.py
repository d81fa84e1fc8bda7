"""Any pictures as the images of a program, one after the other, and what is found of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np

from privcirnet.artifact.results import Logit, PictureResult
from privcirnet.data.picture import LIGHT_ON_DARK, Preparation
from privcirnet.data.pictures import Picture
from privcirnet.errors import RuleError
from privcirnet.he.program.known import Known
from privcirnet.runs.answers import Answer, StepProgress, no_progress
from privcirnet.runs.parties import Parties


@dataclass(frozen=True)
class ImageInterface:
    """What a program takes and what it gives, of pictures as its data set has them.

    Attributes:
        shape: (C, H, W) of an image.
        low: least value of a pixel.
        high: largest value of a pixel, as the data set has them.
        logits: how many.
        log_step: real logit = result x 2^log_step.
    """

    shape: tuple[int, int, int]
    low: int
    high: int
    logits: int
    log_step: int


def ends_of(known: Known, levels: int = 0) -> ImageInterface:
    """Return what a program takes and gives.

    Args:
        levels: largest pixel of its data set, of which a CKKS program does not know all; 0 where nobody knows.
    """
    pixels = known.pixels
    if pixels.steps > 1:
        got, remedy = f"{pixels.steps} steps", "call privcirnet.load(folder) with arrays"
        raise RuleError("pictures must have one step for all channels", got=got, remedy=remedy)
    high = pixels.high if pixels.whole else levels or pixels.high
    return ImageInterface(pixels.shape, pixels.low, high, known.classes, known.result_log_step)


def check_data(ends: ImageInterface, shape: Sequence[int] | None, classes: Sequence[str], data: str) -> None:
    """Raise unless a data set can be the program's; ``shape``: of its images; ``data``: its name."""
    remedy = f"give the program's data set with data=, got data={data}"
    if shape is not None and tuple(shape) != ends.shape:
        got = f"{tuple(shape)} for {ends.shape}"
        raise RuleError("test images must have the size of the program's", got=got, remedy=remedy)
    if classes and len(classes) != ends.logits:
        got = f"{len(classes)} for {ends.logits} logits"
        raise RuleError("there must be a class for each logit", got=got, remedy=remedy)


def preparation_for(ends: ImageInterface, data: str) -> Preparation:
    """Return how any picture becomes the pixels of a program; ``data``: name of its data set."""
    if ends.low != 0:
        got, remedy = f"[{ends.low}, {ends.high}]", "prepare images of this network in a program of your own"
        raise RuleError("a picture can become pixels from 0 up", got=got, remedy=remedy)
    return Preparation(ends.shape, ends.high, data in LIGHT_ON_DARK)


def name_of_class(classes: Sequence[str], label: int) -> str:
    """Return the name of a class; ``classes``: names by label, empty where nobody knows them."""
    return classes[label] if label < len(classes) else f"class {label}"


@dataclass(frozen=True)
class Reading:
    """How answers become rows.

    Attributes:
        version: of the program.
        step: real logit = result x step.
        classes: names by label; empty where nobody knows them.
        top: logits of a row, at most.
        class_alone: whether the server tells no more.
    """

    version: str
    step: float
    classes: Sequence[str] = ()
    top: int = 5
    class_alone: bool = False

    @classmethod
    def of(cls, known: Known, version: str, classes: Sequence[str], top: int) -> "Reading":
        """Return how answers of a program become rows."""
        return cls(version, 2.0**known.result_log_step, classes, top, known.class_alone)

    def unreadable(self, picture: Picture) -> PictureResult:
        """Return the row of a file that is no picture."""
        return PictureResult(picture.path, self.version, refused=picture.refused)

    def row(self, path: str, answer: Answer) -> PictureResult:
        """Return the row of an answer; of a result that is not to be used, without it."""
        up, down = answer.bytes
        row = PictureResult(
            path, self.version, seconds=answer.seconds, bytes_up=up, bytes_down=down, prepared=answer.prepared
        )
        if answer.refused:
            return replace(row, refused=str(answer.refused))
        values = answer.logits.astype(np.float64) * self.step
        order = np.argsort(-values, kind="stable")
        names = [name_of_class(self.classes, int(label)) for label in order[: self.top]]
        found = [Logit(int(i), name, float(values[i])) for i, name in zip(order, names, strict=False)]
        row = replace(row, label=found[0].label, name=found[0].name)
        if self.class_alone:
            return row
        margin = float(values[order[0]] - values[order[1]]) if len(order) > 1 else None
        return replace(row, logits=found, margin=margin)


def classify(
    parties: Parties,
    pictures: Iterable[Picture],
    reading: Reading,
    left: Callable[[], int],
    progress: StepProgress = no_progress,
) -> Iterator[PictureResult]:
    """Yield a row for each picture, as soon as it is known.

    Args:
        left: pictures that are known to come, after those that were yielded.

    Raises:
        RuleError: the server refuses or is gone, or the store of the pictures.
    """
    for picture in pictures:
        if picture.pixels is None:
            yield reading.unreadable(picture)
            continue
        if parties.ahead:
            parties.ahead.more = left() - 1
        for _, (answer,) in parties.requests([picture.pixels], progress):
            yield reading.row(picture.path, answer)


@dataclass
class Tally:
    """What rows come to.

    Attributes:
        classes: how many of each, by name.
        refused: how many without a class.
        asked: how many a server answered.
    """

    classes: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    asked: int = 0
    prepared: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, rows: Iterable[PictureResult]) -> "Tally":
        """Return what rows come to."""
        tally = cls()
        for row in rows:
            tally.add(row)
        return tally

    def add(self, row: PictureResult) -> None:
        """Count a row."""
        self.classes.update([row.name] if row.name is not None else [])
        self.refused += bool(row.refused)
        self.asked += row.seconds > 0
        self.prepared += row.prepared
        self.bytes += row.bytes_up + row.bytes_down
        self.seconds += row.seconds

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def rows(self) -> int:
        """How many."""
        return self.classes.total() + self.refused
