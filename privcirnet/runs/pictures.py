"""The classification of arbitrary pictures as a program's images, one after the other."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

from privcirnet.artifact.records import InputSpec
from privcirnet.artifact.results import Logit, PictureResult
from privcirnet.data.dataset import ImageData
from privcirnet.data.picture import LIGHT_ON_DARK, Preparation
from privcirnet.data.pictures import Picture
from privcirnet.errors import RuleError
from privcirnet.he.program.program import PublicDescription
from privcirnet.runs.answers import Answer, StepProgress, no_progress
from privcirnet.runs.parties import Parties


@dataclass(frozen=True)
class ImageInterface:
    """The inputs and outputs of a program, for pictures in its data set's form.

    Attributes:
        shape: shape (C, H, W) of an image.
        low: least value of a pixel in the data set.
        high: largest value of a pixel in the data set.
        logits: number of logits.
        log_step: real logit = result x 2^log_step.
    """

    shape: tuple[int, int, int]
    low: int
    high: int
    logits: int
    log_step: int


def ends_of(description: PublicDescription, levels: int = 0, low: int = 0) -> ImageInterface:
    """Return the inputs and outputs of a program.

    Args:
        levels: largest pixel of its data set minus the least; 0 where nobody knows, and pixels fill the program's
            range.
        low: least pixel of its data set.
    """
    pixels = description.pixels
    if pixels.steps > 1:
        got, remedy = f"{pixels.steps} steps", "call privcirnet.load(folder) with arrays"
        raise RuleError("pictures must have one step for all channels", got=got, remedy=remedy)
    if low and not pixels.low <= low <= low + levels <= pixels.high:
        got, remedy = f"[{low}, {low + levels}] for [{pixels.low}, {pixels.high}]", "compile the network again"
        raise RuleError("a program must take its network's pixels", got=got, remedy=remedy)
    high = low + levels if low else pixels.high if pixels.whole else levels or pixels.high
    return ImageInterface(pixels.shape, low or pixels.low, high, description.classes, description.result_log_step)


def check_data(ends: ImageInterface, shape: Sequence[int] | None, classes: Sequence[str], data: str) -> None:
    """Raise unless a data set can be the program's; ``shape``: shape of its images; ``data``: its name."""
    remedy = f"give the program's data set with data=, got data={data}"
    if shape is not None and tuple(shape) != ends.shape:
        got = f"{tuple(shape)} for {ends.shape}"
        raise RuleError("test images must have the size of the program's", got=got, remedy=remedy)
    if classes and len(classes) != ends.logits:
        got = f"{len(classes)} for {ends.logits} logits"
        raise RuleError("there must be a class for each logit", got=got, remedy=remedy)


def preparation_for(ends: ImageInterface, data: str, low: int = 0) -> Preparation:
    """Return the preparation of pictures as pixels of a program.

    Args:
        data: name of its data set.
        low: least pixel of its data set, which black becomes.
    """
    if ends.low != low:
        got, remedy = f"[{ends.low}, {ends.high}]", "prepare images of this network in a program of your own"
        raise RuleError("a picture can become pixels from 0 up", got=got, remedy=remedy)
    return Preparation(ends.shape, ends.high - low, data in LIGHT_ON_DARK, low)


def inputs_of(data: ImageData, name: str) -> InputSpec:
    """Return the form of a data set's images; ``name``: its name."""
    return InputSpec(data.shape, data.log_step, data.levels, data.classes, name)


def preparation_of(inputs: InputSpec) -> Preparation:
    """Return the preparation of pictures as pixels of a network."""
    return Preparation(inputs.shape, inputs.levels, inputs.data in LIGHT_ON_DARK, inputs.low)


def read_image(inputs: InputSpec, picture: str | Path | bytes) -> np.ndarray:
    """Return a picture as a network's image, real, float32 (1, C, H, W).

    Args:
        picture: path or bytes of a file.

    Raises:
        RuleError: it is no picture, or the network reads none.
    """
    try:
        content = picture if isinstance(picture, bytes) else Path(picture).read_bytes()
    except (OSError, TypeError) as error:
        remedy = "give the path of a PNG or JPEG file"
        raise RuleError("a picture must be a file, or the bytes of one", got=repr(picture), remedy=remedy) from error
    pixels = preparation_of(inputs).prepare(content).pixels
    return (pixels[None] * 2.0**inputs.log_step).astype(np.float32)


def name_of_class(classes: Sequence[str], label: int) -> str:
    """Return the name of a class; ``classes``: names by label, empty where nobody knows them."""
    return classes[label] if label < len(classes) else f"class {label}"


@dataclass(frozen=True)
class Reading:
    """The conversion of answers to rows.

    Attributes:
        version: version of the program.
        step: real logit = result x step.
        classes: names by label; empty where nobody knows them.
        top: most logits of a row.
        class_alone: whether the server reveals the class alone.
    """

    version: str
    step: float
    classes: Sequence[str] = ()
    top: int = 5
    class_alone: bool = False

    @classmethod
    def of(cls, description: PublicDescription, version: str, classes: Sequence[str], top: int) -> "Reading":
        """Return the conversion of a program's answers to rows."""
        return cls(version, 2.0**description.result_log_step, classes, top, description.class_alone)

    def unreadable(self, picture: Picture) -> PictureResult:
        """Return the row of a file that is no picture."""
        return PictureResult(picture.path, self.version, refused=picture.refused)

    def row(self, path: str, answer: Answer) -> PictureResult:
        """Return the row of an answer, without a result that is not to be used."""
        up, down = answer.bytes
        row = PictureResult(
            path, self.version, seconds=answer.seconds, bytes_up=up, bytes_down=down, prepared=answer.prepared
        )
        if answer.refused:
            return replace(row, refused=str(answer.refused))
        values = answer.logits.astype(np.float64) * self.step
        order = np.argsort(-values, kind="stable")
        names = [name_of_class(self.classes, int(label)) for label in order[: self.top]]
        logits = [Logit(int(i), name, float(values[i])) for i, name in zip(order, names, strict=False)]
        row = replace(row, label=logits[0].label, name=logits[0].name)
        if self.class_alone:
            return row
        margin = float(values[order[0]] - values[order[1]]) if len(order) > 1 else None
        return replace(row, logits=logits, margin=margin)


def classify(
    parties: Parties,
    pictures: Iterable[Picture],
    reading: Reading,
    remaining: Callable[[], int],
    progress: StepProgress = no_progress,
) -> Iterator[PictureResult]:
    """Yield a row for each picture, as soon as it is known.

    Args:
        remaining: function that returns the number of pictures to come after those that were yielded.

    Raises:
        RuleError: the server refuses or is gone, or the store of the pictures.
    """
    for picture in pictures:
        if picture.pixels is None:
            yield reading.unreadable(picture)
            continue
        if parties.ahead:
            parties.ahead.more = remaining() - 1
        for _, (answer,) in parties.requests([picture.pixels], progress):
            yield reading.row(picture.path, answer)


@dataclass
class Tally:
    """The totals of rows.

    Attributes:
        classes: number of rows by name of the class.
        refused: number of rows without a class.
        asked: number of rows that a server answered.
    """

    classes: Counter[str] = field(default_factory=Counter[str])
    refused: int = 0
    asked: int = 0
    prepared: int = 0
    bytes: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, rows: Iterable[PictureResult]) -> "Tally":
        """Return the totals of rows."""
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
        return Tally(*(getattr(self, attribute.name) + getattr(other, attribute.name) for attribute in fields(self)))

    @property
    def rows(self) -> int:
        """The number of rows."""
        return self.classes.total() + self.refused
