"""The public description of a program of any kind: its inputs, its results, and the run of images."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

from privcirnet.he.layers.integer import Values


class PixelRange(NamedTuple):
    """Pixels of an image as a program takes them.

    Attributes:
        shape: (C, H, W).
        low: least integer that is encrypted.
        high: largest one; where others are allowed, as large as examples had it.
        steps: different steps that channels have.
        whole: whether images have no larger values; else the program was told of none.
    """

    shape: tuple[int, int, int]
    low: int
    high: int
    steps: int = 1
    whole: bool = True


class Known(ABC):
    """The public description of a program, without weights.

    Attributes:
        mode: protocol of images: "interactive" or "ckks".
        scheme: name of the scheme.
        prepares: whether images take two phases: the first one comes before them.
        warms_up: whether an image is run before the first one, which loads the kernels.
    """

    mode: ClassVar[str]
    scheme: ClassVar[str] = "BFV"
    prepares: ClassVar[bool] = False
    warms_up: ClassVar[bool] = True

    @property
    @abstractmethod
    def pixels(self) -> PixelRange:
        """Pixels of an image as it takes them."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """Number of logits."""

    @property
    @abstractmethod
    def request_bits(self) -> tuple[int, ...]:
        """Bits of the primes of a request."""

    @property
    @abstractmethod
    def parameters_in_words(self) -> str:
        """The parameters of the scheme."""

    @property
    def result_log_step(self) -> int:
        """Real logit = result x 2^result_log_step."""
        return 0

    @property
    def class_alone(self) -> bool:
        """True if a client learns no more than the class."""
        return False

    def requests(self, images: Sequence[Values] | Values) -> Iterator[tuple[Values, int, int]]:
        """Yield the values that each request encrypts, the number of its images, and that of its results.

        Args:
            images: integers as the data set has them, (C, H, W) each.
        """
        yield from ((image, 1, 1) for image in images)
