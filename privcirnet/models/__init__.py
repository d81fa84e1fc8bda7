"""Networks that timm does not have: ``ENTRY_POINTS["digits_resnet"]()``, or timm's after :func:`register_with_timm`."""

from privcirnet.models.fitnet import FitNet, fitnet
from privcirnet.models.mobilenetv2 import MobileNetV2, mobilenetv2_cifar, mobilenetv2_imagenet, mobilenetv2_tiny
from privcirnet.models.registry import ENTRY_POINTS, register_with_timm
from privcirnet.models.resnet import ResNet18, ResNet20, resnet18_cifar, resnet18_tiny, resnet20_cifar
from privcirnet.models.small import (
    DigitsResNet,
    LolaCifar,
    MinionnCifar,
    MnistMlp,
    OneConvolution,
    digits_resnet,
    lola_cifar,
    lola_digits,
    lola_mnist,
    minionn_cifar,
    mnist_mlp,
    tutorial_mnist,
)
from privcirnet.models.vit import VisionTransformer, vit_cifar, vit_tiny_imagenet

__all__ = [
    "ENTRY_POINTS",
    "DigitsResNet",
    "FitNet",
    "LolaCifar",
    "MinionnCifar",
    "MnistMlp",
    "MobileNetV2",
    "OneConvolution",
    "ResNet18",
    "ResNet20",
    "VisionTransformer",
    "digits_resnet",
    "fitnet",
    "lola_cifar",
    "lola_digits",
    "lola_mnist",
    "minionn_cifar",
    "mnist_mlp",
    "mobilenetv2_cifar",
    "mobilenetv2_imagenet",
    "mobilenetv2_tiny",
    "register_with_timm",
    "resnet18_cifar",
    "resnet18_tiny",
    "resnet20_cifar",
    "tutorial_mnist",
    "vit_cifar",
    "vit_tiny_imagenet",
]
