"""CIFAR-10 and CIFAR-100 as their authors publish them: pickled batches, read by torchvision, which compares MD5 sums.

A pickle can run any program, so nothing but the published files is opened.
"""

import warnings
from pathlib import Path

import numpy as np

from privcirnet.data.cache import Allocate
from privcirnet.data.files import Folder, called_below
from privcirnet.errors import RuleError

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
