"""Networks of timm after surgery: a pool in a residual's way, norms in odd places, concatenations, layers in groups,
gates, channels that are shuffled and sliced, tokens that are transposed.
"""

from collections.abc import Callable

import torch
from timm.layers import LayerScale2d
from timm.layers.norm_act import BatchNormAct2d
from timm.models._efficientnet_blocks import InvertedResidual, SqueezeExcite
from timm.models.densenet import DenseNet
from timm.models.mlp_mixer import MlpMixer
from timm.models.resnet import BasicBlock, ResNet
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from privcirnet.passes.convert import circulant_, uniform_sizes
from privcirnet.passes.surgery import polynomial_
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


class Gated(nn.Module):
    """Squeeze-and-excitation, channels shuffled in groups and sliced, a square that is added and concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.block = nn.Conv2d(1, 8, 3, stride=2, padding=1), InvertedResidual(8, 8, se_layer=SqueezeExcite)
        self.conv1, self.conv2 = nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.act, self.scale = nn.ReLU(), LayerScale2d(8, init_values=0.5)
        self.last, self.head = nn.Conv2d(12, 8, 1), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.act(self.conv1(self.block(self.stem(x))))
        n, c, h, w = x.shape
        shuffled = x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        y = self.act(self.scale(self.conv2(shuffled)) + x)
        return self.head(self.act(self.last(torch.cat([x[:, 4:], y], 1))).mean((2, 3)))


def vit() -> nn.Module:
    """Class token, positions, softmax attention, layer norms, branches that are scaled."""
    sizes = {"embed_dim": 8, "depth": 2, "num_heads": 2, "mlp_ratio": 2, "init_values": 0.5}
    return VisionTransformer(8, 4, in_chans=1, num_classes=4, **sizes)


def mixer() -> nn.Module:
    """Linear layers over places, norms between them, a mean over tokens."""
    model = MlpMixer(num_classes=4, img_size=16, in_chans=1, patch_size=4, num_blocks=2, embed_dim=8)
    nn.init.normal_(model.head.weight)  # timm's is zero
    return model


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


def case(name: str, network: Callable[[], nn.Module], side: int, blocks: dict[str, int], squares: int) -> Case:
    """A network after surgery with images of one channel, and so many squares in a row."""
    folding, target = _ERROR * 2**squares, measured(margin_bits=1)
    return Case(name, (1, side, side), build(network), blocks, folding=folding, target=target)


RESNET = case(
    "timm's ResNet",
    resnet,
    32,
    {"conv1.0": 1, "layer1.0.conv1": 4, "layer3.0.conv2": 1, "layer3.0.downsample.0": 4, "fc": 4},
    squares=11,
)
DENSENET = case(
    "timm's DenseNet",
    densenet,
    32,
    {"features.denseblock1.denselayer1.conv1": 4, "features.denseblock2.denselayer2.conv2": 4, "classifier": 4},
    squares=11,
)
GATED = case(
    "gates and moves",
    Gated,
    16,
    {"stem": 1, "block.conv_pw": 4, "block.se.conv_reduce": 2, "conv2": 1, "head": 4},
    squares=8,
)
VIT = case(
    "timm's ViT",
    vit,
    8,
    {"patch_embed.proj": 1, "blocks.0.attn.qkv": 4, "blocks.1.mlp.fc2": 4, "head": 4},
    squares=8,
)
MIXER = case(
    "timm's MLP-Mixer",
    mixer,
    16,
    {"stem.proj": 1, "blocks.0.mlp_tokens.fc1": 4, "blocks.1.mlp_channels.fc2": 4, "head": 4},
    squares=8,
)
