"""Any picture as a network's pixels, by the steps that made the images of its data set, each of them said in words.

Files of a data set become pixels in :mod:`data.images`: the shorter side is resized, the centre cropped. A photograph
needs a little more: its camera may have been turned, it may be transparent, and the data set may be grey, have fewer
levels, or show light strokes on a dark ground.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from privcirnet.data import images
from privcirnet.errors import RuleError

LIGHT_ON_DARK = ("digits", "mnist")
"""Data sets of light strokes on a dark ground; a picture with a light border is inverted for them."""
_WHITE = 255
_ORIENTATION = 0x0112
"""Tag of a photograph that says how its camera was held."""


class Prepared(NamedTuple):
    """A picture as a network sees it.

    Attributes:
        pixels: int64 (C, H, W), in [0, levels].
        steps: what was done, in words.
    """

    pixels: NDArray[np.int64]
    steps: tuple[str, ...]


@dataclass(frozen=True)
class Preparation:
    """What a network's pixels are.

    Attributes:
        shape: (C, H, W); one channel is grey, three are RGB.
        levels: pixels are integers in [0, levels].
        light_on_dark: whether the data set shows light strokes on a dark ground.

    Raises:
        RuleError: the shape is no square picture's, or there are more than 255 levels.
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
        """Return a picture as the network sees it.

        Args:
            content: of an image file, from anybody.

        Raises:
            RuleError: the file is not a whole image of a known format, or is too large.
        """
        try:
            picture, done = self._fitted(images.open_picture(content))
        except images.BROKEN as error:
            remedy = f"use a file of {', '.join(images.FORMATS)} that another program opens"
            raise RuleError("an image file must be whole", got=images.reason(error), remedy=remedy) from None
        pixels = np.asarray(picture, dtype=np.int64).reshape(*self.shape[1:], -1).transpose(2, 0, 1)
        if self.light_on_dark and _border(pixels) > _WHITE / 2:
            pixels = _WHITE - pixels
            done.append("inverted, because the data set has light strokes on a dark ground")
        if self.levels < _WHITE:
            pixels = (pixels * self.levels + _WHITE // 2) // _WHITE
            done.append(f"rounded to {self.levels + 1} levels")
        return Prepared(pixels, tuple(done))

    def _fitted(self, picture: Image.Image) -> tuple[Image.Image, list[str]]:
        """The picture upright, opaque, in the data set's colours, resized and cropped; and what was done."""
        done, size = [f"{picture.format} file of {picture.width} × {picture.height} pixels"], self.shape[1]
        mode, words = ("L", "turned grey") if self.shape[0] == 1 else ("RGB", "turned into RGB")
        if picture.getexif().get(_ORIENTATION, 1) != 1:
            picture = ImageOps.exif_transpose(picture)
            done.append("turned upright as its camera says")
        if picture.has_transparency_data:
            picture = _opaque(picture)
            done.append("laid on white where it was transparent")
        if picture.mode != mode:
            picture = picture.convert(mode)
            done.append(words)
        if min(picture.size) != size:
            done.append(f"resized so that its shorter side has {size} pixels (bicubic)")
        if picture.width != picture.height:
            done.append(f"cropped to the {size} × {size} pixels in the middle")
        return images.square(picture, size), done


def _opaque(picture: Image.Image) -> Image.Image:
    picture = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")


def _border(pixels: NDArray[np.int64]) -> float:
    """The mean of the outermost pixels."""
    edges = (pixels[:, 0], pixels[:, -1], pixels[:, :, 0], pixels[:, :, -1])
    return float(np.concatenate([edge.ravel() for edge in edges]).mean())
