"""The page's view of any program: pixels, logits, primes, rounds in words, classes; and pictures of the page."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privcirnet.he.program.program import Program, PublicDescription
from privcirnet.he.protocol.rounds.exchange import RoundPlan
from privcirnet.he.protocol.schedule import schedule_of
from privcirnet.he.rlwe.parameters import SECURITY_BITS
from privcirnet.runs.answers import name_of
from privcirnet.runs.pictures import ImageInterface, check_data, ends_of, name_of_class

_BITS = f"{SECURITY_BITS} bits"
_KINDS = {"conv": "convolution", "gemm": "linear", "depthwise": "depthwise convolution", "square": "squares"}
"""Names of rounds."""


@dataclass(frozen=True)
class Subject(ImageInterface):
    """The page's view of a server's program.

    Attributes:
        bits: bits of the primes of a request.
        program: interactive program; None for one of CKKS, which has one round.
    """

    bits: tuple[int, ...]
    parameters: str
    program: Program | None = None

    def facts(self) -> dict[str, Any]:
        """Return the program's facts for the page, as plain data."""
        return {
            "rounds": self.rounds(),
            "shape": list(self.shape),
            "parameters": self.parameters,
            "one_round": self.program is None,
        }

    def rounds(self) -> list[dict[str, str]]:
        """Return the rounds with an image, as plain data."""
        if self.program is None:
            return [{"name": "image", "what": "all layers, by the server alone"}]
        schedule = schedule_of(self.program)
        sharing = ([self.program.nodes[number] for number in trip.shared] for trip in schedule.online if trip.shared)
        asking = [
            {
                "name": ", ".join(map(name_of, nodes)),
                "what": ", ".join(dict.fromkeys(in_words(schedule.exchanges[node.name].plan) for node in nodes)),
            }
            for nodes in sharing
        ]
        return [{"name": "image", "what": "less the client’s random share"}, *asking]


def subject_of(description: PublicDescription, levels: int = 0, low: int = 0) -> Subject:
    """Return the page's view of a program; arguments as for :func:`~privcirnet.runs.pictures.ends_of`."""
    words = f"{description.scheme} of {_BITS}, {description.parameters_in_words}"
    program = cast(Program, description) if description.prepares else None
    return Subject(
        **vars(ends_of(description, levels, low)), bits=description.request_bits, parameters=words, program=program
    )


def in_words(plan: RoundPlan) -> str:
    """Return the computation of a round in words.

    >>> in_words(RoundPlan("conv", "nested", block_size=8))
    'convolution, b = 8'
    """
    kind = _KINDS.get(plan.kind, plan.kind)
    return f"{kind}, b = {plan.block_size}" if plan.block_size > 1 else kind


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
        levels: largest pixel of the data set minus the least; 0 where nobody knows.
        low: least pixel of the data set.
    """

    data: str
    place: str
    encrypted: bool = True
    classes: Sequence[str] = ()
    tests: TestImages | None = None
    notes: Sequence[str] = field(default_factory=tuple)
    levels: int = 0
    low: int = 0

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


SIDE = 64
"""Most pixels of a side of a ciphertext's picture."""


def ciphertext_picture(ciphertext: bytes, bits: Sequence[int]) -> NDArray[np.uint8]:
    """Return the highest 8 bits of a ciphertext's first coefficients: uint8 (s, s), s = 64 or less if it is shorter.

    Args:
        ciphertext: bytes on the wire (:mod:`he.rlwe.wire_bytes`); its first polynomial modulo the first prime is drawn.
        bits: bits of each prime of the data.

    >>> ciphertext_picture(bytes([1, 0xFF]) + bytes([0, 0x0A]) * 3, bits=[16]).tolist()
    [[255, 10], [10, 10]]
    """
    side = min(SIDE, math.isqrt(8 * len(ciphertext) // sum(bits)))
    stream = np.unpackbits(np.frombuffer(ciphertext, dtype=np.uint8), count=side * side * bits[0], bitorder="little")
    return np.packbits(stream.reshape(side, side, bits[0])[..., -8:], axis=-1, bitorder="little")[..., 0]


def for_canvas(pixels: NDArray[np.integer[Any]], levels: int = 255) -> dict[str, Any]:
    """Return a picture as plain data for the page.

    Args:
        pixels: pixels (H, W) or (C, H, W), C = 1 or 3, in [0, levels].
    """
    planes = _bytes(pixels, levels)
    channels, height, width = planes.shape
    octets = base64.b64encode(planes.transpose(1, 2, 0).tobytes()).decode("ascii")
    return {"width": width, "height": height, "channels": channels, "pixels": octets}


def png(pixels: NDArray[np.integer[Any]], levels: int) -> bytes:
    """Return a picture as a PNG file; ``pixels``: (C, H, W), C = 1 or 3, in [0, levels]."""
    planes, stream = _bytes(pixels, levels), io.BytesIO()
    Image.fromarray(planes[0] if len(planes) == 1 else planes.transpose(1, 2, 0)).save(stream, format="PNG")
    return stream.getvalue()


def _bytes(pixels: NDArray[np.integer[Any]], levels: int) -> NDArray[np.uint8]:
    planes = pixels if pixels.ndim == 3 else pixels[None]
    return np.ascontiguousarray(planes.astype(np.int64) * 255 // levels).astype(np.uint8)
