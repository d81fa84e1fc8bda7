"""CIFAR-10 and CIFAR-100 as their authors publish them: pickled batches, read by torchvision, which compares MD5 sums.

A pickle can run any program, so nothing but the published files is opened.
"""

import warnings
from pathlib import Path

import numpy as np

from privcirnet.data.files import Folder, called_below
from privcirnet.data.images import Allocate, Progress
from privcirnet.errors import RuleError

FOLDERS = {"cifar10": "cifar-10-batches-py", "cifar100": "cifar-100-python"}


def find_batches(name: str, root: Path) -> Folder | None:
    """Return the folder of pickled batches at a root or one level below, or None.

    Args:
        name: "cifar10" or "cifar100".
        root: folder to look in.
    """
    wanted = FOLDERS[name]
    below = called_below(root, name)
    for folder in (root.parent / wanted if root.name == wanted else root / wanted, *(path / wanted for path in below)):
        if folder.is_dir():
            return Folder(folder)
    return None


def decode_batches(name: str, folder: Folder, allocate: Allocate, progress: Progress | None = None) -> tuple[str, ...]:
    """Read the batches into arrays.

    Args:
        name: "cifar10" or "cifar100".
        folder: of the batches, from :func:`find_batches`.
        allocate: makes each array.
        progress: called after each part.

    Returns:
        The classes.

    Raises:
        RuleError: a file is missing or is not the published one.
    """
    from torchvision.datasets import CIFAR10, CIFAR100

    kind = {"cifar10": CIFAR10, "cifar100": CIFAR100}[name]
    classes: tuple[str, ...] = ()
    for part in ("train", "test"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", np.exceptions.VisibleDeprecationWarning)  # of how old pickles are read
                data = kind(folder.path.parent, train=part == "train", download=False)
        except RuntimeError:
            remedy = "unpack the official archive again"
            raise RuleError("CIFAR's batches must be the published files", got=folder.path, remedy=remedy) from None
        images = np.asarray(data.data).transpose(0, 3, 1, 2)
        allocate(f"{part}_images", images.shape, np.uint8)[...] = images
        allocate(f"{part}_labels", (len(images),), np.int64)[...] = data.targets
        classes = tuple(data.classes)
        if progress:
            progress(len(images), len(images))
    return classes
