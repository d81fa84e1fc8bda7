"""Convolutions by axis and side, and padding with a map's own values: exact, trained, circulant, refused."""

import copy

import pytest
import torch
import torch.nn.functional as F
from timm.layers import Conv2dSame
from torch import Tensor, nn
from torch.testing import assert_close

from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.windows import divisor_of
from privcirnet.passes.convert import circulant_
from privcirnet.passes.fuse import fuse, fuse_at
from privcirnet.passes.lower import check_operations
from privcirnet.passes.lower.layers import linear_shape, real
from privcirnet.passes.surgery import polynomial_
from privcirnet.passes.surgery.edit import ONE_MORE
from tests.nn.networks import Written, rows_of


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


def test_one_convolution_with_such_padding_in_two_places_is_refused():
    twice = Written(lambda net, x: net.conv(net.conv(x)), conv=nn.Conv2d(4, 4, 3, **OPTIONS["reflected"]))
    with pytest.raises(RuleError, match=r"got conv \(Conv2d\), conv \(Conv2d\); give each use .* its own module"):
        polynomial_(twice.double(), images())


def test_pads_of_other_constants_are_refused():
    model = nn.Sequential(nn.Conv2d(4, 4, 1), nn.ConstantPad2d(1, 0.5), nn.Conv2d(4, 4, 3)).double()
    with pytest.raises(RuleError, match=r"Pad2d\); pad maps with zeros, or with reflected, repeated or wrapped values"):
        polynomial_(model, images())


def padded(sides: tuple[int, ...], *layers: nn.Module) -> nn.Module:
    return nn.Sequential(Written(lambda _, x: F.pad(x, sides)), *layers)


class Static(nn.Conv2d):
    """SAME padding as EfficientNet-PyTorch has it."""

    def __init__(self, *sizes: int, sides: tuple[int, ...], **options: object) -> None:
        super().__init__(*sizes, **options)
        self.static_padding = nn.ZeroPad2d(sides)

    def forward(self, x: Tensor) -> Tensor:
        return F.conv2d(self.static_padding(x), self.weight, self.bias, self.stride)


ZEROS = {
    "two rows, three columns": lambda: nn.Sequential(nn.Conv2d(4, 8, (2, 3))),
    "an odd number of rows more, in strides": lambda: nn.Sequential(nn.Conv2d(4, 8, (4, 1), stride=2)),
    "zeros below and on the right": lambda: padded((0, 1, 0, 1), nn.Conv2d(4, 8, 3, stride=2)),
    "zeros around zeros": lambda: padded((2, 1, 0, 3), nn.Conv2d(4, 8, 3, stride=(2, 1), padding=1, dilation=2)),
    "same for an even kernel": lambda: nn.Sequential(nn.Conv2d(4, 8, (4, 2), padding="same")),
    "more zeros than weights": lambda: nn.Sequential(nn.Conv2d(4, 8, 1, padding=1)),
    "TensorFlow's": lambda: nn.Sequential(Conv2dSame(4, 8, 3, stride=2)),
    "TensorFlow's, dilated": lambda: nn.Sequential(Conv2dSame(4, 8, (2, 3), stride=2, dilation=3)),
    "one's own": lambda: nn.Sequential(Static(4, 8, 3, sides=(0, 1, 1, 1), stride=2)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", ZEROS)
def test_zeros_on_any_side_are_those_of_the_program_s_layer(name):
    torch.manual_seed(0)
    model = nn.Sequential(*ZEROS[name](), nn.BatchNorm2d(8)).double().eval()
    weight, expected = model[-2].weight, model(images())
    changes = polynomial_(model, images(), "own")
    assert {change.effect for change in changes} <= {""}
    fused = fuse(model)
    assert any(parameter is weight for parameter in model.parameters())
    assert_close(model(images()), expected)
    conv = next(module for module in fused.modules() if isinstance(module, nn.Conv2d))
    shape, rows = linear_shape(conv, tuple(images().shape[1:]), ""), real(conv, 0, "")[1].rows
    (top, bottom), (left, right) = (window.ends for window in shape.windows)
    surrounded = F.pad(images(), (left, right, top, bottom))
    assert_close(F.conv2d(surrounded, torch.from_numpy(rows), conv.bias, shape.strides), conv(images()))


def test_zeros_that_others_read_come_from_a_layer():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 1), nn.ReLU(), nn.ZeroPad2d((0, 1, 0, 1)), nn.MaxPool2d(3, 2)).double()
    expected = model(images())
    changes = polynomial_(model, images(), "own")
    assert [change.effect for change in changes] == [ONE_MORE]
    assert_close(model(images()), expected)


def test_training_leaves_what_is_zero():
    """What a dilated kernel has between are no weights: nothing trains them, and circulant ones have none there."""
    model = padded((0, 1, 0, 1), nn.Conv2d(4, 8, 3, stride=2, dilation=2)).double()
    polynomial_(model, images(), "own")
    circulant_(model, {"1": 4})
    model(images()).square().mean().backward()
    conv = model.get_submodule("1")
    assert rows_of(conv).grad.shape == (2, 4, 3, 3)
    assert real(conv, 0, "")[1].rows.shape == (8, 4, 5, 5)


def test_fuse_with_images_does_what_polynomial_does():
    """A pool that rounds up where nothing is left to round, timm's of resnet10t, and a kernel that is not square."""
    layers = nn.Conv2d(4, 8, (2, 3)), nn.AvgPool2d(2, 2, ceil_mode=True, count_include_pad=False)
    model = nn.Sequential(*layers).double().eval()
    shown = images()[..., :6]
    fused = fuse_at(model, shown)
    assert_close(fused(shown), model(shown))
    check_operations(fused, "")
    assert divisor_of(next(module for module in fused.modules() if isinstance(module, nn.AvgPool2d))) == 4


def test_kernels_that_are_too_large_are_refused_by_name():
    with pytest.raises(
        RuleError,
        match=r"kernel must have at most 512 rows and columns, and 4096 weights, .*: got 65 x 65 for 0: Conv2d\(4, 8, .*65",
    ):
        linear_shape(nn.Conv2d(4, 8, 65), (4, 70, 70), "0")
    assert linear_shape(nn.Conv2d(4, 8, 64), (4, 70, 70), "0").kernel == 64


def test_what_others_read_too_is_not_scaled():
    torch.manual_seed(0)
    layers = {"conv": nn.Conv2d(4, 4, 3, **OPTIONS["two strides"]), "act": nn.ReLU(), "last": nn.Conv2d(4, 4, 1)}
    model = Written(lambda net, x: net.last(net.act(y := net.conv(x))) + y, **layers).double()
    changes = polynomial_(model, images())
    assert [change.path for change in changes if change.effect == ONE_MORE] == ["act"]
    model.train()(images())
    assert_close(fuse(model)(images()), model.eval()(images()))
