"""Loading of data sets by name: found, decoded once into a cache, and memory-mapped from then on.

Nothing is downloaded: the error for missing files says where they were looked for. All data sets but the digits have
8-bit pixels, of which the network sees integer x 2^-8, and a held-out part of their own.

Formats are their authors': scikit-learn's digits, MNIST's idx files, CIFAR's pickled batches, or image files in folders
(:mod:`.images`). An idx file is 0, 0, a type (8: uint8), the number of dimensions, each of them as a big-endian 32-bit
number, the data. torchvision reads those that are unpacked into MNIST/raw, and raises AssertionError where one is
broken. A pickle can run any program, so nothing but the published files is opened: torchvision compares their MD5 sums.
"""

import gzip
import hashlib
import io
import posixpath
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from privcirnet.data import cache, images
from privcirnet.data.cache import Allocate
from privcirnet.data.dataset import ImageData
from privcirnet.data.files import LARGEST_FILE, Folder, Tree, called_below, locate
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
        decode = partial(decode_digits, seed, test_fraction)
        try:
            decoded = _decoded(split, digits_release(), files.cache, decode)
        except RuleError:
            if files.cache != "auto":
                raise
            decoded = cache.in_memory(decode)  # which takes a second: a home that cannot be written to is no obstacle
        return ImageData(**decoded.tensors, log_step=DIGITS_LOG_STEP, levels=DIGITS_LEVELS, classes=decoded.classes)
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
        tree = find_mnist(root)
        return tree, partial(decode_mnist, tree)
    if name in CIFAR_FOLDERS and (batch_folder := find_batches(name, root)):
        if size:
            remedy = "use data.size=0, or image folders"
            raise RuleError("data.size is for image files", got=f"{size} with {batch_folder.path}", remedy=remedy)
        return batch_folder, partial(decode_batches, name, batch_folder)
    if name == "tiny_imagenet":
        tree = locate(root, name, _has_annotations, f"train/ and {images.ANNOTATIONS}")
        return tree, partial(_decode_files, images.tiny_imagenet, tree, size, progress)
    batches = f"{CIFAR_FOLDERS[name]}/ or " if name in CIFAR_FOLDERS else ""
    expected = f"{batches}train/ and test/ (or val/) with a folder of images for each class"
    tree = locate(root, "" if name == "imagefolder" else name, _has_parts, expected)
    return tree, partial(_decode_files, images.image_folders, tree, size, progress)


def _decode_files(
    label: Callable[[Tree], images.LabelledFiles],
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
    return (folder / "train").is_dir() and (folder / images.ANNOTATIONS).is_file()


DIGITS_LOG_STEP, DIGITS_LEVELS = -4, 16
"""Real pixel = integer x 2^DIGITS_LOG_STEP; integers are in [0, DIGITS_LEVELS]."""


def digits_release() -> str:
    """Return the version of scikit-learn, on which the images and their split depend; it is not imported."""
    return metadata.version("scikit-learn")


def decode_digits(seed: int, test_fraction: float, allocate: Allocate) -> None:
    """Write the digits into arrays, split by class proportions. Images are (N, 1, 8, 8).

    Args:
        test_fraction: share of the images that is held out, between 0 and 1.
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    pixels, labels = load_digits(return_X_y=True)
    train, test, *truth = train_test_split(pixels, labels, test_size=test_fraction, random_state=seed, stratify=labels)
    arrays = allocate(tuple("0123456789"), (len(train), len(test)), (1, 8, 8))
    for part, pictures, numbers in zip(("train", "test"), (train, test), truth, strict=True):
        arrays[f"{part}_images"][...] = np.reshape(pictures, (-1, 1, 8, 8))
        arrays[f"{part}_labels"][...] = numbers


MNIST_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
_UINT8 = 8


def find_mnist(root: Path) -> Tree:
    """Return the folder or archive with MNIST's files; torchvision keeps them in MNIST/raw.

    Raises:
        RuleError: there is none, or more than one.
    """
    places = (folder for folder in (root, root / "raw", root / "MNIST" / "raw") if _has_files(folder))
    return locate(
        next(places, root), "mnist", _has_files, f"{MNIST_FILES['train_images']}[.gz] and the other three files"
    )


def decode_mnist(tree: Tree, allocate: Allocate) -> None:
    """Read the four files into arrays."""
    names = {_plain(name): name for name in sorted(tree.files, reverse=True)}
    missing = [file for file in MNIST_FILES.values() if file not in names]
    if missing:
        got = f"no {missing[0]} or {missing[0]}.gz in {tree.path}"
        raise RuleError("MNIST must have its four files", got=got, remedy="put it there, or set data.root=DIR")
    read = {
        _plain(name): _parsed(content(), name) for name, content in tree.read([names[f] for f in MNIST_FILES.values()])
    }
    contents = {key: read[file] for key, file in MNIST_FILES.items()}
    for part in ("train", "test"):
        pictures, labels = contents[f"{part}_images"], contents[f"{part}_labels"]
        fit = pictures.ndim == 3 and labels.ndim == 1 and pictures.shape[1:] == contents["train_images"].shape[1:]
        if not fit or not 0 < len(pictures) == len(labels) or labels.max() > 9:
            got = f"{part} images {pictures.shape}, labels {labels.shape}"
            raise RuleError("MNIST must have a label from 0 to 9 for every image", got=got, remedy="fetch it again")
    counts = len(contents["train_labels"]), len(contents["test_labels"])
    arrays = allocate(tuple("0123456789"), counts, (1, *contents["train_images"].shape[1:]))
    for key, array in arrays.items():
        array[...] = contents[key].reshape(array.shape)


def _has_files(folder: Path) -> bool:
    first = MNIST_FILES["train_images"]
    return (folder / first).is_file() or (folder / f"{first}.gz").is_file()


def _plain(name: str) -> str:
    return posixpath.basename(name).removesuffix(".gz")


def _parsed(content: bytes, name: str) -> NDArray[np.uint8]:
    try:
        if name.endswith(".gz"):
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST_FILE)
        dimensions = content[3]
        shape = tuple(np.frombuffer(content, ">u4", dimensions, 4).tolist())
        if content[:3] != bytes([0, 0, _UINT8]):
            raise ValueError("it is not of bytes")
        return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, zlib.error, ValueError, IndexError) as error:
        raise RuleError("an idx file must be whole", got=f"{name} ({error})", remedy="fetch it again") from None


CIFAR_FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def find_batches(name: str, root: Path) -> Folder | None:
    """Return the folder of pickled batches at a root or one level below, or None; ``name``: "cifar10" or "cifar100"."""
    folder = CIFAR_FOLDERS[name]
    places = [root.parent, root] if root.name == folder else [root]
    return next((Folder(at / folder) for at in [*places, *called_below(root, name)] if (at / folder).is_dir()), None)


def decode_batches(name: str, folder: Folder, allocate: Allocate) -> None:
    """Read the batches into arrays; ``name``: "cifar10" or "cifar100"."""
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)  # of how old pickles are read
            parts = {part: kind(folder.path.parent, train=part == "train") for part in ("train", "test")}
    except RuntimeError:
        remedy = "unpack the official archive again"
        raise RuleError("CIFAR's batches must be the published files", got=folder.path, remedy=remedy) from None
    arrays = allocate(tuple(parts["train"].classes), (len(parts["train"]), len(parts["test"])), (3, 32, 32))
    for part, data in parts.items():
        arrays[f"{part}_images"][...] = np.asarray(data.data).transpose(0, 3, 1, 2)
        arrays[f"{part}_labels"][...] = data.targets
