"""Networks with random weights as encrypted programs: what they cost does not depend on what they have learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from network_coverage import keep_last_statistics_, smooth_images
from torch import Tensor, nn

from privcirnet.artifact import MANIFEST, read_profile, write_program
from privcirnet.blocksizes.composition import paying
from privcirnet.config import HEConfig
from privcirnet.console import progress_bar
from privcirnet.he.planning.profile import LINKS
from privcirnet.he.program.operations import Input
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline.export import Pixels, lower_on
from privcirnet.training.network import create

_IMAGES = 16
"""For statistics, steps and measured bounds."""


@dataclass(frozen=True)
class Network:
    """A network of the project.

    Attributes:
        title: for tables.
        side: of an image.
        classes: how many.
        arguments: of its own, beside the activation.
    """

    title: str
    side: int
    classes: int
    arguments: Mapping[str, str] = field(default_factory=dict)


NETWORKS = {
    "mobilenetv2_cifar": Network("MobileNetV2, CIFAR", 32, 10),
    "resnet18_cifar": Network("ResNet-18, 32 x 32", 32, 100),
    "vit_cifar": Network("ViT, CIFAR", 32, 10, {"norm": "batch", "attention": "polynomial"}),
    "mobilenetv2_imagenet": Network("MobileNetV2, 224 x 224", 224, 1000),
}
"""Those of the tables, by name."""


def program_of(name: str, block_size: int, folder: Path, profile: str = "calibrate", composed: bool = False) -> None:
    """Write the program of a network with random weights, unless it is there.

    Args:
        name: one of :data:`NETWORKS`.
        block_size: b wherever it fits.
        folder: of the program.
        profile: operation times: of a file, or of this machine, measured now.
        composed: whether layers are composed with those before them where a profile of a file says that it pays.
    """
    if (folder / MANIFEST).is_file():
        return
    described = NETWORKS[name]
    torch.manual_seed(0)
    arguments = {"activation": "aespa", **described.arguments}
    model = create(name, described.classes, (3, described.side, described.side), arguments)
    circulant_(model, uniform_sizes(model, block_size))
    data = smooth_images(described.side)
    images = data.real(data.train_images[:_IMAGES])
    measure_(model, images)
    given = None if profile == "calibrate" else read_profile(Path(profile))
    pixels = Pixels(data.shape, Input(0, data.levels), data.log_step)
    together = paying(model, images[:1], read_profile(Path(profile)), LINKS["local"]) if composed else ()
    network = quantize(fuse(model, together), [images], data.log_step)
    lowered, _ = lower_on(HEConfig(bounds="measured"), network, pixels, images, progress_bar, given)
    write_program(folder, lowered.program, {"network": name})


@torch.no_grad()
def measure_(model: nn.Module, images: Tensor) -> None:
    """Leave the statistics of these images in norms and activations."""
    keep_last_statistics_(model)
    model.train()(images)
    model.eval()
