"""Networks with random weights as encrypted programs: what they cost does not depend on what they have learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from papers.reproduce.untrained import LOG_STEP, keep_last_statistics_, random_network
from privcirnet.artifact.folder import MANIFEST
from privcirnet.artifact.program import write_program
from privcirnet.artifact.records import read_profile
from privcirnet.blocksize_search.latency import worth_composing
from privcirnet.cli.console import progress_bar
from privcirnet.config import HEConfig
from privcirnet.he.planning.network_links import LINKS
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.runs.export import lower_on


@dataclass(frozen=True)
class Network:
    """A network of the project.

    Attributes:
        title: for tables.
        side: of an image.
        classes: how many.
        arguments: of its own, beside AESPA for its activations.
        settings: of its encryption, beside measured bounds.
        model: its name, if that is not the key's.
    """

    title: str
    side: int
    classes: int
    arguments: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    model: str = ""


def _exact(title: str, model: str, activation: str) -> dict[str, Network]:
    """Return a network with its own activations, by name and source of oblivious transfers."""
    return {
        f"{model}_{activation}_{ot}": Network(
            f"{title}, exact, {ot}", 32, 10, {"activation": activation}, {"nonlinear": "exact", "ot": ot}, model
        )
        for ot in ("softspoken", "silent")
    }


NETWORKS = {
    "mobilenetv2_cifar": Network("MobileNetV2, CIFAR", 32, 10),
    "resnet18_cifar": Network("ResNet-18, 32 x 32", 32, 100),
    "vit_cifar": Network("ViT, CIFAR", 32, 10, {"norm": "batch", "attention": "polynomial"}),
    "mobilenetv2_imagenet": Network("MobileNetV2, 224 x 224", 224, 1000),
    **_exact("ResNet-18 with ReLU", "resnet18_cifar", "relu"),
    **_exact("MobileNetV2 with ReLU6", "mobilenetv2_cifar", "relu6"),
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
    network = NETWORKS[name]
    arguments = {"activation": "aespa", **network.arguments}
    made = random_network(network.model or name, network.side, network.classes, block_size, arguments)
    measure_(made.model, made.images)
    given = None if profile == "calibrate" else read_profile(Path(profile))
    together = (
        worth_composing(made.model, made.images[:1], read_profile(Path(profile)), LINKS["local"]) if composed else ()
    )
    quantized = quantize(fuse(made.model, composed=together), made.images, LOG_STEP)
    he = HEConfig(**{"bounds": "measured", **network.settings})
    planned = lower_on(he, quantized, made.samples, progress_bar, given)
    write_program(folder, planned.program, {"network": name})


@torch.no_grad()
def measure_(model: nn.Module, images: Tensor) -> None:
    """Leave the statistics of these images in norms and activations."""
    keep_last_statistics_(model)
    model.train()(images)
    model.eval()
