"""ResNet-20 for 32 x 32 images, the network that bootstrapped CKKS is measured on.

stem 3x3 -> BN -> act -> three stages of three basic blocks (16, 32 and 64 channels; 32 x 32, 16 x 16 and 8 x 8 maps) ->
average pool -> linear. 19 convolutions of 3 x 3, 272,474 parameters with ReLU.

Source: He et al., Deep Residual Learning (CVPR 2016, arXiv 1512.03385), Section 4.2. Departure: the two shortcuts that
change the shape are convolutions of 1 x 1 (the paper's option B), as in the networks of E. Lee et al. (Low-Complexity
Deep Convolutional Neural Networks on Fully Homomorphic Encryption, ICML 2022), not zeros (option A).
"""

from typing import Any

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.entry import downsampled, own_arguments
from privcirnet.models.registry import register
from privcirnet.models.resnet18 import BasicBlock


class ResNet20(nn.Module):
    """The network of this module.

    Args:
        num_classes: number of logits.
        in_chans: channels of the image.
        width: channels of the first stage, doubled by each stage after it.
        blocks: basic blocks of each stage; 3 for ResNet-20, 6 blocks + 2 layers in all.
        image_size: side of the (square) image in pixels; a multiple of 4.
        activation: see `privcirnet.models.activation`.

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
        super().__init__()
        side = downsampled(image_size, 4)
        self.stem = nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stem_act = make_activation(activation, width)
        self.layer1 = self._stage(width, width, 1, blocks, activation)
        self.layer2 = self._stage(width, 2 * width, 2, blocks, activation)
        self.layer3 = self._stage(2 * width, 4 * width, 2, blocks, activation)
        self.pool = nn.AvgPool2d(side)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(4 * width, num_classes)

    @staticmethod
    def _stage(channels: int, out: int, stride: int, blocks: int, activation: str) -> nn.Sequential:
        first = BasicBlock(channels, out, stride, activation)
        return nn.Sequential(first, *(BasicBlock(out, out, 1, activation) for _ in range(blocks - 1)))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images.

        Args:
            x: (N, in_chans, S, S).

        Returns:
            (N, num_classes).
        """
        x = self.stem_act(self.stem_norm(self.stem(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.classifier(self.flatten(self.pool(x)))


@register
def resnet20_cifar(pretrained: bool = False, **kwargs: Any) -> ResNet20:
    """Return the network for 32 x 32 images.

    Args:
        pretrained: there are no pretrained weights, so it must be False.
        kwargs: arguments of :class:`ResNet20`.

    Raises:
        RuleError: pretrained weights were asked for, or an argument does not fit the network.
    """
    return ResNet20(**own_arguments("resnet20_cifar", pretrained, kwargs))
