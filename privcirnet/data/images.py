"""Decoding of image files to uint8 arrays, on all cores: Pillow lets other threads run while it decodes.

A chunk of images is decoded by one thread. The arrays are allocated when the first chunk is decoded.
"""

import io
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from privcirnet.data.files import Tree
from privcirnet.errors import RuleError

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "PPM", "TIFF", "GIF")
"""What a file may be, whatever its name says. Pillow has many more decoders; one starts Ghostscript."""
MOST_PIXELS = 2**26
"""Limit for one image file."""
BROKEN = (OSError, SyntaxError, ValueError, EOFError, Image.DecompressionBombError, Image.DecompressionBombWarning)
"""What Pillow raises for a file that is not a whole image."""
_CHUNK = 64

Pixels = NDArray[np.uint8]
Allocate = Callable[[str, tuple[int, ...], type], NDArray[np.generic]]
"""Makes the array of a name, shape and number type: in memory or in a file."""
Progress = Callable[[int, int], object]
"""Called with images done and images in all."""


def is_image(name: str) -> bool:
    """Return whether a file's name is an image's.

    Args:
        name: of the file.
    """
    return name.lower().endswith(SUFFIXES)


def decode_image(content: bytes, name: str, size: int = 0) -> Pixels:
    """Decode one image.

    Args:
        content: of the file.
        name: of the file, for errors.
        size: pixels; the shorter side is resized to it (bicubic) and the centre cropped; 0 leaves the image as it is.

    Returns:
        RGB (3, H, W); grey images have three equal channels.

    Raises:
        RuleError: the file is not a whole image, or an absurdly large one.
    """
    try:
        picture = open_picture(content).convert("RGB")
        picture = square(picture, size) if size else picture
    except BROKEN as error:
        got, remedy = f"{name} ({reason(error)})", "replace or remove the file"
        raise RuleError("an image file must be whole", got=got, remedy=remedy) from None
    return np.asarray(picture).transpose(2, 0, 1)


def open_picture(content: bytes) -> Image.Image:
    """Decode one image under limits, in the colours of its file.

    Args:
        content: of the file.

    Returns:
        the image, loaded.

    Raises:
        BROKEN: one of them: the file is not a whole image of :data:`FORMATS`, or has over :data:`MOST_PIXELS` pixels.
    """
    picture = Image.open(io.BytesIO(content), formats=FORMATS)
    if picture.width * picture.height > MOST_PIXELS:
        raise Image.DecompressionBombError(f"{picture.width} x {picture.height} pixels")
    picture.load()
    return picture


def reason(error: Exception) -> str:
    """Return why an image could not be decoded, in one line.

    Args:
        error: one of :data:`BROKEN`.
    """
    return "not an image" if isinstance(error, Image.UnidentifiedImageError) else str(error).replace("\n", " ")


def square(picture: Image.Image, size: int) -> Image.Image:
    """Resize the shorter side (bicubic), then crop the centre.

    Args:
        picture: of any size.
        size: pixels of both sides.

    Returns:
        the square.

    Raises:
        Image.DecompressionBombError: it is so long and narrow that it would have over :data:`MOST_PIXELS` in between.
    """
    width, height = picture.size
    short = min(width, height)
    width, height = round(width * size / short), round(height * size / short)
    if width * height > MOST_PIXELS:
        raise Image.DecompressionBombError(f"{picture.width} x {picture.height} pixels, too narrow")
    if (width, height) != picture.size:
        picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.crop((left, top, left + size, top + size))


def decode(
    tree: Tree, parts: Mapping[str, Sequence[str]], size: int, allocate: Allocate, progress: Progress | None = None
) -> None:
    """Decode files into arrays (N, 3, H, W), in the order of their names.

    Args:
        tree: that has the files.
        parts: name of the array -> names of its files.
        size: as in :func:`decode_image`.
        allocate: makes each array.
        progress: called after every few images.

    Raises:
        RuleError: an image is broken, or images have different sizes.
    """
    rows = {name: (part, row) for part, names in parts.items() for row, name in enumerate(names)}
    arrays: dict[str, NDArray[np.generic]] = {}
    done = 0
    for name, pixels in _decoded(tree, list(rows), size):
        if not arrays:
            arrays = {part: allocate(part, (len(names), *pixels.shape), np.uint8) for part, names in parts.items()}
        part, row = rows[name]
        if pixels.shape != arrays[part].shape[1:]:
            height, width = arrays[part].shape[2:]
            got = f"{pixels.shape[2]} x {pixels.shape[1]} in {name} and {width} x {height} before"
            raise RuleError("images must have one size", got=got, remedy="set data.size to resize and crop them")
        arrays[part][row] = pixels
        done += 1
        if progress and (done % _CHUNK == 0 or done == len(rows)):
            progress(done, len(rows))


def _decoded(tree: Tree, names: list[str], size: int) -> Iterator[tuple[str, Pixels]]:
    """Yield names and images; a few chunks are decoded ahead."""
    workers = os.cpu_count() or 1
    waiting: deque[Future[list[tuple[str, Pixels]]]] = deque()
    files = tree.read(names)

    def chunk(some: list[tuple[str, Callable[[], bytes]]]) -> list[tuple[str, Pixels]]:
        return [(name, decode_image(content(), name, size)) for name, content in some]

    with ThreadPoolExecutor(workers) as pool:
        try:
            while some := list(islice(files, _CHUNK)):
                waiting.append(pool.submit(chunk, some))
                if len(waiting) > 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)
