"""The page's offers for a program: the preparation of pictures, test images, classes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privcirnet.page.subject import Subject
from privcirnet.runs.pictures import check_data, name_of_class


@dataclass(frozen=True)
class TestImages:
    """Images of the data set to choose from.

    Attributes:
        pixels: integers (N, C, H, W).
        labels: label of each image.
    """

    __test__ = False  # of pytest

    pixels: NDArray[np.integer[Any]]
    labels: Sequence[int]


@dataclass(frozen=True)
class Content:
    """The page's facts besides the server's greeting.

    Attributes:
        place: place of the server, in words.
        encrypted: whether ciphertexts hide anything; a rehearsal's do not.
        classes: names by label; empty where nobody knows them.
        tests: test images; None where there are none.
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
        return name_of_class(self.classes, label)

    def check(self, subject: Subject) -> None:
        """Raise unless the data set can be the program's."""
        check_data(subject, None if self.tests is None else self.tests.pixels.shape[1:], self.classes, self.data)

    def facts(self) -> dict[str, Any]:
        """Return the page's initial facts, as plain data."""
        labels = [] if self.tests is None else self.tests.labels
        return {
            "data": self.data,
            "place": self.place,
            "encrypted": self.encrypted,
            "notes": list(self.notes),
            "tests": [self.name(label) for label in labels],
        }
