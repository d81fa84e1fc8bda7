"""Decoding of image files to uint8 arrays, on all cores: Pillow lets other threads run while it decodes.

torchvision's decoder takes a third of the time (0.1 ms for one of CIFAR-10's JPEG files), but checks no sizes before,
drops transparency and reads no TIFF, BMP or PPM; each file is decoded once.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from privcirnet.data import decoder
from privcirnet.data.cache import Allocate, Arrays
from privcirnet.data.files import Tree
from privcirnet.data.labels import LabelledFiles
from privcirnet.errors import RuleError

Progress = Callable[[int, int], object]
"""Callback with the number of images done and of all images."""
_BLOCK = 256


def decode_image(content: bytes, name: str, size: int = 0) -> NDArray[np.uint8]:
    """Decode one image.

    Args:
        size: pixels; the shorter side is resized to it (bicubic) and the centre cropped; 0 leaves the image as it is.

    Returns:
        RGB (3, H, W); grey images have three equal channels.
    """
    try:
        picture = decoder.decode(content).picture
    except RuleError as error:
        got, remedy = f"{name} ({error.got})", f"{error.remedy}, or remove the file"
        raise RuleError(error.rule, got=got, remedy=remedy) from None
    picture = decoder.square(picture, size) if size else picture
    return np.asarray(picture.convert("RGB")).transpose(2, 0, 1)


def decode(
    tree: Tree, labelled: LabelledFiles, size: int, allocate: Allocate, progress: Progress | None = None
) -> None:
    """Decode files into arrays (N, 3, H, W), in the order of their names, and write their labels.

    Args:
        progress: callback after every few images.
    """
    parts = {"train": labelled.train, "test": labelled.test}
    rows = {name: (part, row) for part, pairs in parts.items() for row, (name, _) in enumerate(pairs)}
    arrays: Arrays = {}
    for done, (name, pixels) in enumerate(_decoded(tree, list(rows), size), 1):
        if not arrays:
            arrays = allocate(labelled.classes, (len(labelled.train), len(labelled.test)), pixels.shape)
            for part, pairs in parts.items():
                arrays[f"{part}_labels"][...] = [label for _, label in pairs]
        part, row = rows[name]
        images = arrays[f"{part}_images"]
        if pixels.shape != images.shape[1:]:
            height, width = images.shape[2:]
            got = f"{pixels.shape[2]} x {pixels.shape[1]} in {name} and {width} x {height} before"
            raise RuleError("images must have one size", got=got, remedy="set data.size to resize and crop them")
        images[row] = pixels
        if progress and (done % _BLOCK == 0 or done == len(rows)):
            progress(done, len(rows))


def _decoded(tree: Tree, names: list[str], size: int) -> Iterator[tuple[str, NDArray[np.uint8]]]:
    """Yield names and images, decoded in blocks."""

    def decode_file(file: tuple[str, Callable[[], bytes]]) -> tuple[str, NDArray[np.uint8]]:
        return file[0], decode_image(file[1](), file[0], size)

    files = tree.read(names)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while block := list(islice(files, _BLOCK)):
            yield from pool.map(decode_file, block)
