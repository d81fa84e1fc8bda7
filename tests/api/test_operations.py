"""Operations that others write in many ways, from the network to encrypted logits: exact until the quantized network."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.nn.activations import Square
from tests.conftest import WHOLE


class Written(nn.Module):
    """Two convolutions, then what a test writes, then a linear layer."""

    def __init__(self, forward: Callable[["Written", Tensor], Tensor], channels: int = 8, **first: object) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, **{"kernel_size": 3, "padding": 1, **first})
        self.second, self.head = nn.Conv2d(8, 8, 1), nn.Linear(channels, 4)
        self.written = forward

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.written(self, self.first(x)).mean((2, 3)))


def shuffled(_: Written, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, 2, c // 2, h, w).transpose(1, 2).contiguous().view(n, c, h, w)


def channels_last(_: Written, x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    turned = x.permute(0, 2, 3, 1).contiguous().view(n, h, w * c)
    return turned.view(n, h, w, c).permute(0, 3, 1, 2).clone()


WRITTEN: dict[str, Callable[[Written, Tensor], Tensor]] = {
    "a shuffle with a copy in it": shuffled,
    "axes moved, copied and viewed": channels_last,
    "sum of a list": lambda net, x: sum([x, net.second(x)]),
    "0 + x": lambda _, x: 0 + x,
    "x + 1": lambda net, x: net.second(x + 1.0),
    "-x, of a square": lambda net, x: net.second(-x.square()),
    "3 - x": lambda _, x: 3 - x,
    "x / 3, of a square": lambda net, x: net.second(x.square() / 3),
    "x - y": lambda net, x: x - net.second(x),
    "y.sub(x), of squares": lambda net, x: net.second(x).square().sub(x.square()),
    "x + x": lambda _, x: x + x,
}


def encrypted(model: nn.Module, images: Tensor, engine: str = "kernel") -> tuple[Tensor, Tensor]:
    """Logits of the quantized network and encrypted ones, all that is exact on the way being compared."""
    model.eval()
    with torch.no_grad():
        expected = copy.deepcopy(model)(images[:2])
        pc.polynomial_(model, images)
        assert_close(model(images[:2]), expected, rtol=1e-4, atol=1e-5)
        fused = pc.fuse(model)
        assert_close(fused(images[:2]), expected, rtol=1e-4, atol=1e-4)
        quantized = pc.quantize(fused, images, activation_bits=14, stream_bits=16).eval()
        assert_close(quantized(images[:2]), expected, rtol=0, atol=0.06 * expected.abs().max().item())
        program = pc.compile(quantized, images, profile="counted", progress=False, failure_bits=20, rehearsed_images=0)
    return quantized(images[:2]), program(images[:2], engine=engine, check=True)


@pytest.mark.parametrize("name", WRITTEN)
def test_operations_run_encrypted(name):
    torch.manual_seed(0)
    quantized, found = encrypted(Written(WRITTEN[name]), torch.rand(16, 3, 4, 4))
    assert_close(found, quantized, rtol=0, atol=1e-2 * quantized.abs().max().item())


class Convolved(nn.Module):
    """A layer, convolutions of a map of 7 x 5 with norms and squares, a sum with what they read, a linear layer."""

    def __init__(self, pad: nn.Module | None = None, around: bool = False, **options: object) -> None:
        super().__init__()
        self.first, self.pad, self.around = nn.Conv2d(3, 8, 1), pad, around
        self.conv, self.norm = nn.Conv2d(8, 8, **{"kernel_size": 3, **options}), nn.BatchNorm2d(8)
        self.square, self.last = Square(), nn.Conv2d(8, 8, 1)
        self.head = nn.LazyLinear(4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.square(self.norm(self.conv(self.pad(x) if self.pad else x)))
        y = self.last(y) + x if self.around else self.last(y)
        return self.head(y.flatten(1))


CONVOLVED: dict[str, Callable[[], nn.Module]] = {
    "strides of 2 and 1": lambda: Convolved(stride=(2, 1), padding=1),
    "strides of 2 and 4, a square kernel": lambda: Convolved(stride=(2, 4), padding=1),
    "more rows than columns lost": lambda: Convolved(padding=(0, 1)),
    "a row of weights": lambda: Convolved(kernel_size=(1, 3)),
    "both, dilated": lambda: Convolved(kernel_size=(3, 1), padding=(0, 1), stride=(1, 2), dilation=(2, 1)),
    "strides of 2, padded on one side": lambda: Convolved(stride=2, padding=(0, 1)),
    "reflected": lambda: Convolved(padding=1, padding_mode="reflect", around=True),
    "repeated, groups": lambda: Convolved(padding=(2, 1), padding_mode="replicate", stride=(2, 1), groups=4),
    "wrapped, same": lambda: Convolved(padding="same", padding_mode="circular", dilation=2),
    "a module that reflects, unlike on each side": lambda: Convolved(nn.ReflectionPad2d((1, 0, 2, 1))),
    "a function that repeats": lambda: Convolved(Replicated()),
    "an odd number of rows less": lambda: Convolved(kernel_size=(2, 3)),
    "zeros below and on the right": lambda: Convolved(nn.ZeroPad2d((0, 1, 0, 1)), stride=2),
    "same, of even sides": lambda: Convolved(kernel_size=(4, 2), padding="same", around=True),
    "an image reflected": lambda: nn.Sequential(nn.ReflectionPad2d(1), Convolved()),
}


class Replicated(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, (1, 1, 1, 1), mode="replicate")


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("name", CONVOLVED)
def test_any_convolution_runs_encrypted(name):
    """In the engine's clear-text twin, which turns slots as it does, or encrypted in ``make test-all``."""
    torch.manual_seed(0)
    model, images = CONVOLVED[name](), torch.rand(16, 3, 7, 5)
    for _ in range(20):
        model.train()(images)
    quantized, found = encrypted(model, images, "kernel" if WHOLE else "cleartext")
    assert_close(found, quantized, rtol=0, atol=1e-2 * quantized.abs().max().item())


def vectors(*layers: nn.Module) -> nn.Module:
    """Features of a convolution, then layers of vectors; batch norms measured and unlike what they start from."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 1), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16), *layers)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias)
    for _ in range(20):
        model.train()(torch.rand(16, 3, 4, 4))
    return model


VECTORS: dict[str, Callable[[], nn.Module]] = {
    "behind a linear layer": lambda: vectors(nn.BatchNorm1d(16), nn.Linear(16, 4)),
    "and a square": lambda: vectors(nn.BatchNorm1d(16), Square(), nn.Linear(16, 4)),
    "before a linear layer": lambda: vectors(Square(), nn.BatchNorm1d(16), nn.Linear(16, 4)),
    "between squares": lambda: vectors(Square(), nn.BatchNorm1d(16), Square(), nn.Linear(16, 4)),
    "at the end": lambda: vectors(nn.Linear(16, 4), nn.BatchNorm1d(4)),
    "scaled logits": lambda: nn.Sequential(vectors(nn.Linear(16, 4)), Scaled()),
    "a scaled square": lambda: nn.Sequential(vectors(Square()), Scaled(), nn.Linear(16, 4)),
}


class Scaled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x / 4 - 0.5


@pytest.mark.parametrize("name", VECTORS)
def test_norms_and_scales_of_vectors_run_encrypted(name):
    quantized, found = encrypted(VECTORS[name](), torch.rand(16, 3, 4, 4))
    assert_close(found, quantized, rtol=0, atol=1e-2 * quantized.abs().max().item())
