"""Small networks for grey images from the literature: a convolution and two linear layers, activations between them.

| network | image | convolution | values | linear |
|---|---|---|---|---|
| `lola_mnist` | 28 x 28 | 5x5 stride 2, padded by one | 5 maps of 13 x 13 | 100, 10 |
| `lola_digits` | 8 x 8 | 3x3 stride 2, padded by one | 5 maps of 4 x 4 | 40, 10 |
| `tutorial_mnist` | 28 x 28 | 7x7 stride 3 | 4 maps of 8 x 8 | 64, 10 |

Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019, arXiv 1812.10659), whose
convolution does not reach the last row and column; Falcon (Lou et al., NeurIPS 2020) makes its largest layer circulant.
`lola_digits` is the same for scikit-learn's digits. `tutorial_mnist` is the network of TenSEAL's tutorial 4, "Encrypted
Convolution on MNIST" (Benaissa et al., arXiv 2104.03152, measure it too).
"""

from typing import NamedTuple

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.registry import register


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
    """Convolution -> activation -> linear -> activation -> linear.

    Args:
        activation: see `privcirnet.models.activation`.

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
