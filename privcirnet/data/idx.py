"""MNIST in its own format: four idx files, as they are or compressed, in a folder or an archive.

An idx file is 0, 0, a type (8: uint8), the number of dimensions, each of them as a big-endian 32-bit number, the data.
torchvision reads those that are unpacked into MNIST/raw, and raises AssertionError where one is broken.
"""

import gzip
import io
import posixpath
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from privcirnet.data.cache import Allocate
from privcirnet.data.files import LARGEST_FILE, Tree, locate
from privcirnet.errors import RuleError

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
