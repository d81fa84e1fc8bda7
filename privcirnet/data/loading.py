"""Loading of data sets by name: found, decoded once into a cache, and memory-mapped from then on.

Nothing is downloaded: the error for missing files says where they were looked for. All data sets but the digits have
8-bit pixels, of which the network sees integer x 2^-8, and a held-out part of their own.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from privcirnet.data import cache, digits, idx, images, labels, pickles
from privcirnet.data.dataset import ImageData
from privcirnet.data.files import Tree, locate
from privcirnet.data.images import Progress
from privcirnet.errors import RuleError

CLASSES = {"cifar10": 10, "cifar100": 100, "mnist": 10}
NAMES = ("digits", "cifar10", "cifar100", "mnist", "tiny_imagenet", "imagefolder")


@dataclass(frozen=True)
class Files:
    """The location of a data set, and the settings of its decoding.

    Attributes:
        root: folder or archive.
        size: pixels; the shorter side of images is resized to it and the centre cropped; 0 leaves images as they are.
        cache: folder for decoded images; "auto": :func:`privcirnet.data.cache.default_folder`; "": none.
    """

    root: str = "data"
    size: int = 0
    cache: str = "auto"


class Settings(Protocol):
    """The group data/ of the scripts' settings."""

    name: str
    root: str
    size: int
    limit: int
    cache: str


def load_for(settings: Settings, progress: Progress | None = None) -> ImageData:
    """Return the data set that a script's settings name, or as many of its images as they ask for; see :func:`load`.

    Args:
        progress: callback with the number of decoded images and of all images.
    """
    files = Files(settings.root, settings.size, settings.cache)
    data = load(settings.name, files=files, progress=progress)
    return data.limited(settings.limit) if settings.limit else data


def load(
    name: str,
    seed: int = 0,
    test_fraction: float = 0.2,
    files: Files = Files(),
    progress: Progress | None = None,
) -> ImageData:
    """Return a data set by name: images and labels.

    Args:
        name: one of ``NAMES``. "imagefolder" is any folder or archive with train/ and test/ or val/ in it and a folder
            of images for each class there, such as ImageNet's with ``files.size`` = 224.
        seed: seed of the split, where the data set has none of its own (digits).
        test_fraction: share that is held out, where the data set has no split of its own.
        files: location of the other data sets, and the cache.
        progress: callback with the number of decoded images and of all images.

    Raises:
        RuleError: unknown name; missing, broken or unsuitable files; no room for the cache.
    """
    if name not in NAMES:
        choices = ", ".join(f"data={choices}" for choices in NAMES)
        raise RuleError("the data set must be a known one", got=repr(name), remedy=f"use {choices}")
    if files.size and name in ("digits", "mnist"):
        raise RuleError("data.size is for image files", got=f"{files.size} with data={name}", remedy="use data.size=0")
    if name == "digits":
        split = {"name": name, "seed": seed, "test_fraction": test_fraction}
        decode = partial(digits.decode_digits, seed, test_fraction)
        try:
            decoded = _decoded(split, digits.release(), files.cache, decode)
        except RuleError:
            if files.cache != "auto":
                raise
            decoded = cache.in_memory(decode)  # which takes a second: a home that cannot be written to is no obstacle
        return ImageData(**decoded.tensors, log_step=digits.LOG_STEP, levels=digits.LEVELS, classes=decoded.classes)
    source, decode = _source(name, Path(files.root).expanduser(), files.size, progress)
    place = {"name": name, "path": str(source.path.resolve()), "size": files.size}
    decoded = _decoded(place, source.stamp, files.cache, decode)
    if len(decoded.classes) != CLASSES.get(name, len(decoded.classes)):
        got = f"{len(decoded.classes)} in {source.path}"
        raise RuleError(f"{name} must have {CLASSES[name]} classes", got=got, remedy="set data.root=DIR")
    return ImageData(**decoded.tensors, log_step=-8, levels=255, classes=decoded.classes)


def _decoded(place: dict[str, Any], stamp: str, location: str, decode: cache.Decode) -> cache.Stored:
    """Return a data set, from the cache if there is one.

    A place has one file in the cache, which is stale when the stamp of the images there is another.
    """
    if not location:
        return cache.in_memory(decode)
    key = hashlib.sha256(repr(sorted(place.items())).encode()).hexdigest()[:16]
    folder = cache.default_folder() if location == "auto" else Path(location).expanduser()
    return cache.mapped(folder / f"{place['name']}-{key}.safetensors", {**place, "stamp": stamp}, decode)


def _source(name: str, root: Path, size: int, progress: Progress | None) -> tuple[Tree, cache.Decode]:
    """Return the location of a data set and the function that decodes it into arrays."""
    if name == "mnist":
        tree = idx.find_mnist(root)
        return tree, partial(idx.decode_mnist, tree)
    if name in pickles.FOLDERS and (batch_folder := pickles.find_batches(name, root)):
        if size:
            remedy = "use data.size=0, or image folders"
            raise RuleError("data.size is for image files", got=f"{size} with {batch_folder.path}", remedy=remedy)
        return batch_folder, partial(pickles.decode_batches, name, batch_folder)
    if name == "tiny_imagenet":
        tree = locate(root, name, _has_annotations, f"train/ and {labels.ANNOTATIONS}")
        return tree, partial(_decode_files, labels.tiny_imagenet, tree, size, progress)
    batches = f"{pickles.FOLDERS[name]}/ or " if name in pickles.FOLDERS else ""
    expected = f"{batches}train/ and test/ (or val/) with a folder of images for each class"
    tree = locate(root, "" if name == "imagefolder" else name, _has_parts, expected)
    return tree, partial(_decode_files, labels.image_folders, tree, size, progress)


def _decode_files(
    label: Callable[[Tree], labels.LabelledFiles],
    tree: Tree,
    size: int,
    progress: Progress | None,
    allocate: cache.Allocate,
) -> None:
    labelled = label(tree)
    if len(labelled.classes) < 2:
        got, remedy = f"only {', '.join(labelled.classes)} in {tree.path}", "add a folder of images of another class"
        raise RuleError("a data set must have two classes or more", got=got, remedy=remedy)
    images.decode(tree, labelled, size, allocate, progress)


def _has_parts(folder: Path) -> bool:
    return (folder / "train").is_dir() and ((folder / "test").is_dir() or (folder / "val").is_dir())


def _has_annotations(folder: Path) -> bool:
    return (folder / "train").is_dir() and (folder / labels.ANNOTATIONS).is_file()
