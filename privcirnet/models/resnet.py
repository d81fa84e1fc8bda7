"""Residual networks: ResNet-18 for 32 x 32 and 64 x 64 images, and ResNet-20, which bootstrapped CKKS is measured on.

stem 3x3 -> BN -> act -> stages of basic blocks -> average pool -> linear. A basic block is
conv1 3x3 -> BN -> act -> conv2 3x3 -> BN, plus the input (through downsample 1x1 -> BN where the stride is 2), -> act.

Source: He et al., Deep Residual Learning (CVPR 2016, arXiv 1512.03385). PyTorch's initial weights.
"""

from collections.abc import Sequence

from torch import Tensor, nn

from privcirnet.models.registry import activation as make_activation
from privcirnet.models.registry import downsampled, register


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut.

    Args:
        stride: stride of the first convolution; 1 needs channels = out.
        activation: see `privcirnet.models.registry`.
    """

    def __init__(self, channels: int, out: int, stride: int, activation: str) -> None:
        super().__init__()
        changes = stride > 1
        self.conv1 = nn.Conv2d(channels, out, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(out)
        self.act1 = make_activation(activation, out)
        self.downsample = nn.Conv2d(channels, out, 1, stride, bias=False) if changes else nn.Identity()
        self.downsample_norm = nn.BatchNorm2d(out) if changes else nn.Identity()
        self.conv2 = nn.Conv2d(out, out, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(out)
        self.act2 = make_activation(activation, out)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output: (N, out, H / stride, W / stride); ``x``: (N, channels, H, W)."""
        y = self.act1(self.norm1(self.conv1(x)))
        shortcut = self.downsample_norm(self.downsample(x))
        return self.act2(self.norm2(self.conv2(y)) + shortcut)


class BasicResNet(nn.Module):
    """A stem, stages of basic blocks, an average pool and a classifier.

    Args:
        stages: basic blocks of each stage; every stage but the first has a stride of 2.
        stem_stride: 1 or 2.
        width: channels of the first stage, doubled by each stage after it.
        image_size: side of the (square) image in pixels; a multiple of all strides together.
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the image size does not fit the strides, or the activation is unknown.
    """

    def __init__(  # noqa: PLR0913, PLR0917
        self,
        stages: Sequence[int],
        stem_stride: int,
        num_classes: int,
        in_chans: int,
        width: int,
        image_size: int,
        activation: str,
    ) -> None:
        super().__init__()
        side = downsampled(image_size, stem_stride << (len(stages) - 1))
        self.stem = nn.Conv2d(in_chans, width, 3, stem_stride, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stem_act = make_activation(activation, width)
        self._stages, channels = [f"layer{number}" for number in range(1, len(stages) + 1)], width
        for number, (name, blocks) in enumerate(zip(self._stages, stages, strict=True)):
            out, stride = width << number, 2 if number else 1
            first = BasicBlock(channels, out, stride, activation)
            rest = (BasicBlock(out, out, 1, activation) for _ in range(blocks - 1))
            self.add_module(name, nn.Sequential(first, *rest))
            channels = out
        self.pool = nn.AvgPool2d(side)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(channels, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, S, S)."""
        x = self.stem_act(self.stem_norm(self.stem(x)))
        for name in self._stages:
            x = self.get_submodule(name)(x)
        return self.classifier(self.flatten(self.pool(x)))


class ResNet18(BasicResNet):
    """ResNet-18: four stages of two blocks.

    Searched layers are as in PrivCirNet (NeurIPS 2024), Section 4: every convolution of the blocks. Departures: a 3x3
    stem and no max pooling, which would need comparisons on encrypted numbers. For Tiny ImageNet the stem's stride of 2
    takes the place of the pooling: its blocks then see the 32 x 32 maps of the CIFAR network and cost the same.

    Args:
        stem_stride: 1 or 2.
        width: channels of the first stage, doubled by each stage after it.
        image_size: side of the (square) image in pixels; a multiple of 8 stem_stride.
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the image size does not fit the strides, or the activation is unknown.
    """

    def __init__(
        self,
        stem_stride: int,
        num_classes: int = 10,
        in_chans: int = 3,
        width: int = 64,
        image_size: int = 32,
        activation: str = "relu",
    ) -> None:
        super().__init__((2, 2, 2, 2), stem_stride, num_classes, in_chans, width, image_size, activation)


resnet18_cifar = register("resnet18_cifar", ResNet18, 1)
"""ResNet-18 for 32 x 32 images."""

resnet18_tiny = register("resnet18_tiny", ResNet18, 2, num_classes=200, image_size=64)
"""ResNet-18 for Tiny ImageNet's 64 x 64 images, with a stem of stride 2."""


class ResNet20(BasicResNet):
    """ResNet-20: three stages of three blocks (16, 32 and 64 channels), 19 convolutions of 3 x 3.

    With ReLU it has 272,474 parameters. Source: Section 4.2 of the paper. Departure: the two shortcuts that change the
    shape are convolutions of 1 x 1 (its option B), as in the networks of E. Lee et al. (Low-Complexity Deep
    Convolutional Neural Networks on Fully Homomorphic Encryption, ICML 2022), not zeros (option A).

    Args:
        width: channels of the first stage, doubled by each stage after it.
        blocks: basic blocks of each stage; 3 for ResNet-20, 6 blocks + 2 layers in all.
        image_size: side of the (square) image in pixels; a multiple of 4.
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the image size does not fit the strides, or the activation is unknown.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        width: int = 16,
        blocks: int = 3,
        image_size: int = 32,
        activation: str = "relu",
    ) -> None:
        super().__init__((blocks,) * 3, 1, num_classes, in_chans, width, image_size, activation)


resnet20_cifar = register("resnet20_cifar", ResNet20)
"""ResNet-20 for 32 x 32 images."""
