"""timm's ResNet after surgery: a pool in a residual's way, activations in batch norms, layers in groups."""

import torch
from timm.layers.norm_act import BatchNormAct2d
from timm.models.resnet import BasicBlock, ResNet
from torch import Tensor, nn

from privcirnet.nn.activations import Aespa
from privcirnet.nn.candidates import uniform_sizes
from privcirnet.nn.convert import circulant_
from privcirnet.surgery import polynomial_
from tests.ladder.case import Case, measured, real

BLOCKS = {"conv1": 1, "layer1.0.conv1": 4, "layer3.0.downsample.0": 4, "fc": 4}
_SQUARES = 9


def network() -> nn.Module:
    """ResNet of four stages with ReLU, the second stage's first norm one with its activation inside."""
    torch.manual_seed(0)
    model = ResNet(BasicBlock, (1, 1, 1, 1), channels=(8, 8, 16, 16), stem_width=8, num_classes=4, in_chans=1)
    block = model.layer2[0]
    block.bn1, block.act1 = BatchNormAct2d(8), nn.Identity()
    return model


def build(images: Tensor) -> nn.Module:
    """Circulant, its norms and activations measured and no longer what they start from."""
    model = network().double().train()
    polynomial_(model, real(images))
    circulant_(model, uniform_sizes(model, 4))
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.add_(0.2 * torch.randn_like(module.weight))
                module.bias.add_(0.2 * torch.randn_like(module.bias))
            elif isinstance(module, Aespa):
                module.log_gamma.add_(0.2 * torch.randn_like(module.log_gamma))
        for _ in range(60):
            model(real(images))
    return model


FROM_TIMM = Case(
    "from timm",
    (1, 32, 32),
    build,
    BLOCKS,
    folding=1e-10 * 2**_SQUARES,  # an error doubles in each square
    target=measured(margin_bits=1),
)
