"""What the page offers for a program: how a picture becomes its pixels, test images, classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.picture import LIGHT_ON_DARK, Preparation
from privcirnet.errors import RuleError
from privcirnet.page.subject import Subject


@dataclass(frozen=True)
class TestImages:
    """Images of the data set to choose from.

    Attributes:
        pixels: integers (N, C, H, W).
        labels: of each.
    """

    __test__ = False  # of pytest

    pixels: NDArray[np.integer[Any]]
    labels: Sequence[int]


@dataclass(frozen=True)
class Content:
    """What the page knows besides the server's greeting.

    Attributes:
        place: where the server is, in words.
        encrypted: whether ciphertexts hide anything; a rehearsal's do not.
        classes: names by label; empty where nobody knows them.
        tests: some test images; None where there are none.
        levels: largest pixel of the data set; 0 where nobody knows.
    """

    data: str
    place: str
    encrypted: bool = True
    classes: Sequence[str] = ()
    tests: TestImages | None = None
    notes: Sequence[str] = field(default_factory=tuple)
    levels: int = 0

    def name(self, label: int) -> str:
        """Return the name of a class."""
        return self.classes[label] if label < len(self.classes) else f"class {label}"

    def check(self, subject: Subject) -> None:
        """Raise unless the data set can be the program's."""
        remedy = f"give the program's data set with data=, got data={self.data}"
        if self.tests is not None and (shape := self.tests.pixels.shape[1:]) != subject.shape:
            got = f"{shape} for {subject.shape}"
            raise RuleError("test images must have the size of the program's", got=got, remedy=remedy)
        if self.classes and len(self.classes) != subject.logits:
            got = f"{len(self.classes)} for {subject.logits} logits"
            raise RuleError("there must be a class for each logit", got=got, remedy=remedy)

    def facts(self) -> dict[str, Any]:
        """What the page shows at its start, as plain data."""
        labels = [] if self.tests is None else self.tests.labels
        return {
            "data": self.data,
            "place": self.place,
            "encrypted": self.encrypted,
            "notes": list(self.notes),
            "tests": [self.name(label) for label in labels],
        }


def preparation_for(subject: Subject, data: str) -> Preparation:
    """Return how any picture becomes the pixels of a program."""
    if subject.low != 0:
        got, remedy = f"[{subject.low}, {subject.high}]", "prepare images of this network in a program of your own"
        raise RuleError("a picture can become pixels from 0 up", got=got, remedy=remedy)
    return Preparation(subject.shape, subject.high, data in LIGHT_ON_DARK)
