"""Any picture as a network's pixels, by the steps that made the images of its data set, each described in words.

Files of a data set and pictures are decoded, resized and cropped by the same functions (:mod:`data.decoder`). A picture
needs a little more: the data set may be grey, have fewer levels, or show light strokes on a dark ground.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privcirnet.data.decoder import Decoded, decode, square
from privcirnet.errors import RuleError

LIGHT_ON_DARK = ("digits", "mnist")
"""Data sets of light strokes on a dark ground; a picture with a light border is inverted for them."""
_WHITE = 255


class Prepared(NamedTuple):
    """A picture as a network sees it.

    Attributes:
        pixels: int64 (C, H, W), in [0, levels].
    """

    pixels: NDArray[np.int64]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Preparation:
    """The form of a network's pixels.

    Attributes:
        shape: shape (C, H, W); one channel is grey, three are RGB.
        levels: pixels are integers in [0, levels].
        light_on_dark: whether the data set shows light strokes on a dark ground.
    """

    shape: tuple[int, int, int]
    levels: int
    light_on_dark: bool = False

    def __post_init__(self) -> None:
        channels, height, width = self.shape
        if channels not in (1, 3) or height != width or not 1 <= self.levels <= _WHITE:
            got = f"{channels} x {height} x {width} in [0, {self.levels}]"
            rule = "a picture can become 1 or 3 square channels of pixels in [0, 255]"
            raise RuleError(rule, got=got, remedy="prepare images of this network in a program of your own")

    def prepare(self, content: bytes) -> Prepared:
        """Return a picture as the network sees it."""
        picture, done = self._fitted(decode(content))
        pixels = np.asarray(picture, dtype=np.int64).reshape(*self.shape[1:], -1).transpose(2, 0, 1)
        if self.light_on_dark and _border(pixels) > _WHITE / 2:
            pixels = _WHITE - pixels
            done.append("inverted, because the data set has light strokes on a dark ground")
        if self.levels < _WHITE:
            pixels = (pixels * self.levels + _WHITE // 2) // _WHITE
            done.append(f"rounded to {self.levels + 1} levels")
        return Prepared(pixels, tuple(done))

    def _fitted(self, decoded: Decoded) -> tuple[Image.Image, list[str]]:
        """Return the picture in the data set's colours, resized and cropped; and the steps in words."""
        picture, done, size = decoded.picture, [*decoded.steps], self.shape[1]
        mode, words = ("L", "turned grey") if self.shape[0] == 1 else ("RGB", "turned into RGB")
        if picture.mode != mode:
            picture = picture.convert(mode)
            done.append(words)
        if min(picture.size) != size:
            done.append(f"resized so that its shorter side has {size} pixels (bicubic)")
        if picture.width != picture.height:
            done.append(f"cropped to the {size} × {size} pixels in the middle")
        return square(picture, size), done


def _border(pixels: NDArray[np.int64]) -> float:
    """Return the mean of the outermost pixels."""
    edges = (pixels[:, 0], pixels[:, -1], pixels[:, :, 0], pixels[:, :, -1])
    return float(np.concatenate([edge.ravel() for edge in edges]).mean())
