"""The network that tutorials of encrypted inference measure: a convolution and two linear layers, on MNIST.

28 x 28: conv 7x7 stride 3 without padding, 4 maps of 8 x 8 (256 values) -> square -> linear 64 -> square -> linear 10.

Source: TenSEAL's tutorial 4, "Encrypted Convolution on MNIST" (Benaissa et al., arXiv 2104.03152, measure it too).
"""

from typing import Any

from torch import nn

from privcirnet.models.entry import own_arguments
from privcirnet.models.one_convolution import OneConvolution
from privcirnet.models.registry import register


class TutorialMnist(OneConvolution):
    """A convolution and two linear layers, for 28 x 28 images.

    Args:
        num_classes: number of logits.
        in_chans: channels of the image.
        activation: see `privcirnet.models.activation`.

    Raises:
        RuleError: the activation is unknown.
    """

    def __init__(self, num_classes: int = 10, in_chans: int = 1, activation: str = "square") -> None:
        super().__init__(nn.Conv2d(in_chans, 4, 7, stride=3), 4 * 8 * 8, 64, num_classes, activation)


@register
def tutorial_mnist(pretrained: bool = False, **kwargs: Any) -> TutorialMnist:
    """Return the tutorial's network.

    Args:
        pretrained: there are no pretrained weights, so it must be False.
        kwargs: arguments of :class:`TutorialMnist`.

    Raises:
        RuleError: pretrained weights were asked for, or the activation is unknown.
    """
    return TutorialMnist(**own_arguments("tutorial_mnist", pretrained, kwargs))
