"""LoLa's two networks, small enough to run without interaction; Falcon (2020) makes their largest layer circulant.

A third one of the same structure is for scikit-learn's digits, 8 x 8: conv 3x3 stride 2, 5 maps of 4 x 4 (80 values) ->
square -> linear 40 -> square -> linear 10.

MNIST, 28 x 28: conv 5x5 stride 2, 5 maps of 13 x 13 (845 values) -> square -> linear 100 -> square -> linear 10.
CIFAR-10, 32 x 32 x 3: conv 8x8 stride 2, 83 maps of 14 x 14 (16268) -> square -> conv 6x6 stride 2, 163 maps of 5 x 5
(4075) -> square -> linear 10.

Source: Brutzkus, Elisha, Gilad-Bachrach, Low Latency Privacy Preserving Inference (ICML 2019, arXiv 1812.10659); Lou et
al., Falcon (NeurIPS 2020), Tables 6 and 9. The CIFAR network is the one of the papers; LoLa's public code has a second
convolution of 10 x 10 with 112 maps instead. (Falcon's Table 9 prints f^2 = 25 for it; a kernel of 5 x 5 would have the
same 4075 outputs.) Images are padded by one on every side; MNIST's convolution does not reach the last row and column.
"""

from typing import Any

from torch import Tensor, nn

from privcirnet.models.activation import activation as make_activation
from privcirnet.models.entry import own_arguments
from privcirnet.models.one_convolution import OneConvolution
from privcirnet.models.registry import register


class LolaMnist(OneConvolution):
    """A convolution and two linear layers, for 28 x 28 images.

    Args:
        num_classes: number of logits.
        in_chans: channels of the image.
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__(nn.Conv2d(in_chans, 5, 5, stride=2, padding=1), 5 * 13 * 13, 100, num_classes, activation)


class LolaDigits(OneConvolution):
    """A convolution and two linear layers, for 8 x 8 images.

    Args:
        num_classes: number of logits.
        in_chans: channels of the image.
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__(nn.Conv2d(in_chans, 5, 3, stride=2, padding=1), 5 * 4 * 4, 40, num_classes, activation)


class LolaCifar(nn.Module):
    """Two convolutions and a linear layer, for 32 x 32 images.

    Args:
        num_classes: number of logits.
        in_chans: channels of the image.
        activation: see `privcirnet.models.activation`.

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
        """Return the logits of images.

        Args:
            x: (N, in_chans, 32, 32).

        Returns:
            (N, num_classes).
        """
        x = self.act2(self.conv2(self.act1(self.conv1(x))))
        return self.fc(self.flatten(x))


@register
def lola_mnist(pretrained: bool = False, **kwargs: Any) -> LolaMnist:
    """Return LoLa's MNIST network.

    Args:
        pretrained: there are no pretrained weights, so it must be False.
        kwargs: arguments of :class:`LolaMnist`.

    Raises:
        RuleError: pretrained weights were asked for, or the activation is unknown.
    """
    return LolaMnist(**own_arguments("lola_mnist", pretrained, kwargs))


@register
def lola_digits(pretrained: bool = False, **kwargs: Any) -> LolaDigits:
    """Return the network for digits.

    Args:
        pretrained: there are no pretrained weights, so it must be False.
        kwargs: arguments of :class:`LolaDigits`.

    Raises:
        RuleError: pretrained weights were asked for, or the activation is unknown.
    """
    return LolaDigits(**own_arguments("lola_digits", pretrained, kwargs))


@register
def lola_cifar(pretrained: bool = False, **kwargs: Any) -> LolaCifar:
    """Return LoLa's CIFAR-10 network as its paper prints it.

    Args:
        pretrained: there are no pretrained weights, so it must be False.
        kwargs: arguments of :class:`LolaCifar`.

    Raises:
        RuleError: pretrained weights were asked for, or the activation is unknown.
    """
    return LolaCifar(**own_arguments("lola_cifar", pretrained, kwargs))
