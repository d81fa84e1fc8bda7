"""A small vision transformer: tokens, batch norms before layers, polynomial attention."""

from functools import partial

import torch
from torch import Tensor, nn

from privcirnet.models import vit_cifar
from privcirnet.passes.convert import circulant_
from tests.ladder.case import Case, measured, real

SIZE = {"image_size": 8, "patch": 4, "depth": 2, "width": 16, "heads": 2}
CIRCULANT = {
    **{"blocks.0.qkv": 4, "blocks.0.proj": 2, "blocks.0.fc1": 8, "blocks.0.fc2": 4, "head": 2, "patch_embed": 1},
    **{"blocks.1.qkv": 8, "blocks.1.proj": 16, "blocks.1.fc1": 2, "blocks.1.fc2": 16},
}


def build(images: Tensor, blocks: dict[str, int], activation: str) -> nn.Module:
    """A network whose norms have seen data, its constants away from what they start with."""
    torch.manual_seed(0)
    options = {"norm": "batch", "attention": "polynomial", "activation": activation}
    made = vit_cifar(num_classes=4, in_chans=1, **SIZE, **options).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                nn.init.orthogonal_(parameter)
            elif parameter.ndim < 4:
                parameter.add_(0.2 * torch.randn_like(parameter))
    circulant_(made, blocks)
    for _ in range(30):
        made(real(images))
    return made


def _case(name: str, blocks: dict[str, int], activation: str) -> Case:
    make = partial(build, blocks=blocks, activation=activation)
    return Case(f"vit-{name}-{activation}", (1, 8, 8), make, blocks, target=measured())


VITS = [_case("dense", {}, "square"), _case("circulant", CIRCULANT, "square"), _case("circulant", CIRCULANT, "aespa")]
