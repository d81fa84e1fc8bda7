"""ResNet-20: the layers of its paper, with a convolution in two shortcuts."""

import pytest
import torch
from torch import nn

from privcirnet.errors import RuleError
from privcirnet.models import resnet20_cifar
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.fuse import fuse


def test_its_layers_are_those_of_the_paper():
    model = resnet20_cifar()
    convolutions = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d)]
    kernels = [layer for layer in convolutions if layer.kernel_size == (3, 3)]
    assert [layer.out_channels for layer in kernels] == [16] * 7 + [32] * 6 + [64] * 6
    assert [layer.out_channels for layer in convolutions if layer.kernel_size == (1, 1)] == [32, 64]
    shortcuts = 16 * 32 + 2 * 32 + 32 * 64 + 2 * 64
    assert sum(p.numel() for p in model.parameters()) == 269_722 + shortcuts


@torch.no_grad()
def test_squares_take_the_place_of_its_activations():
    torch.manual_seed(0)
    model, x = (
        resnet20_cifar(num_classes=7, width=4, blocks=2, image_size=8, activation="aespa"),
        torch.rand(2, 3, 8, 8),
    )
    assert sum(isinstance(module, Aespa2d) for module in model.modules()) == 13
    assert model.eval()(x).shape == (2, 7)
    torch.testing.assert_close(fuse(model)(x), model(x), rtol=1e-4, atol=1e-5)


def test_an_image_that_does_not_fit_is_refused():
    with pytest.raises(RuleError, match="strides must divide the image size: got 10 for a stride of 4"):
        resnet20_cifar(image_size=10)
