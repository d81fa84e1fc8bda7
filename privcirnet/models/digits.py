"""A small residual network for 8 x 8 images: five weighted layers, a stride, a residual, two squares.

x -> conv 3x3 -> BN -> square -> conv 3x3 stride 2 -> BN -> [conv 3x3 -> BN -> square -> conv 1x1 -> BN] + identity
-> average pool -> linear. Every operation is one that runs encrypted.
"""

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.registry import register


class DigitsResNet(nn.Module):
    """The network of this module.

    Args:
        width: channels after the first convolution; twice as many after the stride.
        image_size: side of the (square) image in pixels; even, its half a power of two.
        activation: see `privcirnet.models.activation`.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 1,
        width: int = 16,
        image_size: int = 8,
        activation: str = "square",
    ) -> None:
        super().__init__()
        wide = 2 * width
        self.stem = nn.Conv2d(in_chans, width, 3, padding=1, bias=False)
        self.stem_norm = nn.BatchNorm2d(width)
        self.stem_square = make_activation(activation, width)
        self.down = nn.Conv2d(width, wide, 3, stride=2, padding=1, bias=False)
        self.down_norm = nn.BatchNorm2d(wide)
        self.conv1 = nn.Conv2d(wide, wide, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(wide)
        self.square = make_activation(activation, wide)
        self.conv2 = nn.Conv2d(wide, wide, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(wide)
        self.pool = nn.AvgPool2d(image_size // 2)
        self.flatten = nn.Flatten()
        self.classifier = nn.Linear(wide, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, S, S)."""
        x = self.stem_square(self.stem_norm(self.stem(x)))
        x = self.down_norm(self.down(x))
        x = x + self.norm2(self.conv2(self.square(self.norm1(self.conv1(x)))))
        return self.classifier(self.flatten(self.pool(x)))


digits_resnet = register("digits_resnet", DigitsResNet)
