"""Networks of torchvision after surgery: where all of them is polynomial before, their values stay."""

import copy

import pytest
import torch
import torchvision
from torch import nn
from torch.testing import assert_close
from torchvision.ops import SqueezeExcitation

from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.edit import TRAIN

LARGE = "efficientnet_b0", "convnext_tiny"

_SKIPPED = nn.ReLU | nn.SiLU | nn.GELU | nn.Sigmoid | nn.LayerNorm


def exact(model: nn.Module) -> nn.Module:
    """Without what is no polynomial; not with squares instead, as so many in a row leave the range of floats."""
    for name, module in list(model.named_modules()):
        if isinstance(module, _SKIPPED):
            model.set_submodule(name, nn.Identity())
        elif isinstance(module, nn.MaxPool2d):
            model.set_submodule(name, nn.AvgPool2d(2))
        elif isinstance(module, SqueezeExcitation):  # gates near 1: sixteen products in a row leave the range too
            nn.init.normal_(module.fc2.weight, std=1e-3)
            nn.init.ones_(module.fc2.bias)
    return model


@pytest.mark.parametrize(
    "name", ["shufflenet_v2_x0_5", *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
)
def test_what_is_polynomial_already_computes_the_same(name):
    torch.manual_seed(0)
    model = exact(torchvision.models.get_model(name, num_classes=4)).double().eval()
    images = torch.rand(2, 3, 32, 32).double()
    with torch.no_grad():
        for module in model.modules():  # statistics of these images keep values near 1
            if isinstance(module, nn.BatchNorm2d):
                module.train().momentum = 1.0
        model(images)
        expected = copy.deepcopy(model).eval()(images)
        assert not [change for change in polynomial_(model, images) if change.effect == TRAIN]
        assert expected.abs().max() > 0
        assert_close(model.eval()(images), expected, rtol=1e-4, atol=1e-6 * expected.abs().max().item())


@pytest.mark.parametrize("name", [pytest.param("shufflenet_v2_x0_5", marks=pytest.mark.slow), *LARGE])
def test_networks_of_torchvision_become_polynomials(name):
    torch.manual_seed(0)
    model, images = torchvision.models.get_model(name, num_classes=4), torch.rand(2, 3, 64, 64)
    assert {change.effect for change in polynomial_(model, images)} >= {TRAIN}
    assert model.eval()(images).shape == (2, 4)
