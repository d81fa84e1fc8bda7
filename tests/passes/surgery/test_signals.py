"""Signals (N, C, L) as maps of one row: every operation computes the same, and is one of maps then."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.norm import BlockBatchNorm2d
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import check_operations
from privcirnet.passes.surgery import exact_copy, polynomial_
from privcirnet.passes.surgery.edit import ONE_MORE
from tests.nn.networks import Written


def signals() -> Tensor:
    return torch.rand(8, 4, 24, generator=torch.Generator().manual_seed(1)).double()


def between(*layers: nn.Module) -> nn.Module:
    """Layers of eight channels between two convolutions, with norms that have seen values."""
    torch.manual_seed(0)
    last = nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 3)
    model = nn.Sequential(nn.Conv1d(4, 8, 3), *layers, nn.Conv1d(8, 8, 1), *last).double().train()
    model(signals())
    return model.eval()


def called(function) -> nn.Module:
    """A function of a network with some parameters and of signals, between two convolutions."""
    written = Written(function, conv=nn.Conv1d(8, 8, 3), norm=nn.BatchNorm1d(8))
    nn.init.uniform_(written.norm.weight)
    return between(written)


MODULES = {
    "strides and zeros": lambda: between(nn.Conv1d(8, 8, 5, stride=3, padding=2)),
    "dilated, in groups": lambda: between(nn.Conv1d(8, 8, 3, dilation=4, groups=2, bias=False)),
    "depthwise": lambda: between(nn.Conv1d(8, 8, 4, groups=8)),
    "same": lambda: between(nn.Conv1d(8, 8, 4, padding="same")),
    "reflected": lambda: between(nn.Conv1d(8, 8, 3, padding=1, padding_mode="reflect")),
    "weight norm": lambda: between(weight_norm(nn.Conv1d(8, 8, 3))),
    "transposed": lambda: between(nn.ConvTranspose1d(8, 8, 4, stride=2, padding=1)),
    "norm and ReLU": lambda: between(nn.BatchNorm1d(8), nn.ReLU()),
    "norm that follows no layer": lambda: between(nn.ReLU(), nn.BatchNorm1d(8)),
    "PReLU": lambda: between(nn.PReLU(8)),
    "GLU": lambda: between(nn.Conv1d(8, 16, 1), nn.GLU(1)),
    "GLU along the signal": lambda: between(nn.GLU()),
    "dropout": lambda: between(nn.Dropout(), nn.Dropout1d(), nn.Identity()),
    "max pool": lambda: between(nn.MaxPool1d(3, 2, 1)),
    "dilated maximum of a whole signal": lambda: between(nn.AdaptiveMaxPool1d(1)),
    "average": lambda: between(nn.AvgPool1d(2)),
    "average with overlap": lambda: between(nn.AvgPool1d(3, 2, 1)),
    "adaptive average": lambda: between(nn.AdaptiveAvgPool1d(11)),
    "zeros": lambda: between(nn.ZeroPad1d((2, 0)), nn.Conv1d(8, 8, 3)),
    "mirrored": lambda: between(nn.ReflectionPad1d(2)),
    "repeated": lambda: between(nn.ReplicationPad1d((1, 2))),
    "wrapped": lambda: between(nn.CircularPad1d(1)),
    "upsampled": lambda: between(nn.Upsample(scale_factor=2)),
    "group norm": lambda: between(nn.GroupNorm(2, 8)),
    "instance norm": lambda: between(nn.InstanceNorm1d(8, affine=True)),
}
FUNCTIONS = {
    "conv1d": lambda m, x: F.conv1d(x, m.conv.weight, m.conv.bias, 2, 1),
    "max_pool1d": lambda _, x: F.max_pool1d(x, 2),
    "avg_pool1d": lambda _, x: F.avg_pool1d(x, 2, stride=2),
    "adaptive_avg_pool1d": lambda _, x: F.adaptive_avg_pool1d(x, 2),
    "adaptive_max_pool1d": lambda _, x: F.adaptive_max_pool1d(x, 11),
    "pad": lambda _, x: F.pad(x, (2, 1)),
    "pad of channels": lambda _, x: F.pad(x[:, 1:], (0, 0, 0, 1)),
    "interpolate": lambda _, x: F.interpolate(x, scale_factor=3),
    "batch_norm": lambda m, x: F.batch_norm(x, m.norm.running_mean, m.norm.running_var, m.norm.weight, m.norm.bias),
    "residual": lambda _, x: x + F.relu(x),
    "constants of channels": lambda m, x: (x - m.conv.bias[:, None]) * m.norm.weight[:, None],
    "concatenated": lambda _, x: torch.cat([x[:, :4], F.relu(x[:, 4:])], 1),
    "a part, turned over": lambda _, x: x[:, :, 2:20:2].flip(2),
    "gates of channels": lambda _, x: x * torch.sigmoid(x.mean(2))[:, :, None],
    "mean": lambda _, x: x.mean(-1, keepdim=True),
    "largest": lambda _, x: x.amax(2, keepdim=True),
    "glu": lambda _, x: torch.cat([F.glu(x, 1), F.glu(x, -2)], dim=-2),
}
NETWORKS = MODULES | {name: lambda name=name: called(FUNCTIONS[name]) for name in FUNCTIONS}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", NETWORKS)
def test_operations_of_signals_are_those_of_maps(name):
    model = NETWORKS[name]()
    before, expected = copy.deepcopy(model.state_dict()), model(signals())
    graph = exact_copy(model, signals())
    assert_close(graph(signals()), expected)
    assert_close(model.state_dict(), before)
    fused = fuse_at(model, signals())
    check_operations(fused, "exact")
    assert_close(fused(signals()), expected)
    assert not [module for module in fused.modules() if type(module).__name__.endswith("1d")]


@pytest.mark.parametrize("b", [1, 4])
def test_circulant_layers_and_their_norms_stay_circulant(b):
    """Also before surgery, which the network needs no images for; parameters are the network's own."""
    model = between(nn.Conv1d(8, 8, 3), nn.BatchNorm1d(8), nn.ReLU())
    circulant_(model, {"1": b, "4": b})
    assert isinstance(model[2], BlockBatchNorm2d if b > 1 else nn.BatchNorm1d)
    model.train()(signals())
    expected = model.eval()(signals())
    graph = exact_copy(model, signals())
    assert_close(graph(signals()), expected)
    name = "1.parametrizations.weight.original" if b > 1 else "1.weight"
    assert [network.get_parameter(name).shape for network in (model, graph)] == [(8 // b, 8, 3), (8 // b, 8, 1, 3)]
    fused = fuse_at(model, signals())
    assert [block_size_of(fused.get_submodule(name)) for name in "14"] == [b, b]
    assert_close(fused(signals()), expected)
    assert_close(fuse(model)(signals()), expected)


def test_fitting_starts_nearer_than_projection():
    torch.manual_seed(0)
    dense = between(nn.Conv1d(8, 8, 3, stride=2, padding=1), nn.BatchNorm1d(8), nn.ReLU())
    values = torch.randn(64, 4, 24).double()
    plain, fitted = copy.deepcopy(dense), copy.deepcopy(dense)
    circulant_(plain, {"1": 4, "4": 4})
    circulant_(fitted, {"1": 4, "4": 4}, images=values)
    losses = [(model(values) - dense(values)).square().mean() for model in (fitted, plain)]
    assert losses[0] < losses[1] / 2


def test_polynomials_are_trained_in_place():
    model = between(nn.BatchNorm1d(8), nn.ReLU(), nn.MaxPool1d(2))
    changes = [str(change) for change in polynomial_(model, signals())]
    assert changes[:2] == ["0: Conv1d -> Conv2d", "1: BatchNorm1d -> BatchNorm2d"]
    assert any(change.startswith("3: MaxPool1d -> AvgPool2d((1, 2)) (values differ") for change in changes)
    assert ONE_MORE not in " ".join(changes)
    model(signals()).square().sum().backward()
    assert model.get_parameter("0.weight").grad.shape == (8, 4, 1, 3)


def test_a_norm_of_signals_is_folded_without_another_layer():
    model = between(nn.Dropout(), nn.BatchNorm1d(8), nn.ReLU(), nn.Conv1d(8, 8, 3), nn.BatchNorm1d(8))
    changes = polynomial_(model, signals(), "own")
    assert {change.effect for change in changes} == {""}


class Tokens(nn.Module):
    """A convolution along time whose results are tokens, with attention, added to those of a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(4, 8, 3, padding=1), nn.BatchNorm1d(8)
        self.linear, self.layer = nn.Linear(4, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.norm(self.conv(x)).relu().transpose(1, 2) + self.linear(x.transpose(1, 2))
        return self.head(self.layer(tokens).mean(1))


def test_signals_and_tokens_are_told_apart():
    torch.manual_seed(0)
    model, values = Tokens().double().eval(), signals()
    fused = fuse_at(model, values)
    assert_close(fused(values), model(values))
    check_operations(fused, "exact")


def test_tokens_as_the_input():
    torch.manual_seed(0)
    model = nn.Sequential(nn.TransformerEncoderLayer(24, 2, 16, batch_first=True), nn.Flatten(), nn.Linear(96, 3))
    model = model.double().eval()
    fused = fuse_at(model, signals())
    assert_close(fused(signals()), model(signals()))


def test_what_has_no_form_is_refused_by_its_name():
    with pytest.raises(RuleError, match=r"got 1 \(LPPool1d\)"):
        exact_copy(between(nn.LPPool1d(2, 2)), signals())
    with pytest.raises(RuleError, match=r"got 1 \(Softmin\)"):
        exact_copy(between(nn.Softmin(2)), signals())
