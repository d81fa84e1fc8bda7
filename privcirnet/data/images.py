"""Data sets of image files: labels by folders of classes or Tiny ImageNet's list, and decoding on all cores.

Pillow lets other threads run while it decodes. torchvision's decoder takes a third of the time (0.1 ms for one of
CIFAR-10's JPEG files), but checks no sizes before, drops transparency and reads no TIFF, BMP or PPM; each file is
decoded once.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.cache import Allocate, Arrays
from privcirnet.data.files import Tree
from privcirnet.data.picture import decode as decode_picture
from privcirnet.data.picture import square
from privcirnet.errors import RuleError

T = TypeVar("T")
ANNOTATIONS = "val/val_annotations.txt"
SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".pgm", ".bmp", ".tif", ".tiff", ".webp")


class LabelledFiles(NamedTuple):
    """The files and labels of both parts, ordered by label, then name.

    Attributes:
        train: training files and their labels.
        test: held-out files and their labels.
        classes: names by label.
    """

    train: list[tuple[str, int]]
    test: list[tuple[str, int]]
    classes: tuple[str, ...]


def image_folders(tree: Tree) -> LabelledFiles:
    """Label train/<class>/ and test/<class>/ or, if there is none, val/<class>/; classes are numbered by name.

    Returns:
        Files and labels, as torchvision's ImageFolder orders them.
    """
    _, train, test = _parts(tree, lambda base: _classes(tree, f"{base}test/") or _classes(tree, f"{base}val/"))
    if train.keys() != test.keys():
        only = sorted(train.keys() ^ test.keys())[0]
        got = f"{len(train)} for training and {len(test)} held out in {tree.path}; only one has {only}"
        raise RuleError("both parts must have the same classes", got=got, remedy="add or remove that folder")
    return LabelledFiles(_numbered(tree, train), _numbered(tree, test), tuple(train))


def tiny_imagenet(tree: Tree) -> LabelledFiles:
    """Label train/<wnid>/images/, and val/images/ by val/val_annotations.txt; classes are numbered in order of wnids.

    Returns:
        Files and labels.
    """
    base, train, _ = _parts(tree, lambda base: f"{base}{ANNOTATIONS}" in tree.files)
    number = {wnid: label for label, wnid in enumerate(train)}
    (text,) = (content().decode() for _, content in tree.read([f"{base}{ANNOTATIONS}"]))
    rule, remedy = f"{ANNOTATIONS} must name images and their classes", "unpack the whole data set again"
    test: list[tuple[str, int]] = []
    for line in filter(None, text.splitlines()):
        image, wnid = (*line.split("\t"), "")[:2]
        name = f"{base}val/images/{image}"
        if name not in tree.files or wnid not in number:
            raise RuleError(rule, got=f"{line!r} in {tree.path}", remedy=remedy)
        test.append((name, number[wnid]))
    if not test:
        raise RuleError(rule, got=f"none in {tree.path}", remedy=remedy)
    return LabelledFiles(_numbered(tree, train), sorted(test, key=lambda pair: (pair[1], pair[0])), tuple(train))


def _classes(tree: Tree, prefix: str) -> dict[str, list[str]]:
    """Return the image files below each folder below a prefix, sorted; none for a folder of other files."""
    files: dict[str, list[str]] = {}
    for name in sorted(name for name in tree.files if name.startswith(prefix)):
        folder, below, _ = name.removeprefix(prefix).partition("/")
        if below:
            files.setdefault(folder, []).extend([name] * name.lower().endswith(SUFFIXES))
    return dict(sorted(files.items()))


def _numbered(tree: Tree, classes: dict[str, list[str]]) -> list[tuple[str, int]]:
    for name, files in classes.items():
        if not files:
            got, remedy = f"none in a folder {name} of {tree.path}", "remove the folder or put images there"
            raise RuleError("every class must have images", got=got, remedy=remedy)
    return [(file, label) for label, files in enumerate(classes.values()) for file in files]


def _parts(tree: Tree, held_out: Callable[[str], T]) -> tuple[str, dict[str, list[str]], T]:
    """Return the prefix of train/ in a tree: none, or of the one folder that has it; and both parts."""
    tops = sorted({name.split("/")[0] for name in tree.files if "/" in name})
    for base in ("", *(f"{top}/" for top in tops)):
        if (train := _classes(tree, f"{base}train/")) and (test := held_out(base)):
            return base, train, test
    raise RuleError(
        "a data set of image files must have train/ and test/ or val/, with a folder of images for each class",
        got=f"{', '.join(tops[:5]) or 'no folder'} in {tree.path}",
        remedy="arrange the files so, or set data.root=DIR",
    )


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
        picture = decode_picture(content).picture
    except RuleError as error:
        got, remedy = f"{name} ({error.got})", f"{error.remedy}, or remove the file"
        raise RuleError(error.rule, got=got, remedy=remedy) from None
    picture = square(picture, size) if size else picture
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
