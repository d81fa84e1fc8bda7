"""Data sets in their authors' formats: scikit-learn's digits, MNIST's idx files, CIFAR's pickled batches.

An idx file is 0, 0, a type (8: uint8), the number of dimensions, each of them as a big-endian 32-bit number, the data.
torchvision reads those that are unpacked into MNIST/raw, and raises AssertionError where one is broken. A pickle can
run any program, so nothing but the published files is opened: torchvision compares their MD5 sums.
"""

import gzip
import io
import posixpath
import warnings
import zlib
from importlib import metadata
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.cache import Allocate
from privcirnet.data.files import LARGEST_FILE, Folder, Tree, called_below, locate
from privcirnet.errors import RuleError

LOG_STEP, LEVELS = -4, 16
"""Real pixel = integer x 2^LOG_STEP; integers are in [0, LEVELS]."""


def release() -> str:
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
    for part, images, numbers in zip(("train", "test"), (train, test), truth, strict=True):
        arrays[f"{part}_images"][...] = np.reshape(images, (-1, 1, 8, 8))
        arrays[f"{part}_labels"][...] = numbers


FILES = {
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
    return locate(next(places, root), "mnist", _has_files, f"{FILES['train_images']}[.gz] and the other three files")


def decode_mnist(tree: Tree, allocate: Allocate) -> None:
    """Read the four files into arrays."""
    names = {_plain(name): name for name in sorted(tree.files, reverse=True)}
    missing = [file for file in FILES.values() if file not in names]
    if missing:
        got = f"no {missing[0]} or {missing[0]}.gz in {tree.path}"
        raise RuleError("MNIST must have its four files", got=got, remedy="put it there, or set data.root=DIR")
    read = {_plain(name): _parsed(content(), name) for name, content in tree.read([names[f] for f in FILES.values()])}
    contents = {key: read[file] for key, file in FILES.items()}
    for part in ("train", "test"):
        images, labels = contents[f"{part}_images"], contents[f"{part}_labels"]
        fit = images.ndim == 3 and labels.ndim == 1 and images.shape[1:] == contents["train_images"].shape[1:]
        if not fit or not 0 < len(images) == len(labels) or labels.max() > 9:
            got = f"{part} images {images.shape}, labels {labels.shape}"
            raise RuleError("MNIST must have a label from 0 to 9 for every image", got=got, remedy="fetch it again")
    counts = len(contents["train_labels"]), len(contents["test_labels"])
    arrays = allocate(tuple("0123456789"), counts, (1, *contents["train_images"].shape[1:]))
    for key, array in arrays.items():
        array[...] = contents[key].reshape(array.shape)


def _has_files(folder: Path) -> bool:
    first = FILES["train_images"]
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


FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def find_batches(name: str, root: Path) -> Folder | None:
    """Return the folder of pickled batches at a root or one level below, or None; ``name``: "cifar10" or "cifar100"."""
    folder = FOLDERS[name]
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
