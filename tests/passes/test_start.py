"""The least-squares start of circulant networks: nothing is lost where nothing must be, less than by projection else."""

import copy
import math

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.nn.functional import relu
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.functional.circulant import expand, is_circulant
from privcirnet.nn.functional.least_squares import Moments, fit_rows
from privcirnet.nn.graph import trace
from privcirnet.passes import least_squares_start
from privcirnet.passes.convert import uniform_sizes


@pytest.fixture
def channels_in_order(monkeypatch):
    """Hidden channels stay in their order, as where a layer is fitted by hand."""
    monkeypatch.setattr("privcirnet.passes.convert.order_channels_", lambda *_: {})


class Residual(nn.Module):
    """An inverted residual as of MobileNetV2, with norms, between a stem and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.expand, self.expand_norm = nn.Conv2d(8, 16, 1, bias=False), nn.BatchNorm2d(16)
        self.depthwise, self.depthwise_norm = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.BatchNorm2d(16)
        self.project, self.project_norm = nn.Conv2d(16, 8, 1), nn.BatchNorm2d(8)
        self.head = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        x = relu(self.stem_norm(self.stem(x)))
        y = relu(self.expand_norm(self.expand(x)))
        y = relu(self.depthwise_norm(self.depthwise(y)))
        x = x + self.project_norm(self.project(y))
        return self.head(x.mean((2, 3)))


class Block(nn.Module):
    """Half a block of a ViT: a layer norm, two linear layers, a stream."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.fc1, self.act, self.fc2 = nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.fc2(self.act(self.fc1(self.norm(x))))


class Rows(nn.Module):
    """The rows of an image's first channel as tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


def drawn(make: type[nn.Module], seed: int = 0) -> nn.Module:
    """A network with random norms, as trained ones have."""
    torch.manual_seed(seed)
    model = make().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low in (("weight", 0.5), ("bias", -0.5), ("running_mean", -0.5), ("running_var", 0.5)):
                nn.init.uniform_(getattr(module, value), low, low + 1)
    return model


def images(count: int = 96) -> Tensor:
    """Smooth ones, whose pixels correlate."""
    torch.manual_seed(1)
    return nn.functional.interpolate(torch.randn(count, 3, 3, 3), (8, 8), mode="bilinear")


def missed(model: nn.Module, dense: nn.Module, x: Tensor) -> float:
    """Squared error of the logits, as a share of theirs."""
    with torch.no_grad():
        wanted = dense(x)
        return float((model(x) - wanted).square().mean() / (wanted - wanted.mean(0)).square().mean())


@pytest.mark.parametrize("b", [2, 4])
def test_what_is_circulant_already_stays(b):
    """Also the norms, which are shared by the blocks."""
    dense = drawn(Residual)
    sizes = {"expand": b, "project": b, "head": b}
    pc.circulant_(before := copy.deepcopy(dense), sizes)
    circulant = pc.dense_state_dict(before)
    dense.load_state_dict(circulant)
    x = images(64)  # a single batch, whose statistics are the norm's
    dense.depthwise_norm.train().momentum = 1.0
    dense(x)
    model = copy.deepcopy(dense.eval())
    assert pc.circulant_(model, sizes, images=x) is model
    assert_close(model(x), dense(x), atol=1e-3, rtol=1e-3)
    assert all(is_circulant(model.get_submodule(name).weight, b) for name in sizes)


@pytest.mark.parametrize("make", [Residual, "vit", "resnet10t"])
def test_the_fit_is_nearer_than_the_projection(make):
    if make == "vit":
        dense, x = drawn(lambda: nn.Sequential(Rows(), *(Block() for _ in range(3)))), images()
    elif make == "resnet10t":
        torch.manual_seed(0)
        dense, x = timm.create_model(make, num_classes=8).eval(), images(32)
    else:
        dense, x = drawn(make), images()
    sizes = uniform_sizes(dense, 4)
    fitted, projected = copy.deepcopy(dense), copy.deepcopy(dense)
    kept = x.clone()
    pc.circulant_(fitted.train(), sizes, images=x)
    assert fitted.training
    pc.circulant_(projected, sizes)
    assert missed(fitted.eval(), dense, x) < 0.7 * missed(projected, dense, x)
    assert torch.equal(x, kept)
    assert {name: block_size_of(fitted.get_submodule(name)) for name in sizes} == sizes


@pytest.mark.usefixtures("channels_in_order")
def test_a_transformers_block_by_hand():
    """First fc1 on the normed stream, then fc2 on what the new fc1 gives; here the stream before has lost nothing."""
    dense, x = drawn(Block), images()[:, 0]
    model = pc.circulant_(copy.deepcopy(nn.Sequential(Rows(), dense)), {"1.fc1": 4, "1.fc2": 4}, images=images())[1]

    def by_hand(layer: nn.Linear, inputs: Tensor, wanted: Tensor, low: float = -math.inf) -> nn.Linear:
        target = wanted
        for _ in range(1 if low == -math.inf else 5):  # any value below will do where the wanted one is
            moments = Moments.zeros(*layer.weight.shape)
            moments.add(inputs.flatten(0, 1), target.flatten(0, 1))
            rows, offsets = fit_rows(moments, layer.weight, 4, moments.ridge(4))
            now = inputs @ expand(rows, 4).float().T + offsets.float()
            target = torch.where(wanted < low, now.clamp(max=low), wanted)
        made = copy.deepcopy(layer)
        made.weight.copy_(expand(rows, 4))
        made.bias.copy_(offsets)
        return made

    with torch.no_grad():
        normed = dense.norm(x)
        fc1 = by_hand(dense.fc1, normed, dense.fc1(normed), -1.0)
        wanted = dense.fc2(dense.act(dense.fc1(normed)))
        fc2 = by_hand(dense.fc2, dense.act(fc1(normed)), wanted)
    for name, layer in (("fc1", fc1), ("fc2", fc2)):
        assert_close(model.get_submodule(name).weight, layer.weight, atol=1e-4, rtol=1e-4)
        assert_close(model.get_submodule(name).bias, layer.bias, atol=1e-4, rtol=1e-4)


@pytest.mark.usefixtures("channels_in_order")
def test_an_inverted_residual_by_hand():
    """The norm's offset is shared, depthwise norms are measured, the end of the branch mends what the stream lost."""
    dense, x = drawn(Residual), images()
    sizes = {"stem": 1, "expand": 4, "project": 4}
    model = pc.circulant_(copy.deepcopy(dense), sizes, images=x)
    with torch.no_grad():
        stem = relu(dense.stem_norm(dense.stem(x)))
        wanted = dense.expand_norm(dense.expand(stem))
        norm = dense.expand_norm
        scaled = dense.expand.weight * (norm.weight / (norm.running_var + norm.eps).sqrt())[:, None, None, None]
        moments = Moments.zeros(16, 8)
        moments.add(stem.movedim(1, -1).reshape(-1, 8), wanted.movedim(1, -1).reshape(-1, 16))
        rows, offsets = fit_rows(moments, scaled, 4, ridge := moments.ridge(4), "block")
        read, wanted = stem.movedim(1, -1).reshape(-1, 8), wanted.movedim(1, -1).reshape(-1, 16)
        for _ in range(4):  # any value below zero will do where the wanted one is
            now = read @ expand(rows, 4).flatten(1).float().T + offsets.float()
            moments = Moments.zeros(16, 8)
            moments.add(read, torch.where(wanted < 0, now.clamp(max=0), wanted))
            rows, offsets = fit_rows(moments, scaled, 4, ridge, "block")
        by_hand = nn.functional.conv2d(stem, expand(rows, 4).float()) + offsets.float()[:, None, None]
        normed = model.expand_norm(model.expand(stem))
        assert_close(normed, by_hand, atol=1e-4, rtol=1e-4)
        measured = model.depthwise(relu(normed))
        assert_close(model.depthwise_norm.running_mean, measured.mean((0, 2, 3)), atol=1e-4, rtol=1e-4)
    assert torch.equal(model.stem.weight, dense.stem.weight)


class Rectified(nn.Module):
    """Two convolutions before rectifiers, as a basic block of a ResNet has them, and one beside."""

    def __init__(self, call) -> None:
        super().__init__()
        self.call, self.stem = call, nn.Conv2d(3, 16, 1)
        self.first, self.norm = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.second, self.second_norm = nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        y = self.call(self.norm(self.first(x)))
        return self.call(x + self.second_norm(self.second(y)))


@pytest.mark.parametrize(
    ("call", "left"),
    [(nn.ReLU(), 0.9), (relu, 0.9), (torch.relu, 0.9), (nn.ReLU6(), 0.9), (nn.GELU(), 0.99), (nn.SiLU(), 1.0)],
)
def test_a_rectifier_leaves_less_to_fit(call, left, monkeypatch):
    """The error behind rectifiers is smaller than that of the fit to the values before them; others have no rounds."""
    dense, x = drawn(lambda: Rectified(call)), images(256)
    sizes = {"stem": 1, "first": 8, "second": 8}
    fitted = pc.circulant_(copy.deepcopy(dense), sizes, images=x)
    monkeypatch.setattr(least_squares_start, "_ROUNDS", 0)
    before = pc.circulant_(copy.deepcopy(dense), sizes, images=x)
    ratio = missed(fitted, dense, x) / missed(before, dense, x)
    assert ratio == 1 if left == 1 else ratio < left


def test_a_layer_that_runs_twice_keeps_its_projection():
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(relu(self.layer(x)))

    dense, x = drawn(Twice), torch.randn(64, 8)
    fitted, projected = pc.circulant_(copy.deepcopy(dense), {"layer": 2}, images=x), copy.deepcopy(dense)
    pc.circulant_(projected, {"layer": 2})
    assert torch.equal(fitted.layer.weight, projected.layer.weight)


def test_values_that_are_written_in_place_are_seen_once():
    dense = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Hardswish(inplace=True), nn.Conv2d(8, 8, 1, bias=False)).eval()
    x = images()
    model = pc.circulant_(copy.deepcopy(dense), {"2": 2}, images=x)
    assert missed(model, dense, x) < 1
    assert [node.target for node in trace(model).graph.nodes][1:4] == ["0", "1", "2"]


def test_progress_and_refusals():
    dense, x, steps = drawn(Residual), images(), list[tuple[int, int]]()
    pc.circulant_(copy.deepcopy(dense), {"expand": 2}, images=x, progress=lambda *step: steps.append(step))
    assert [done for done, _ in steps] == list(range(1, steps[-1][1] + 1))
    with pytest.raises(RuleError, match="fitted to images or weighted by importance: got both; leave one out"):
        pc.circulant_(dense, {"expand": 2}, {"expand": torch.ones(16, 8, 1, 1)}, images=x)
    with pytest.raises(RuleError, match="images must be a tensor"):
        pc.circulant_(dense, {"expand": 2}, images=x[:0])
    assert block_size_of(dense.expand) == 1


def test_a_norm_with_an_activation_inside_gives_the_stream_what_comes_behind_it():
    """As timm's BatchNormAct2d: the stream's loss is not added before the activation."""

    class Stream(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)
            self.layer, self.norm_act = nn.Conv2d(8, 8, 1), timm.layers.BatchNormAct2d(8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.norm(self.first(x))
            return (x + self.norm_act(self.layer(x))).mean((2, 3))

    dense, x = drawn(Stream), images(64)
    sizes = {"first": 1, "layer": 4}
    fitted, projected = copy.deepcopy(dense), pc.circulant_(copy.deepcopy(dense), sizes)
    pc.circulant_(fitted, sizes, images=x)
    assert missed(fitted, dense, x) < 0.7 * missed(projected, dense, x)


@pytest.mark.parametrize("counts", [(70, 150, 300), (70, 300)])
def test_images_join_as_maps_become_smaller(monkeypatch, counts):
    """The last layer is fitted to all, behind the layers as they are."""
    model, shown = Residual().eval(), torch.rand(300, 3, 4, 4)
    nodes = len(trace(model).graph.nodes)
    starts = [0, nodes // 2, nodes - 2] if len(counts) == 3 else [0, nodes - 2]
    seen = []

    def count(self, done: int) -> int:
        seen.append(sum(map(len, self._batches)) if hasattr(self, "_batches") else 0)
        return max(number for number, start in zip(counts, starts, strict=True) if start <= done)

    monkeypatch.setattr(least_squares_start._Twins, "_count", count)
    monkeypatch.setattr("privcirnet.passes.convert.order_channels_", lambda *_: {})
    sizes = {"expand": 2, "project": 2, "head": 4}
    fitted = pc.circulant_(copy.deepcopy(model), sizes, images=shown)
    assert {*seen} == {0, *counts[:-1]}
    read = []
    fitted.head.register_forward_pre_hook(lambda _, values: read.append(values[0]))
    with torch.no_grad():
        fitted(shown)
        for number in (300, counts[0]):
            moments = Moments.zeros(8, 8)
            moments.add(read[0][:number], model(shown[:number]))
            rows, _ = fit_rows(moments, model.head.weight, 4, moments.ridge(4), "each")
            assert torch.allclose(fitted.head.weight, expand(rows, 4).float(), atol=2e-4) == (number == 300)


def test_no_more_images_than_find_room(monkeypatch):
    """A layer's 16 maps and its targets, those that it reads and those of what is added later, of both networks."""
    model, shown = Residual().eval(), torch.rand(300, 3, 4, 4)
    live = least_squares_start._live_bytes(trace(model), shown)
    assert max(live) == 2 * 4 * 16 * (8 + 16 + 2 * 16)
    assert live[-1] < max(live) / 8
    monkeypatch.setattr(least_squares_start, "_FEWEST", 8)
    monkeypatch.setattr(least_squares_start, "_BYTES", 100 * max(live))
    seen = []
    run = least_squares_start._Twins._run
    monkeypatch.setattr(
        least_squares_start._Twins, "_run", lambda of, node: (seen.append(of._batches), run(of, node))[1]
    )
    pc.circulant_(model, {"expand": 2, "head": 4}, images=shown)
    counts = [sum(map(len, batches)) for batches in seen]
    assert counts[0] == 100
    assert counts[-1] == 300
    assert counts == sorted(counts)
