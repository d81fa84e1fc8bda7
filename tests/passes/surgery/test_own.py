"""Networks keep what runs exactly, however it is written."""

import re

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from timm.layers import GroupNormAct, LayerNormAct2d
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa2d
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import check_operations
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.edit import TRAIN
from tests.nn.networks import Written as Called


class Written(nn.Module):
    """Activations and pools as functions, methods and clamps."""

    def __init__(self, last: nn.Module) -> None:
        super().__init__()
        self.conv, self.relu, self.last, self.fc = nn.Conv2d(3, 8, 1), nn.ReLU(inplace=True), last, nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv(x)), 3, stride=2, padding=1)
        x = F.adaptive_max_pool2d(torch.clamp(x, 0, 6) + x.relu(), (4, 4))
        x = F.max_pool2d(self.relu(x), 3, stride=2, ceil_mode=True)
        return self.fc(torch.flatten(self.last(x).mean((2, 3)), 1))


def kinds(model: nn.Module) -> list[str]:
    """Of what keeps comparisons, in order."""
    return [type(m).__name__ for m in model.modules() if isinstance(m, nn.ReLU | nn.ReLU6 | nn.MaxPool2d)]


def test_functions_become_the_modules_that_they_are():
    model, images = Written(nn.Hardtanh(0, 6)), torch.rand(2, 3, 16, 16)
    before = model(images)
    changes = polynomial_(model, images, activation="own")
    assert not any(change.effect for change in changes)
    assert sorted(kinds(model)) == [*["MaxPool2d"] * 3, *["ReLU"] * 3, *["ReLU6"] * 2]
    assert_close(model(images), before)


@pytest.mark.parametrize(
    "build",
    [
        lambda: torchvision.models.resnet18(num_classes=4),
        lambda: timm.create_model("resnet18", num_classes=4),
        lambda: timm.create_model("mobilenetv2_035", num_classes=4),
        lambda: timm.create_model("mobilenetv3_small_050", num_classes=4),
        lambda: torchvision.models.mobilenet_v3_small(num_classes=4),
        lambda: torchvision.models.VisionTransformer(64, 16, 1, 2, 32, 64, num_classes=4),
        lambda: timm.create_model("deit_tiny_patch16_224", num_classes=4, img_size=64, depth=1),
        lambda: timm.create_model("convnext_atto", num_classes=4, depths=(1, 1, 1, 1)),
    ],
)
def test_networks_of_others_compute_what_they_did(build):
    torch.manual_seed(0)
    model, images = build().eval(), torch.rand(2, 3, 64, 64)
    before, fused = model(images), fuse_at(model, images)
    check_operations(fused, "exact")
    assert_close(fused(images), before)
    assert not any(change.effect for change in polynomial_(model, images, activation="own"))
    assert_close(model(images), before)


def test_values_that_ask_each_other_where_their_channels_are_come_to_an_end():
    """As in timm's MambaOut; with nobody who knows, channels are taken to be first."""

    def forward(net: Called, x: Tensor) -> Tensor:
        one, two = x.permute(0, 2, 3, 1).chunk(2, -1)
        return torch.cat([one, two], -1) * torch.cat([two, one], -1)

    with pytest.raises(RuleError, match=r"got cat \(cat\), cat_1 \(cat\).*; concatenate channels"):
        polynomial_(Called(forward, conv=nn.Conv2d(4, 4, 1)), torch.rand(2, 4, 4, 4), "own")


def test_fuse_leaves_functions_without_an_exact_form_to_who_asks_for_one():
    fused = fuse(Written(nn.Softsign()).eval())
    with pytest.raises(RuleError, match=r"got relu .* and 4 more; use .* privcirnet.polynomial_ replaces others"):
        check_operations(fused, "exact")


@pytest.mark.parametrize("last", [nn.GroupNorm(2, 8), GroupNormAct(8, 4), nn.InstanceNorm2d(8)], ids=str)
def test_group_norms_stay(last):
    model, images = Written(last).eval(), torch.rand(2, 3, 32, 32)
    before = model(images)
    assert not any(change.effect for change in polynomial_(model, images, activation="own"))
    assert type(model.last) is type(last) or type(model.last) is nn.GroupNorm
    assert_close(model(images), before)


def test_what_a_norm_has_inside_is_named_or_stands_behind_it():
    images, message = torch.rand(2, 3, 32, 32), "got last (LayerNormAct2d); give the activation inside it a module"
    with pytest.raises(RuleError, match=re.escape(message)):
        polynomial_(Written(LayerNormAct2d(8)), images)
    polynomial_(model := Written(GroupNormAct(8, 1)), images)
    assert [type(model.last), type(model.last_act)] == [nn.BatchNorm2d, Aespa2d]


@pytest.mark.parametrize("last", [nn.GroupNorm(2, 8), nn.InstanceNorm2d(8)], ids=str)
def test_group_norms_that_are_no_batch_norms_are_named(last):
    with pytest.raises(
        RuleError, match=r"got last \(.*Norm.*\); normalize over the channels, or keep group norms, without"
    ):
        polynomial_(Written(last), torch.rand(2, 3, 32, 32))


def test_some_activations_become_polynomials_and_all_else_stays():
    """torchvision's blocks call one ReLU twice, so each call is made a module of its own first."""
    torch.manual_seed(0)
    model, images = torchvision.models.resnet18(num_classes=4).eval(), torch.rand(2, 3, 64, 64)
    rule = r"a module that runs once: got layer1\.0\.relu_2; name some of relu, layer1\.0\.relu_1, layer1\.0\.relu, "
    with pytest.raises(RuleError, match=rule):
        polynomial_(model, images, {"layer1.0.relu_2": "aespa"})
    assert isinstance(model, torchvision.models.ResNet)
    chosen = {"relu": "identity", "layer1.0.relu": "aespa", "layer2.0.relu": "square", "layer2.0.relu_1": "own"}
    changes = {change.path: change.after for change in polynomial_(model, images, chosen) if change.effect == TRAIN}
    assert changes == {"relu": "Identity", "layer1.0.relu": "Aespa2d", "layer2.0.relu": "Square"}
    assert sorted(kinds(model)) == ["MaxPool2d", *["ReLU"] * 14]


@pytest.mark.parametrize("last", [nn.Softsign(), nn.MaxPool2d(2, 1, 1, dilation=2), nn.ELU(-1.0)], ids=str)
def test_what_has_no_exact_form_is_named(last):
    with pytest.raises(RuleError, match=r"got last \(.*\); replace it by polynomial_, or use one of ReLU, "):
        polynomial_(Written(last), torch.rand(2, 3, 32, 32), activation="own")


def test_gates_and_tanh_stay_however_they_are_written():
    def forward(net: Called, x: Tensor) -> Tensor:
        return torch.tanh(net.conv(x)) * F.hardsigmoid(net.conv(x)) + net.conv(x).tanh() * net.conv(x).sigmoid()

    images = torch.rand(2, 4, 4, 4)
    model = Called(forward, conv=nn.Conv2d(4, 4, 1)).eval()
    before = model(images)
    assert {change.after for change in polynomial_(model, images, "own")} == {
        "Tanh",
        "Hardsigmoid",
        "Sigmoid",
        "HeadProduct",
    }
    assert_close(model(images), before)
    replaced = polynomial_(Called(forward, conv=nn.Conv2d(4, 4, 1)), images)
    assert [change.before for change in replaced if change.after == "Aespa2d"] == ["tanh", "tanh"]


SLOPES = torch.linspace(-0.5, 1.5, 4)
BY_NUMBERS = {
    "GELU": lambda x: F.gelu(x, approximate="tanh"),
    "LeakyReLU": lambda x: F.leaky_relu(x, 0.2) + F.prelu(x, SLOPES[:1]),
    "ELU": lambda x: F.elu(x, 0.7),
    "CELU": lambda x: torch.celu(x, 2.0),
    "SELU": F.selu,
    "Softplus": lambda x: F.softplus(x, 3),
    "ReLU6": lambda x: x.clamp(0, 6),
    "ReLU": lambda x: x.clamp(min=0),
    "Hardtanh": lambda x: x.clamp(0, 1) + torch.clamp(x, -1, 1) + torch.clamp(x, max=0.7) + x.clip(0.3),
    "ReLU and Conv2d": lambda x: F.prelu(x, SLOPES),
}


@pytest.mark.parametrize("name", BY_NUMBERS)
def test_activations_with_numbers_are_known_by_their_values(name):
    model = Called(lambda net, x: BY_NUMBERS[name](3 * net.conv(x)), conv=nn.Conv2d(4, 4, 1)).eval()
    images = torch.rand(2, 4, 4, 4)
    before = model(images)
    changes = polynomial_(model, images, "own")
    assert {change.after for change in changes} - {"Affine"} == {name}
    assert_close(model(images), before)


def test_activations_with_numbers_run_exactly():
    torch.manual_seed(0)
    prelu = nn.PReLU(4)
    nn.init.uniform_(prelu.weight, -0.5, 1.5)
    layers = (nn.ELU(0.7), nn.LeakyReLU(0.2), prelu, nn.Softplus(2), nn.Hardtanh(0, 1))
    model = nn.Sequential(*(each for layer in layers for each in (nn.Conv2d(4, 4, 1), layer)), nn.Flatten()).eval()
    images = torch.randn(16, 4, 4, 4)
    quantized = pc.quantize(model, images)
    program = pc.compile(quantized, images, profile="counted", progress=False)
    assert torch.equal(program(images[:1], check=True, engine="cleartext"), quantized(images[:1]))
    assert_close(quantized(images), model(images), rtol=0, atol=0.03)
