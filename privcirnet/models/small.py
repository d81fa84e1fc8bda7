"""Small networks: one for 8 x 8 digits, and those of other systems' papers, tutorials and benchmarks.

They run in seconds, and they are what encrypted inference is compared on.
"""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from privcirnet.errors import RuleError
from privcirnet.models.registry import activation as make_activation
from privcirnet.models.registry import downsampled, register


class DigitsResNet(nn.Module):
    """A small residual network for 8 x 8 images: five weighted layers, a stride, a residual, two squares.

    x -> conv 3x3 -> BN -> square -> conv 3x3 stride 2 -> BN -> [conv 3x3 -> BN -> square -> conv 1x1 -> BN] + identity
    -> average pool -> linear. Every operation is one that runs encrypted.

    Args:
        width: channels after the first convolution; twice as many after the stride.
        image_size: side of the (square) image in pixels; even, its half a power of two.
        activation: see `privcirnet.models.registry`.
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


class MnistMlp(nn.Module):
    """The network of HomomorphicEncryption.org's benchmark of encrypted inference, for 28 x 28 images.

    784 pixels -> linear 128 -> square -> linear 64 -> square -> linear 10.

    Source: github.com/fhe-benchmarking/ml-inference, harness/mnist. It has ReLU; squares take its place here.

    Args:
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__()
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(in_chans * 28 * 28, 128)
        self.act1 = make_activation(activation, 128, channels_last=True)
        self.fc2 = nn.Linear(128, 64)
        self.act2 = make_activation(activation, 64, channels_last=True)
        self.fc3 = nn.Linear(64, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, 28, 28)."""
        return self.fc3(self.act2(self.fc2(self.act1(self.fc1(self.flatten(x))))))


mnist_mlp = register("mnist_mlp", MnistMlp)


class Sizes(NamedTuple):
    """Sizes of a network.

    Attributes:
        hidden: channels between the linear layers.
    """

    maps: int
    kernel: int
    stride: int
    padding: int
    side: int
    hidden: int


class OneConvolution(nn.Module):
    """Convolution -> activation -> linear -> activation -> linear, for grey images.

    | network | image | convolution | values | linear |
    |---|---|---|---|---|
    | `lola_mnist` | 28 x 28 | 5x5 stride 2, padded by one | 5 maps of 13 x 13 | 100, 10 |
    | `lola_digits` | 8 x 8 | 3x3 stride 2, padded by one | 5 maps of 4 x 4 | 40, 10 |
    | `tutorial_mnist` | 28 x 28 | 7x7 stride 3 | 4 maps of 8 x 8 | 64, 10 |

    Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019, arXiv 1812.10659),
    whose convolution does not reach the last row and column; Falcon (Lou et al., NeurIPS 2020) makes its largest layer
    circulant. `lola_digits` is the same for scikit-learn's digits. `tutorial_mnist` is the network of TenSEAL's
    tutorial 4, "Encrypted Convolution on MNIST" (Benaissa et al., arXiv 2104.03152, measure it too).

    Args:
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, sizes: Sizes, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__()
        self.conv = nn.Conv2d(in_chans, sizes.maps, sizes.kernel, sizes.stride, sizes.padding)
        self.act1 = make_activation(activation, sizes.maps)
        self.flatten = nn.Flatten()
        self.fc1 = nn.Linear(sizes.maps * sizes.side**2, sizes.hidden)
        self.act2 = make_activation(activation, sizes.hidden, channels_last=True)
        self.fc2 = nn.Linear(sizes.hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, H, W)."""
        x = self.flatten(self.act1(self.conv(x)))
        return self.fc2(self.act2(self.fc1(x)))


lola_mnist = register("lola_mnist", OneConvolution, Sizes(5, 5, 2, 1, 13, 100))
lola_digits = register("lola_digits", OneConvolution, Sizes(5, 3, 2, 1, 4, 40))
tutorial_mnist = register("tutorial_mnist", OneConvolution, Sizes(4, 7, 3, 0, 8, 64))


class LolaCifar(nn.Module):
    """LoLa's network for CIFAR-10, which runs without interaction: two convolutions and a linear layer.

    32 x 32 x 3: conv 8x8 stride 2, 83 maps of 14 x 14 (16268 values) -> square -> conv 6x6 stride 2, 163 maps of 5 x 5
    (4075) -> square -> linear 10. Falcon makes its largest layer circulant.

    Source: as of `OneConvolution`, and Falcon's Tables 6 and 9. The network is the one of the papers; LoLa's public
    code has a second convolution of 10 x 10 with 112 maps instead. (Falcon's Table 9 prints f^2 = 25 for it; a kernel
    of 5 x 5 would have the same 4075 outputs.) Images are padded by one on every side.

    Args:
        activation: see `privcirnet.models.registry`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 3, activation: str = "square") -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, 83, 8, stride=2, padding=1)
        self.act1 = make_activation(activation, 83)
        self.conv2 = nn.Conv2d(83, 163, 6, stride=2)
        self.act2 = make_activation(activation, 163)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(163 * 5 * 5, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of images: (N, num_classes); ``x``: (N, in_chans, 32, 32)."""
        x = self.act2(self.conv2(self.act1(self.conv1(x))))
        return self.fc(self.flatten(x))


lola_cifar = register("lola_cifar", LolaCifar)


_KERNELS = (3, 3, 3, 3, 3, 1, 1)
_POOLED = (2, 4)
"""Convolutions, counted from 1, whose activations are averaged in windows of 2 x 2."""


class MinionnCifar(nn.Sequential):
    """MiniONN's network for CIFAR-10, on which ENSEI measures precisions: seven convolutions and a linear layer.

    32 x 32: conv 3x3, conv 3x3, pool -> 16 x 16: conv 3x3, conv 3x3, pool -> 8 x 8: conv 3x3, conv 1x1, conv 1x1 to 16
    maps -> linear 1024 to 10; 64 maps elsewhere, an activation after every convolution.

    Source: Liu et al., Oblivious Neural Network Predictions via MiniONN Transformations (CCS 2017), Figure 13. ENSEI
    (CVPR 2020), Table 1 and section 6.6: its High-Square has squares for the second and fifth ReLU.

    Args:
        image_size: side of the image, a multiple of 4.
        width: maps of the convolutions but the last.
        activation: see `privcirnet.models.registry`.
        squares: activations, counted from 1, that are squares instead; [2, 5] is ENSEI's High-Square.
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        image_size: int = 32,
        width: int = 64,
        activation: str = "relu",
        squares: Sequence[int] = (),
    ) -> None:
        super().__init__()
        count = len(_KERNELS)
        if not set(squares) <= set(range(1, count + 1)):
            rule = f"squares must be among the network's activations, 1 to {count}"
            raise RuleError(rule, got=list(squares), remedy="use [2,5]")
        for number, kernel in enumerate(_KERNELS, 1):
            channels = width if number < count else width // 4
            self.add_module(f"conv{number}", nn.Conv2d(in_chans, channels, kernel, padding=kernel // 2))
            name = "square" if number in squares else activation
            self.add_module(f"act{number}", make_activation(name, channels))
            if number in _POOLED:
                self.add_module(f"pool{number}", nn.AvgPool2d(2))
            in_chans = channels
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(in_chans * downsampled(image_size, 4) ** 2, num_classes)


minionn_cifar = register("minionn_cifar", MinionnCifar)
