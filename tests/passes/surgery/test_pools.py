"""Pools of any window: averages as they are, as constant convolutions; maxima as averages of the same windows."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes.surgery import norms, polynomial, polynomial_
from privcirnet.passes.surgery.edit import ONE_MORE, TRAIN, TWO_MORE, GraphEditor
from tests.nn.networks import Written


def images(height: int, width: int, channels: int = 3, count: int = 2) -> Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(0))


def around(pool: nn.Module, *last: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), pool, *last).eval()


AVERAGES: dict[str, tuple[nn.Module, str]] = {
    "stride 1": (nn.AvgPool2d(3, 1, 1), ONE_MORE),
    "of 5": (nn.AvgPool2d(5, 1, 2), ONE_MORE),
    "overlap": (nn.AvgPool2d(3, 2), ONE_MORE),
    "overlap and padding": (nn.AvgPool2d(3, 2, 1), ONE_MORE),
    "values of the map alone": (nn.AvgPool2d(3, 1, 1, count_include_pad=False), TWO_MORE),
    "of 5, values of the map alone": (nn.AvgPool2d(5, 2, 2, count_include_pad=False), TWO_MORE),
    "rounded up": (nn.AvgPool2d(3, 3, ceil_mode=True), TWO_MORE),
    "rounded up, padded": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), TWO_MORE),
    "another divisor": (nn.AvgPool2d(3, 2, 1, divisor_override=5), ONE_MORE),
    "rectangular windows": (nn.AvgPool2d((3, 5), 1, (1, 2)), ONE_MORE),
}


@pytest.mark.parametrize("road", ["own", "aespa"])
@pytest.mark.parametrize("name", AVERAGES)
def test_an_average_is_exact_on_both_roads(name, road):
    pool, effect = AVERAGES[name]
    model, x = around(copy.deepcopy(pool)), images(8, 10)
    before = model(x)
    (change,) = polynomial_(model, x, road)
    assert (change.path, change.before, change.after, change.effect) == ("1", "AvgPool2d", "depthwise Conv2d", effect)
    assert_close(model(x), before)
    fresh = images(8, 10, count=5)
    assert_close(model(fresh), pool(model.get_submodule("0")(fresh)))
    constant = [layer for layer in model.modules() if isinstance(layer, nn.Conv2d) and layer.groups > 1]
    assert len(constant) == 1 + (effect == TWO_MORE)
    assert not any(layer.weight.requires_grad for layer in constant)


@pytest.mark.parametrize("window", [nn.AvgPool2d(3), nn.AvgPool2d((2, 5)), nn.AvgPool2d(1)], ids=str)
def test_windows_side_by_side_stay(window):
    model, x = around(window), images(8, 10)
    before = model(x)
    assert polynomial_(model, x, "own") == ()
    assert_close(model(x), before)


@pytest.mark.parametrize("road", ["own", "aespa"])
def test_functions_and_what_is_left_of_an_average(road):
    """As PoolFormer mixes places: an average less the value itself."""
    forward = lambda net, x: (y := net.one(x)) - F.avg_pool2d(y, 3, 1, 1, count_include_pad=False)  # noqa: E731
    model, x = Written(forward, one=nn.Conv2d(3, 4, 1)).eval(), images(6, 6)
    before = model(x)
    polynomial_(model, x, road)
    assert_close(model(x), before)
    assert before.abs().max() > 0.1


@pytest.mark.parametrize(
    ("pool", "same"),
    [
        (nn.MaxPool2d(3, 1, 1), nn.AvgPool2d(3, 1, 1)),
        (nn.MaxPool2d(3, 2), nn.AvgPool2d(3, 2)),
        (nn.MaxPool2d((1, 3), 1, (0, 1)), nn.AvgPool2d((1, 3), 1, (0, 1))),
        (nn.MaxPool2d(3), nn.AvgPool2d(3)),
        (nn.MaxPool2d(2, 2, ceil_mode=True), nn.AvgPool2d(2, 2, ceil_mode=True, divisor_override=4)),
    ],
    ids=str,
)
def test_a_maximum_becomes_an_average_of_its_windows(pool, same):
    model, x = around(pool), images(7, 8)
    wanted = same(model.get_submodule("0")(x))
    (change,) = polynomial_(model, x)
    assert (change.path, change.before, change.effect) == ("1", "MaxPool2d", TRAIN)
    assert_close(model(x), wanted)


def test_a_pool_that_says_no_windows_and_does_not_divide_names_another_size():
    model = around(nn.AdaptiveMaxPool2d((3, 5)))
    with pytest.raises(RuleError, match=r"1 \(AdaptiveMaxPool2d\); pools must divide their maps: use images of 9 x 10"):
        polynomial_(model, images(7, 8))
    polynomial_(model, images(9, 10))


RECTANGLES = {
    "a mean": (lambda x: x.mean((2, 3)), (4, 5)),
    "an average over the whole map": (lambda x: F.adaptive_avg_pool2d(x, 1).flatten(1), (4, 5)),
    "an average of the map's size": (lambda x: F.avg_pool2d(x, (4, 5)).flatten(1), (4, 5)),
    "tokens": (lambda x: x.flatten(2).transpose(1, 2).mean(1), (4, 5)),
}


@pytest.mark.parametrize("road", ["own", "aespa"])
@pytest.mark.parametrize("name", RECTANGLES)
def test_an_average_over_a_rectangular_map(name, road):
    function, window = RECTANGLES[name]
    model = Written(lambda net, x: net.head(function(net.one(x))), one=nn.Conv2d(3, 4, 1), head=nn.Linear(4, 2)).eval()
    before = model(x := images(4, 5))
    polynomial_(model, x, road)
    assert [pool.kernel_size for pool in model.modules() if isinstance(pool, nn.AvgPool2d)] == [window]
    assert_close(model(x), before)


@pytest.mark.parametrize("road", ["own", "square"])
def test_the_whole_road_of_a_rectangle_and_of_averages_that_overlap(road):
    """Keyword spotting, in small: bit for bit what the quantized network gives."""
    x, (act, last) = images(13, 6, channels=1, count=12), (nn.ReLU(), nn.AvgPool2d(3, 1, 1, count_include_pad=False))
    layers = nn.Conv2d(1, 4, 3, 2, 1), nn.BatchNorm2d(4), act, nn.AvgPool2d(3, 1, 1), nn.Conv2d(4, 4, 1), last
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    torch.manual_seed(0)
    model(x)
    polynomial_(model.eval(), x, road)
    quantized = pc.quantize(model, x)
    program = pc.compile(quantized, x, profile="counted", truncation="exact", progress=False)
    found = program(x[:2], check=True, engine="cleartext").double()
    assert torch.equal(found, quantized.double().eval()(x[:2].double()).detach())


def test_fuse_sizes_an_average_over_a_rectangular_map():
    model, x = around(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2)), images(12, 20)
    program = pc.compile(pc.quantize(model, x), x, profile="counted", progress=False)
    assert_close(program(x, check=True, engine="cleartext"), model(x).detach(), atol=0.05, rtol=0)


def skipped(edit: GraphEditor, node: object, **_: object) -> None:
    edit.skip(node)  # type: ignore[arg-type]


POOL = nn.AvgPool2d(3, 1, 1)
HIDDEN = {
    "behind a layer": nn.Sequential(nn.Conv2d(3, 4, 3), POOL, nn.ReLU(), nn.Conv2d(4, 4, 3)),
    "behind an activation": nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), POOL, nn.Conv2d(4, 4, 3), nn.ReLU()),
    "before a maximum": nn.Sequential(nn.Conv2d(3, 4, 3), POOL, nn.MaxPool2d(2), nn.Conv2d(4, 4, 2)),
    "before a norm of layers": nn.Sequential(nn.Conv2d(3, 4, 3), POOL, nn.GroupNorm(1, 4), nn.Conv2d(4, 4, 2)),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_a_pool_that_is_lost_before_an_activation_is_noticed(name, monkeypatch):
    """Activations give other values than before: what they read is compared, and what each layer makes of it."""
    model = copy.deepcopy(HIDDEN[name]).eval()
    polynomial_(copy.deepcopy(model), images(8, 8))
    monkeypatch.setitem(polynomial.SUBSTITUTIONS, "average", skipped)
    with pytest.raises(RuleError, match="must leave the network's values as they were: got other values from"):
        polynomial_(model, images(8, 8))


@pytest.mark.parametrize("given", [images(8, 8), torch.zeros(2, 3, 8, 8)], ids=["images", "zeros"])
def test_nothing_is_hidden_by_a_norm_that_scales_by_zero(given, monkeypatch):
    def forward(net: Written, x: Tensor) -> Tensor:
        y = net.one(x)
        return y + net.norm(net.two(net.pool(net.first(y))))

    layers = {"one": nn.Conv2d(3, 4, 3), "first": nn.BatchNorm2d(4), "two": nn.Conv2d(4, 4, 1)}
    model = Written(forward, **layers, pool=copy.deepcopy(POOL), norm=nn.BatchNorm2d(4)).eval()
    nn.init.zeros_(model.first.weight)
    nn.init.zeros_(model.norm.weight)
    before = copy.deepcopy(model)
    polynomial_(model, given)
    assert_close(model(given), before(given))
    assert not model.norm.weight.any(), "the scales are as they were"
    monkeypatch.setitem(polynomial.SUBSTITUTIONS, "average", skipped)
    with pytest.raises(RuleError, match="must leave the network's values as they were: got other values from 'two'"):
        polynomial_(before, given)


def test_the_statistics_of_a_scale_are_those_of_the_images():
    """Its values are those of the images given, not of those that are compared."""
    model = Written(lambda net, x: net.one(x).sigmoid(), one=nn.Conv2d(3, 4, 1)).eval()
    x = images(4, 4)
    mean = model.one(x).mean((0, 2, 3))
    polynomial_(model, x)
    (norm,) = (each for each in model.modules() if isinstance(each, nn.BatchNorm2d))
    assert_close(norm.running_mean, mean)
    assert norms.GATES["sigmoid"][1] == 0.5
