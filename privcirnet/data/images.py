"""Decoding of image files to uint8 arrays, on all cores: Pillow lets other threads run while it decodes.

A chunk of images is decoded by one thread. The arrays are allocated when the first chunk is decoded.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from privcirnet.data import decoder
from privcirnet.data.files import Tree
from privcirnet.errors import RuleError

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")
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
        RuleError: as for :func:`privcirnet.data.decoder.decode`.
    """
    try:
        picture = decoder.decode(content).picture
        picture = decoder.square(picture, size) if size else picture
    except RuleError as error:
        got, remedy = f"{name} ({error.got})", f"{error.remedy}, or remove the file"
        raise RuleError(error.rule, got=got, remedy=remedy) from None
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


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
