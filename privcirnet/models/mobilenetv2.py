"""MobileNetV2 for 32 x 32, 64 x 64 and 224 x 224 images.

stem 3x3 -> BN -> act -> inverted residuals -> last 1x1 (1280) -> BN -> act -> average pool -> linear. An inverted
residual of expansion t: [expand 1x1 -> BN -> act ->] depthwise 3x3 -> BN -> act -> project 1x1 -> BN, plus the input
where neither size nor channels change; t = 1 has no expansion.

Source: Sandler et al., MobileNetV2 (CVPR 2018, arXiv 1801.04381), Table 2; strides and the searched layers
(``blocks.S.B.expand`` and ``.project`` from stage 1 on) as in PrivCirNet (NeurIPS 2024), Section 4. Departures: for
small images a stride of 1 in the first stages, as PrivCirNet has it; no dropout; PyTorch's initial weights; at every
width channels are rounded to the nearest multiple of 8, so that blocks of 8 divide them.
"""

import math

from torch import Tensor, nn

from privcirnet.models.registry import activation as make_activation
from privcirnet.models.registry import downsampled, register

_STAGES = ((1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1))
"""(expansion t, channels, blocks) of each stage."""


def scaled(channels: int, width: float) -> int:
    """Return channels times the width multiplier, rounded to the nearest multiple of 8, at least 8.

    >>> scaled(24, 1.0), scaled(24, 0.5), scaled(24, 0.1)
    (24, 16, 8)
    """
    return max(8, math.floor(channels * width / 8 + 0.5) * 8)


class InvertedResidual(nn.Module):
    """One block of the network.

    Args:
        expansion: t; 1 leaves the expansion out.
        activation: see `privcirnet.models.registry`.
    """

    def __init__(self, channels: int, out: int, stride: int, expansion: int, activation: str) -> None:
        super().__init__()
        hidden = expansion * channels
        self.residual, self.expanding = stride == 1 and channels == out, expansion > 1
        if self.expanding:
            self.expand = nn.Conv2d(channels, hidden, 1, bias=False)
            self.expand_norm = nn.BatchNorm2d(hidden)
            self.expand_act = make_activation(activation, hidden)
        self.depthwise = nn.Conv2d(hidden, hidden, 3, stride, padding=1, groups=hidden, bias=False)
        self.depthwise_norm = nn.BatchNorm2d(hidden)
        self.depthwise_act = make_activation(activation, hidden)
        self.project = nn.Conv2d(hidden, out, 1, bias=False)
        self.project_norm = nn.BatchNorm2d(out)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output: (N, out, H / stride, W / stride); ``x``: (N, channels, H, W)."""
        y = self.expand_act(self.expand_norm(self.expand(x))) if self.expanding else x
        y = self.depthwise_act(self.depthwise_norm(self.depthwise(y)))
        y = self.project_norm(self.project(y))
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """The network of this module.

    Args:
        strides: strides of the stem and of the first block of each of the seven stages.
        width: multiplier of the channels.
        image_size: side of the (square) image in pixels; a multiple of the product of the strides.
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the image size does not fit the strides, or the activation is unknown.
    """

    def __init__(
        self,
        strides: tuple[int, ...],
        num_classes: int = 10,
        in_chans: int = 3,
        width: float = 1.0,
        image_size: int = 32,
        activation: str = "relu6",
    ) -> None:
        super().__init__()
        side = downsampled(image_size, math.prod(strides))
        channels, last = scaled(32, width), scaled(1280, max(1.0, width))
        self.stem = nn.Conv2d(in_chans, channels, 3, strides[0], padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(channels)
        self.stem_act = make_activation(activation, channels)
        stages: list[nn.Module] = []
        for (expansion, base, blocks), first in zip(_STAGES, strides[1:], strict=True):
            sizes = [channels] + [scaled(base, width)] * blocks
            pairs = zip(sizes[:-1], sizes[1:], [first] + [1] * (blocks - 1), strict=True)
            stages.append(nn.Sequential(*(InvertedResidual(*pair, expansion, activation) for pair in pairs)))
            channels = sizes[-1]
        self.blocks = nn.Sequential(*stages)
        self.last = nn.Conv2d(channels, last, 1, bias=False)
        self.last_norm = nn.BatchNorm2d(last)
        self.last_act = make_activation(activation, last)
        self.pool = nn.AvgPool2d(side)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(last, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, S, S)."""
        x = self.blocks(self.stem_act(self.stem_norm(self.stem(x))))
        x = self.last_act(self.last_norm(self.last(x)))
        return self.classifier(self.flatten(self.pool(x)))


mobilenetv2_cifar = register("mobilenetv2_cifar", MobileNetV2, (1, 1, 1, 2, 2, 1, 2, 1))
"""MobileNetV2 for 32 x 32 images. The stem has stride 1, and the first of the searched layers reads a 32 x 32 map."""

mobilenetv2_tiny = register("mobilenetv2_tiny", MobileNetV2, (2, 1, 1, 2, 2, 1, 2, 1), num_classes=200, image_size=64)
"""MobileNetV2 for Tiny ImageNet's 64 x 64 images. The stem has stride 2; the rest is as in `mobilenetv2_cifar`."""

mobilenetv2_imagenet = register(
    "mobilenetv2_imagenet", MobileNetV2, (2, 1, 2, 2, 2, 1, 2, 1), num_classes=1000, image_size=224
)
"""MobileNetV2 for 224 x 224 images, with the strides of MobileNetV2's own paper."""
