"""ResNet-20 for 32 x 32 images, the network that bootstrapped CKKS is measured on.

stem 3x3 -> BN -> act -> three stages of three basic blocks (16, 32 and 64 channels; 32 x 32, 16 x 16 and 8 x 8 maps) ->
average pool -> linear. 19 convolutions of 3 x 3, 272,474 parameters with ReLU.

Source: He et al., Deep Residual Learning (CVPR 2016, arXiv 1512.03385), Section 4.2. Departure: the two shortcuts that
change the shape are convolutions of 1 x 1 (the paper's option B), as in the networks of E. Lee et al. (Low-Complexity
Deep Convolutional Neural Networks on Fully Homomorphic Encryption, ICML 2022), not zeros (option A).
"""

from privcirnet.models.registry import register
from privcirnet.models.resnet18 import BasicResNet


class ResNet20(BasicResNet):
    """The network of this module.

    Args:
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
        super().__init__((blocks,) * 3, 1, num_classes, in_chans, width, image_size, activation)


resnet20_cifar = register("resnet20_cifar", ResNet20)
"""ResNet-20 for 32 x 32 images."""
