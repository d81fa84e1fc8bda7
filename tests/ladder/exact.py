"""Networks with what they have of their own, exact by two-party computation.

One has activations, gates, pools and a group norm, one of them behind a residual; a transformer has GELU, softmax and
layer norms. A residual network has polynomials in place of some of its ReLUs, and tells its class alone.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from privcirnet.he.planning.plan_program import Target
from privcirnet.models import vit_cifar
from privcirnet.models.resnet import BasicResNet
from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.surgery import polynomial_
from tests.ladder.case import PROVED, Case, measured, real, unsettle_


class Own(nn.Module):
    """ReLU, ReLU6, SiLU and GELU, a group norm, pools that overlap or not; a gate for each channel, for each token."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.norm, self.relu = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()
        self.overlapping, self.one, self.after = nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, padding=1), nn.SiLU()
        self.grouped = nn.GroupNorm(2, 8)
        self.two, self.relu6, self.pool = nn.Conv2d(8, 8, 1), nn.ReLU6(), nn.MaxPool2d(2)
        self.squeeze, self.weigh = nn.Conv2d(8, 8, 1), nn.Linear(8, 1)
        self.flatten, self.body, self.gelu, self.head = nn.Flatten(), nn.Linear(32, 8), nn.GELU(), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.overlapping(self.relu(self.norm(self.stem(x))))
        x = self.after(self.grouped(self.one(x)) + x)
        x = self.pool(self.relu6(self.two(x)))
        x = x * torch.sigmoid(self.squeeze(x.mean((2, 3), keepdim=True)))
        tokens = x.flatten(2).mT
        return self.head(self.gelu(self.body(self.flatten(tokens * F.hardsigmoid(self.weigh(tokens))))))


def build(images: Tensor) -> nn.Module:
    """Circulant, with values far beyond 6, and rows of blocks that have steps of their own."""
    torch.manual_seed(0)
    dense = Own().double().train()
    with torch.no_grad():
        dense.two.weight.mul_(8)
        dense.one.weight[4:].div_(64)
    polynomial_(dense, real(images), activation="own")
    return unsettle_(circulant_(dense, uniform_sizes(dense, 4)), images)


EXACTLY = replace(PROVED, truncation="exact", nonlinear="exact")
EXACT = Case("exact", (1, 8, 8), build, {"one": 4, "head": 4}, target=lambda network, images: EXACTLY)


def build_transformer(images: Tensor) -> nn.Module:
    """One norm before a circulant layer that cannot have its scales, one before a dense one, one of vectors."""
    torch.manual_seed(0)
    made = vit_cifar(num_classes=4, in_chans=1, image_size=8, patch=4, depth=1, width=12, heads=2).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                nn.init.orthogonal_(parameter, gain=1.5)
            elif parameter.ndim < 4:
                parameter.add_(0.2 * torch.randn_like(parameter))
    return circulant_(made, TRANSFORMER_BLOCKS)


def _exactly(network: fx.GraphModule, images: Tensor) -> Target:
    return replace(measured()(network, images), truncation="exact", nonlinear="exact")


TRANSFORMER_BLOCKS = {"blocks.0.qkv": 4, "blocks.0.proj": 2}
TRANSFORMER = Case("transformer", (1, 8, 8), build_transformer, TRANSFORMER_BLOCKS, target=_exactly)


def build_mixed(images: Tensor) -> nn.Module:
    """AESPA within a block and behind a sum with a ReLU's result; ReLUs; and nothing between two layers."""
    torch.manual_seed(0)
    made = BasicResNet((1, 1), 1, 4, 1, 8, 8, "relu").double().train()
    chosen = {"layer1.0.act1": "aespa", "layer1.0.act2": "aespa", "layer2.0.act1": "identity"}
    polynomial_(made, real(images), chosen)
    return unsettle_(circulant_(made, {"layer2.0.conv2": 4}), images)


def _class_alone(network: fx.GraphModule, images: Tensor) -> Target:
    return replace(_exactly(network, images), answer="top1")


MIXED = Case("mixed", (1, 8, 8), build_mixed, {"layer2.0.conv2": 4}, target=_class_alone)
