"""Networks of timm after surgery: a pool in a residual's way, norms in odd places, concatenations, layers in groups."""

from collections.abc import Callable

import torch
from timm.layers.norm_act import BatchNormAct2d
from timm.models.densenet import DenseNet
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.surgery import polynomial_
from tests.ladder.case import Case, measured, real, unsettle_


def resnet() -> nn.Module:
    """Four stages, the second's first norm one with its activation inside, and a convolution of two groups."""
    channels, stem = (8, 8, 16, 16), {"stem_width": 4, "stem_type": "deep"}
    model = ResNet(BasicBlock, (1, 1, 1, 1), channels=channels, num_classes=4, in_chans=1, **stem)
    block = model.layer2[0]
    block.bn1, block.act1 = BatchNormAct2d(8), nn.Identity()
    model.layer3[0].conv2 = nn.Conv2d(16, 16, 3, padding=1, groups=2, bias=False)
    return model


def densenet() -> nn.Module:
    """Two blocks of two layers: norms in front of convolutions, each over all that was computed before."""
    return DenseNet(growth_rate=4, block_config=(2, 2), bn_size=2, num_classes=4, in_chans=1)


def build(network: Callable[[], nn.Module]) -> Callable[[Tensor], nn.Module]:
    """Circulant, its norms and activations measured and no longer what they start from."""

    def built(images: Tensor) -> nn.Module:
        torch.manual_seed(0)
        model = network().double().train()
        polynomial_(model, real(images))
        return unsettle_(circulant_(model, uniform_sizes(model, 4)), images)

    return built


_ERROR = 1e-10
"""Of folding, relative; it doubles in each square."""
RESNET = Case(
    "timm's ResNet",
    (1, 32, 32),
    build(resnet),
    {"conv1.0": 1, "layer1.0.conv1": 4, "layer3.0.conv2": 1, "layer3.0.downsample.0": 4, "fc": 4},
    folding=_ERROR * 2**11,
    target=measured(margin_bits=1),
)
DENSENET = Case(
    "timm's DenseNet",
    (1, 32, 32),
    build(densenet),
    {"features.denseblock1.denselayer1.conv1": 4, "features.denseblock2.denselayer2.conv2": 4, "classifier": 4},
    folding=_ERROR * 2**11,
    target=measured(margin_bits=1),
)
