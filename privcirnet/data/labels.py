"""Labels of image files: folders of classes, and Tiny ImageNet's list of validation images."""

import posixpath
from collections.abc import Callable
from dataclasses import dataclass

from privcirnet.data.files import Listing, Tree
from privcirnet.data.images import is_image
from privcirnet.errors import RuleError

ANNOTATIONS = "val/val_annotations.txt"


@dataclass(frozen=True)
class LabelledFiles:
    """The files and labels of both parts, ordered by label, then name.

    Attributes:
        train: (file name, label).
        test: (file name, label).
        classes: names by label.
    """

    train: list[tuple[str, int]]
    test: list[tuple[str, int]]
    classes: tuple[str, ...]


def image_folders(tree: Tree) -> LabelledFiles:
    """Label train/<class>/ and test/<class>/ or, if there is none, val/<class>/; classes are numbered by name.

    Args:
        tree: folder or archive.

    Returns:
        Files and labels.

    Raises:
        RuleError: there are no such folders, a class is empty, or the parts have different classes.
    """
    listing = tree.listing
    below = {posixpath.dirname(folder) for folder in listing.folders}
    base = _base(tree, lambda base: bool(below & {f"{base}test", f"{base}val"}))
    train = _classes(listing, f"{base}train/")
    held_out = "test" if f"{base}test" in below else "val"
    test = _classes(listing, f"{base}{held_out}/")
    if train.keys() != test.keys():
        only = sorted(train.keys() ^ test.keys())[0]
        raise RuleError(
            "both parts must have the same classes",
            got=f"{len(train)} in train/, {len(test)} in {held_out}/ of {tree.path}; only one has {only}",
            remedy="add or remove that folder",
        )
    classes = tuple(sorted(train))
    return LabelledFiles(_numbered(tree, train, classes), _numbered(tree, test, classes), classes)


def tiny_imagenet(tree: Tree) -> LabelledFiles:
    """Label train/<wnid>/images/, and val/images/ by val/val_annotations.txt; classes are numbered in order of wnids.

    Args:
        tree: folder or archive.

    Returns:
        Files and labels.

    Raises:
        RuleError: there are no such files, or the annotations do not fit them.
    """
    listing = tree.listing
    base = _base(tree, lambda base: f"{base}{ANNOTATIONS}" in listing.files)
    train = _classes(listing, f"{base}train/")
    classes = tuple(sorted(train))
    number = {wnid: label for label, wnid in enumerate(classes)}
    (text,) = (content().decode() for _, content in tree.read([f"{base}{ANNOTATIONS}"]))
    test: list[tuple[str, int]] = []
    for line in filter(None, text.splitlines()):
        image, wnid = (*line.split("\t"), "")[:2]
        name = f"{base}val/images/{image}"
        if name not in listing.files or wnid not in number:
            got = f"{line.split(chr(9))[:2]} in {tree.path}"
            remedy = "unpack the whole data set again"
            raise RuleError(f"{ANNOTATIONS} must name an image and its class", got=got, remedy=remedy)
        test.append((name, number[wnid]))
    if not test:
        raise RuleError(f"{ANNOTATIONS} must name images", got=f"none in {tree.path}", remedy="unpack it again")
    return LabelledFiles(_numbered(tree, train, classes), sorted(test, key=lambda pair: (pair[1], pair[0])), classes)


def _classes(listing: Listing, prefix: str) -> dict[str, list[str]]:
    """Return the image files below each folder below a prefix."""
    found: dict[str, list[str]] = {}
    for folder in listing.folders:
        if folder.startswith(prefix) and "/" not in folder[len(prefix) :]:
            found[folder[len(prefix) :]] = []
    for name in listing.files:
        if name.startswith(prefix) and "/" in name[len(prefix) :] and is_image(name):
            found[name[len(prefix) :].split("/")[0]].append(name)
    return found


def _numbered(tree: Tree, files: dict[str, list[str]], classes: tuple[str, ...]) -> list[tuple[str, int]]:
    for name in classes:
        if not files[name]:
            remedy = "remove the folder or put images there"
            raise RuleError(
                "every class must have images", got=f"none in a folder {name} of {tree.path}", remedy=remedy
            )
    return [(name, label) for label, folder in enumerate(classes) for name in sorted(files[folder])]


def _base(tree: Tree, has_held_out: Callable[[str], bool]) -> str:
    """Return the prefix of train/ in a tree: none, or the one folder that has everything."""
    listing = tree.listing
    tops = sorted(folder for folder in listing.folders if "/" not in folder)
    for base in ("", *(f"{top}/" for top in tops)):
        if _classes(listing, f"{base}train/") and has_held_out(base):
            return base
    raise RuleError(
        "a data set of image files must have train/ and test/ or val/, with a folder of images for each class",
        got=f"{', '.join(tops[:5]) or 'no folder'} in {tree.path}",
        remedy="arrange the files so, or set data.root=DIR",
    )
