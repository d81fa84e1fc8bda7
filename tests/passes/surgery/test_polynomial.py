"""Networks of timm, torchvision and torch's own functions become polynomials, with their weights and names."""

import copy
import pickle

import pytest
import timm
import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.activations import Aespa1d, Aespa2d, Square
from privcirnet.nn.example import IMAGE
from privcirnet.nn.graph import trace
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.passes.surgery import Replacement, polynomial_
from privcirnet.passes.surgery.edit import ONE_MORE, TRAIN
from tests.nn.networks import Written


class Functional(nn.Module):
    """Activations, pools and dropout as functions; one ReLU used twice; a mean over a map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3 = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 1), nn.Conv2d(8, 8, 1)
        self.relu, self.fc = nn.ReLU(inplace=True), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 3, stride=2, padding=1)
        x = self.relu(self.conv2(x).add(x))
        x = self.relu(self.conv3(x))
        x = F.dropout(x, 0.5, self.training).mean((2, 3))
        return self.fc(torch.nn.functional.gelu(x))


def test_functions_become_modules():
    torch.manual_seed(0)
    model = Functional()
    layers = {name: module for name, module in model.named_modules() if isinstance(module, nn.Conv2d | nn.Linear)}
    changes = polynomial_(model, torch.rand(2, 3, 8, 8))
    assert [(change.path, change.before, change.after) for change in changes] == [
        ("relu", "relu", "Aespa2d"),
        ("max_pool2d", "max_pool2d", "AvgPool2d(2)"),
        ("relu", "ReLU", "Aespa2d"),
        ("relu", "ReLU", "Aespa2d"),
        ("mean", "mean", "AvgPool2d(4)"),
        ("gelu", "gelu", "Aespa1d"),
    ]
    assert all(model.get_submodule(name) is layer for name, layer in layers.items())
    assert sum(isinstance(module, Aespa2d) for module in model.modules()) == 3
    assert isinstance(next(m for m in model.modules() if isinstance(m, Aespa1d)), nn.Module)
    assert model(torch.rand(5, 3, 8, 8)).shape == (5, 4)


@pytest.mark.parametrize(
    "clamped",
    [
        lambda x: x.clamp(0, 6),
        lambda x: torch.clamp(x, min=0),
        lambda x: torch.clip(x, 0, 6),
        lambda x: x.clamp_min(0),
        lambda x: x.clamp_(0, 6),
    ],
)
def test_clamped_values_become_an_activation(clamped):
    layers = {"first": nn.Conv2d(3, 8, 3), "second": nn.Conv2d(8, 4, 6)}
    model = Written(lambda net, x: net.second(clamped(net.first(x))).flatten(1), **layers)
    images = torch.rand(2, 3, 8, 8)
    (change,) = polynomial_(model, images)
    assert (change.after, change.effect) == ("Aespa2d", TRAIN)
    assert sum(isinstance(module, Aespa2d) for module in model.modules()) == 1
    assert model(images).shape == (2, 4)


def test_a_pool_that_is_an_average_already_computes_the_same():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 4))
    before, images = copy.deepcopy(model), torch.rand(2, 3, 8, 8)
    changes = polynomial_(model, images)
    assert changes == (Replacement("1", "AdaptiveAvgPool2d", "AvgPool2d(4)"),)
    assert_close(model(images), before(images))


def mean(dim: int | tuple[int, int]) -> nn.Module:
    return Written(lambda net, x: net.conv(x).mean(dim), conv=nn.Conv2d(3, 8, 1))


@pytest.mark.parametrize("dim", [1, (1, 3)])
def test_a_mean_over_other_axes_is_refused_though_shapes_agree(dim):
    with pytest.raises(RuleError, match=r"polynomial form: got mean \(mean\)"):
        polynomial_(mean(dim), torch.rand(2, 3, 8, 8))


@pytest.mark.parametrize("dim", [2, 3, (1, 2)])
def test_a_mean_over_other_axes_computes_the_same_though_shapes_agree(dim):
    model, x = mean(dim).eval(), torch.rand(2, 3, 8, 8)
    wanted = model(x)
    polynomial_(model, x)
    assert_close(model(x).flatten(1), wanted.flatten(1))


NETWORKS = {
    "resnet18": (17, 1),
    "resnet10t": (11, 1),
    "mobilenetv2_050": (35, 0),
    "efficientnet_lite0": (33, 0),
    "regnetx_002": (40, 0),
    "repvgg_a0": (22, 0),
}
"""Of timm -> activations, max pools."""


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NETWORKS, "torchvision's"])
def test_networks_that_users_have(name):
    torch.manual_seed(0)
    theirs = name == "torchvision's"
    model = torchvision.models.resnet18(num_classes=10) if theirs else timm.create_model(name, num_classes=10)
    state, images = model.double().state_dict(), torch.randn(16, 3, 64, 64, dtype=torch.float64)
    changes = polynomial_(model, images)
    activations, pools = NETWORKS.get(name, (17, 1))
    effects = [change.before for change in changes if change.effect == TRAIN]
    assert effects.count("MaxPool2d") == pools
    assert len(effects) == activations + pools
    assert all(torch.equal(model.state_dict()[key], value) for key, value in state.items())
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d | Aespa2d):
            module.momentum = 1.0
    with torch.no_grad():
        model.train()(images)
        fused = fuse(model)
        assert_close(fused(images), model.eval()(images), rtol=1e-3, atol=1e-3)  # 2^-52, doubled in 40 squares
    assert not [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d | nn.ReLU | nn.ReLU6)]


def reused() -> nn.Module:
    """A norm in front of a layer, one beside it, and features read again."""
    layers = {"stem": nn.Conv2d(3, 4, 1), "norm": nn.BatchNorm2d(4), "conv": nn.Conv2d(4, 4, 1)}
    forward = lambda net, x: net.identity(torch.cat([y := net.stem(x), net.conv(F.relu(net.norm(y)))], dim=1))  # noqa: E731
    return Written(forward, **layers, identity=nn.BatchNorm2d(8))


def test_a_norm_without_a_layer_of_its_own_gets_one():
    torch.manual_seed(0)
    model, images = reused(), torch.randn(4, 3, 8, 8)
    changes = [str(change) for change in polynomial_(model, images) if change.effect == ONE_MORE]
    more = "BatchNorm2d -> depthwise Conv2d and BatchNorm2d (one more encrypted layer)"
    assert changes == [f"norm: {more}", f"identity: {more}"]
    for _ in range(50):
        model.train()(images)
    assert_close(fuse(model)(images), model.eval()(images), rtol=1e-3, atol=1e-4)


def test_the_network_trains_copies_and_is_traced_again():
    torch.manual_seed(0)
    model, images = Functional().train(), torch.rand(8, 3, 8, 8)
    polynomial_(model, images)
    assert model.training
    assert all(module.training for module in model.modules())
    model(images).square().mean().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    twin = copy.deepcopy(model.eval())
    assert_close(twin(images), model(images))
    assert_close(trace(model)(images), model(images))
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(twin))))
    assert_close(again(images), model(images))
    assert again.meta == twin.meta == {IMAGE: tuple(images.shape[1:])}
    assert polynomial_(model, images) == ()


def test_squares_instead():
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.SiLU())
    polynomial_(model, torch.rand(1, 3, 8, 8), activation="square")
    assert isinstance(model.get_submodule("1"), Square)


@pytest.mark.parametrize(
    ("layers", "got"),
    [
        ([nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Softmax(1), nn.ReLU()], r"2 \(Softmax\); write it with"),
        (
            [nn.Conv2d(3, 8, 2), nn.AdaptiveMaxPool2d(2)],
            r"1 \(AdaptiveMaxPool2d\); pools must divide their maps: use images of 9 x 9$",
        ),
        (
            [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2), nn.Sigmoid()],
            r"3 \(Sigmoid\); leave the last sigmoid out: a client applies it to its logits",
        ),
        ([nn.Unflatten(1, (1, 3))], r"0 \(Unflatten\)"),
        ([nn.Softmax(1)] * 7, r"0 \(Softmax\), 1 \(Softmax\), .* and 2 more;"),
    ],
)
def test_what_cannot_be_replaced_is_named_and_nothing_changes(layers, got):
    model = nn.Sequential(*map(copy.deepcopy, layers))
    before = {name: type(module) for name, module in model.named_modules()}
    with pytest.raises(RuleError, match=rf"must have a polynomial form: got {got}"):
        polynomial_(model, torch.rand(1, 3, 8, 8))
    assert {name: type(module) for name, module in model.named_modules()} == before


def test_a_network_keeps_the_size_it_was_traced_at():
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    polynomial_(network, torch.rand(2, 3, 8, 8), "own")
    with pytest.raises(RuleError, match=r"of the size it was traced at: got \(3, 12, 12\) for \(3, 8, 8\)"):
        polynomial_(network, torch.rand(2, 3, 12, 12), "own")


def test_a_quantized_network_is_too_late():
    images = torch.rand(2, 3, 8, 8)
    quantized = quantize(fuse(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2))), images)
    with pytest.raises(RuleError, match="polynomials before it is quantized: got a quantizer at '0'"):
        polynomial_(quantized, images)


def test_what_is_frozen_stays_frozen():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.LayerNorm(8), nn.Linear(8, 2)).requires_grad_(False)
    polynomial_(network, torch.rand(2, 3, 2, 2))
    assert not any(parameter.requires_grad for parameter in network.parameters())


def test_an_activation_that_is_no_polynomial():
    with pytest.raises(RuleError, match="the activation must be a polynomial, or the network's own: got 'relu'"):
        polynomial_(nn.Conv2d(3, 8, 3), torch.rand(1, 3, 8, 8), activation="relu")
