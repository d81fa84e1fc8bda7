"""Convolutions that are not square, and padding with a map's own values: exact, trained, circulant, refused."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.changes import ONE_MORE
from tests.nn.networks import Written


def images() -> Tensor:
    return torch.rand(8, 4, 9, 7, generator=torch.Generator().manual_seed(1)).double()


class Block(nn.Module):
    """A convolution with its norm and activation, added to another."""

    def __init__(self, **options: object) -> None:
        super().__init__()
        self.stem = nn.Conv2d(4, 8, 1)
        self.one, self.norm, self.act = nn.Conv2d(8, 8, 3, **options), nn.BatchNorm2d(8), nn.ReLU()
        self.other = nn.Conv2d(8, 8, 3, **options)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.act(self.norm(self.one(x)) + self.other(x))


OPTIONS = {
    "two strides": {"stride": (2, 1), "padding": 1},
    "rows lost": {"padding": (0, 1)},
    "both": {"stride": 2, "padding": (1, 0)},
    "reflected": {"padding": 1, "padding_mode": "reflect"},
    "wrapped with two strides": {"padding": (2, 1), "padding_mode": "circular", "stride": (1, 2)},
}


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("b", [1, 4])
def test_scales_are_folded_through_what_is_moved(name, b):
    torch.manual_seed(0)
    model = Block(**OPTIONS[name]).double()
    weight = model.one.weight
    changes = polynomial_(model, images())
    assert model.get_submodule("one").weight is weight
    assert ONE_MORE not in {change.effect for change in changes}
    circulant_(model, {"one": b, "other": b})
    for _ in range(20):
        model.train()(images())
    fused = fuse(model)
    assert_close(fused(images()), model.eval()(images()))
    assert block_size_of(fused.get_submodule("one")) == b


@pytest.mark.parametrize("name", OPTIONS)
def test_norms_see_the_same_values(name):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.Conv2d(8, 8, 3, **OPTIONS[name]), nn.BatchNorm2d(8)).double().train()
    twin = copy.deepcopy(model)
    polynomial_(model, images())
    assert_close(model(images()), twin(images()))
    assert_close(model.state_dict(), twin.state_dict())


def test_a_square_convolution_stays_itself():
    conv = nn.Conv2d(4, 8, (1, 3), padding=(0, 1), stride=2)
    model = nn.Sequential(conv).double()
    assert polynomial_(model, images()) == ()
    assert model.get_submodule("0") is conv


def test_nothing_changes_where_something_is_refused():
    model = nn.Sequential(nn.Conv2d(4, 8, 3, **OPTIONS["wrapped with two strides"]), nn.Softmax(1)).double()
    conv, before = model[0], repr(model)
    with pytest.raises(RuleError, match="Softmax"):
        polynomial_(model, images())
    assert model[0] is conv
    assert repr(model) == before


@pytest.mark.parametrize("name", ["two strides", "reflected"])
def test_one_convolution_in_two_places_is_refused(name):
    twice = Written(lambda net, x: net.conv(net.conv(x)), conv=nn.Conv2d(4, 4, 3, **OPTIONS[name]))
    with pytest.raises(RuleError, match=r"got conv \(Conv2d\), conv \(Conv2d\); give each use .* its own module"):
        polynomial_(twice.double(), images())


@pytest.mark.parametrize("pad", [nn.ZeroPad2d(1), nn.ConstantPad2d(1, 0.5)])
def test_pads_of_constants_are_refused(pad):
    with pytest.raises(RuleError, match=r"Pad2d\); pad maps with reflected, .* let the convolution itself pad with"):
        polynomial_(nn.Sequential(nn.Conv2d(4, 4, 1), pad, nn.Conv2d(4, 4, 3)), images().float())


def test_what_others_read_too_is_not_scaled():
    torch.manual_seed(0)
    layers = {"conv": nn.Conv2d(4, 4, 3, **OPTIONS["two strides"]), "act": nn.ReLU(), "last": nn.Conv2d(4, 4, 1)}
    model = Written(lambda net, x: net.last(net.act(y := net.conv(x))) + y, **layers).double()
    changes = polynomial_(model, images())
    assert [change.path for change in changes if change.effect == ONE_MORE] == ["act"]
    model.train()(images())
    assert_close(fuse(model)(images()), model.eval()(images()))
