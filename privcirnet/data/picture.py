"""One image file, from anybody, as a network's pixels: decoded to 8 bits, then prepared as its data set's images were.

Data sets and the page decode with this alone. Pillow parses the file. The rest is done here: limits before anything is
decoded, 16 bits and real numbers, transparency, and the way in which a camera was held. A picture that a user brings
needs a little more, each step described in words: the data set may be grey, have fewer levels, or show light strokes
on a dark ground.
"""

import io
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from PIL.JpegImagePlugin import JpegImageFile

from privcirnet.errors import RuleError

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF", "GIF")
"""Formats that a file may have, whatever its name. Pillow has many more decoders; one starts Ghostscript."""
MOST_BYTES = 1 << 24
"""Limit for the file of a picture that anybody brings."""
MOST_PIXELS = 2**25
"""Limit for one image. On its way a pixel takes 8 bytes; 17 in a WebP file, or as a real number."""
MOST_SCANS = 500
"""Limit for the passes of a progressive JPEG file over all its pixels; usual files have ten."""
_SCAN = b"\xff\xda"
"""Bytes with which a scan begins; compressed data never has these bytes."""
_BITS_PER_SAMPLE, _PHOTOMETRIC, _TILE_WIDTH, _TILE_HEIGHT = 258, 262, 322, 323
"""Tags of TIFF."""


class Decoded(NamedTuple):
    """An image as it is seen.

    Attributes:
        picture: upright and opaque, of mode L or RGB.
    """

    picture: Image.Image
    steps: tuple[str, ...]


def decode(content: bytes) -> Decoded:
    """Decode the first image of a file.

    Returns:
        the image as it is seen.
    """
    try:
        return _decoded(content)
    except RuleError:
        raise
    except Exception as error:  # a damaged file makes Pillow's parsers raise anything: KeyError, struct.error ...
        remedy = f"use a file of {', '.join(FORMATS)} that another program opens"
        raise RuleError("an image file must be whole", got=_reason(error), remedy=remedy) from None


def check_size(width: int, height: int, words: str = "pixels") -> None:
    """Raise unless an image may be decoded, or resized, to a size; ``width``: in pixels; ``height``: in pixels."""
    if width * height > MOST_PIXELS:
        rule = f"an image must have at most {MOST_PIXELS:,} pixels"
        raise RuleError(rule, got=f"{width} x {height} {words}", remedy="make the picture smaller")


def square(picture: Image.Image, size: int) -> Image.Image:
    """Return the square in the middle, resized (bicubic); ``size``: side in pixels."""
    return ImageOps.fit(picture, (size, size), Image.Resampling.BICUBIC)


def _decoded(content: bytes) -> Decoded:
    picture = Image.open(io.BytesIO(content), formats=FORMATS)
    tags: dict[int, Any] = dict(getattr(picture, "tag_v2", {}))
    check_size(*picture.size)
    check_size(tags.get(_TILE_WIDTH, 0), tags.get(_TILE_HEIGHT, 0), "pixels in a tile")
    if isinstance(picture, JpegImageFile) and (scans := content.count(_SCAN)) > MOST_SCANS:
        rule, remedy = f"a JPEG file must have at most {MOST_SCANS} scans", "save the picture anew"
        raise RuleError(rule, got=scans, remedy=remedy)
    done = [f"{picture.format} file of {picture.width} × {picture.height} pixels"]
    picture.load()
    turned = _turned_upright(picture)
    if picture.mode == "F" or picture.mode.startswith("I"):
        picture = _eight_bits(picture, tags)
        done.append("brought to 8 bits")
    if picture.has_transparency_data:
        picture = _opaque(picture)
        done.append("laid on white where it was transparent")
    if picture.mode == "1":
        picture = picture.convert("L")
    if picture.mode not in ("L", "RGB"):
        picture = picture.convert("RGB")
        done.append("turned into RGB")
    if turned:
        done.append("turned upright as its camera says")
    return Decoded(picture, tuple(done))


def _turned_upright(picture: Image.Image) -> bool:
    """Turn an image as its EXIF says, and return whether it was turned.

    Pillow turns it before it rewrites EXIF; entries that it can't read or write there are left.
    """
    before = picture.im
    with suppress(Exception):  # as in decode
        ImageOps.exif_transpose(picture, in_place=True)
    return picture.im is not before


def _eight_bits(picture: Image.Image, tags: dict[int, Any]) -> Image.Image:
    """Scale grey integers of 16 bits, or real numbers from 0 to 1, to 8 bits; as Pillow scales colours of 16 bits."""
    values = np.asarray(picture)
    rule, remedy = "pixels must be integers of 8 or 16 bits, or real numbers in [0, 1]", "save the picture with 8 bits"
    if picture.mode == "F":
        if not (values.min() >= 0 and values.max() <= 1):
            raise RuleError(rule, got=f"{values.min():g} to {values.max():g}", remedy=remedy)
        grey = np.rint(values * 255).astype(np.uint8)
    elif picture.mode == "I" and picture.format == "TIFF":
        raise RuleError(rule, got=f"integers of {tags[_BITS_PER_SAMPLE][0]} bits with a sign, or of 32", remedy=remedy)
    else:
        grey = (values >> (tags.get(_BITS_PER_SAMPLE, (16,))[0] - 8)).astype(np.uint8)
    if tags.get(_PHOTOMETRIC) == 0:  # white is zero, which Pillow heeds in 8 bits alone
        grey = _WHITE - grey
    transparent: NDArray[np.bool_] = values == picture.info.get("transparency", -1)
    grey[transparent] = _WHITE
    return Image.fromarray(grey)


def _opaque(picture: Image.Image) -> Image.Image:
    picture = picture if picture.mode == "RGBA" else picture.convert("RGBA")
    white = Image.new("RGB", picture.size, "white")
    white.paste(picture, mask=picture)
    return white


def _reason(error: Exception) -> str:
    if isinstance(error, Image.UnidentifiedImageError):
        return "not an image"
    return str(error).replace("\n", " ") or type(error).__name__


LIGHT_ON_DARK = ("digits", "mnist")
"""Data sets of light strokes on a dark ground; a picture with a light border is inverted for them."""
_WHITE = 255


class Prepared(NamedTuple):
    """A picture as a network sees it.

    Attributes:
        pixels: int64 (C, H, W), in [low, low + levels].
    """

    pixels: NDArray[np.int64]
    steps: tuple[str, ...]


class PreparesInputs(Protocol):
    """The conversion of pictures, or of an array's rows, to a network's integers."""

    def prepare(self, content: Any, /) -> Any:
        """Return an input as the network takes it, its integers as ``pixels``."""
        ...


@dataclass(frozen=True)
class Preparation:
    """The form of a network's pixels.

    Attributes:
        shape: shape (C, H, W); one channel is grey, three are RGB.
        levels: pixels are integers in [low, low + levels].
        light_on_dark: whether the data set shows light strokes on a dark ground.
        low: black.
    """

    shape: tuple[int, ...]
    levels: int
    light_on_dark: bool = False
    low: int = 0

    def __post_init__(self) -> None:
        channels, *sides = self.shape
        square_sides = len(sides) == 2 and len(set(sides)) == 1
        if channels not in (1, 3) or not square_sides or not 1 <= self.levels <= _WHITE:
            got = f"{' x '.join(map(str, self.shape))} in [0, {self.levels}]"
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
        return Prepared(pixels + self.low, tuple(done))

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
