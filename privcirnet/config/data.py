"""The group data/: the images."""

from dataclasses import dataclass

from privcirnet.config.checks import check_fields, choice, number

DATA_SETS = ("digits", "cifar10", "cifar100", "mnist", "tiny_imagenet", "imagefolder")


@dataclass
class DataConfig:
    """The images."""

    name: str = choice("digits", DATA_SETS)
    """digits, cifar10, cifar100, mnist, tiny_imagenet, or imagefolder (train/ and test/ or val/, a folder a class)."""
    root: str = "data"
    """where the files are: a folder, or a .tar or .tar.gz archive of image folders; digits need none."""
    size: int = number(0, least=0)
    """pixels; the shorter side is resized to it and the centre cropped; 0 leaves images as they are."""
    cache: str = "auto"
    """folder of decoded images; auto: privcirnet in $XDG_CACHE_HOME or ~/.cache; empty: none, decode in memory."""
    limit: int = number(0, least=0)
    """images of each split, at most; 0 for all. A few hundred show in minutes whether a chain runs."""

    def __post_init__(self) -> None:
        check_fields(self, "data.")
