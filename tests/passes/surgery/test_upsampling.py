"""Maps that become larger: copies of values cost nothing, transposed convolutions are convolutions and moves."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.moves import Rearrange
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.surgery import polynomial_
from tests.nn.networks import Written


def images(height: int = 5, width: int = 7, channels: int = 3, count: int = 2) -> Tensor:
    return torch.randn(count, channels, height, width, generator=torch.Generator().manual_seed(0))


class Copies(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        return x[:, :, :, None, :, None].expand(n, c, h, 2, w, 3).reshape(n, c, 2 * h, 3 * w)


class Function(nn.Module):
    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


COPIES = {
    "module": nn.Upsample(scale_factor=2),
    "nearest module": nn.UpsamplingNearest2d(scale_factor=3),
    "two scales": nn.Upsample(size=(10, 21)),
    "function": Function(lambda x: F.interpolate(x, scale_factor=2)),
    "exact": Function(lambda x: F.interpolate(x, (15, 14), mode="nearest-exact")),
    "no integer": Function(lambda x: F.interpolate(x, (8, 10))),
    "smaller": Function(lambda x: F.interpolate(x, (3, 4))),
    "expand": Copies(),
    "repeat_interleave": Function(lambda x: torch.repeat_interleave(x.repeat_interleave(2, 2), 2, dim=3)),
    "tiles": Function(lambda x: x.repeat(1, 1, 2, 1).tile((1, 1, 1, 2))),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_are_moves(name):
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), COPIES[name], nn.Conv2d(4, 2, 3)).eval()
    before = model(x := images())
    assert not any(change.effect for change in polynomial_(model, x, "own"))
    assert any(isinstance(module, Rearrange) for module in model.modules())
    assert_close(model(x), before)


def test_interpolations_of_other_values_than_maps_are_refused():
    model = Written(lambda net, x: F.interpolate(net.conv(x).flatten(2), 40, mode="linear"), conv=nn.Conv2d(3, 4, 3))
    with pytest.raises(RuleError, match=r"got interpolate \(interpolate\); upsample maps \(N, C, H, W\)"):
        polynomial_(model, images(), "own")


TRANSPOSED: dict[str, nn.ConvTranspose2d] = {
    "side by side": nn.ConvTranspose2d(4, 6, 2, 2),
    "4 / 2": nn.ConvTranspose2d(4, 6, 4, 2, 1),
    "3 / 2": nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1),
    "odd": nn.ConvTranspose2d(4, 6, 3, 2),
    "stride 1": nn.ConvTranspose2d(4, 6, 3, 1, 2),
    "gaps": nn.ConvTranspose2d(4, 6, 2, 3, output_padding=2),
    "groups": nn.ConvTranspose2d(4, 6, 4, 2, 1, groups=2, bias=False),
    "dilated": nn.ConvTranspose2d(4, 6, 3, 2, 2, dilation=2, output_padding=1),
    "rectangular": nn.ConvTranspose2d(4, 6, (3, 5), (1, 2), (1, 2), output_padding=(0, 1)),
    "large": nn.ConvTranspose2d(4, 6, 7, 2, 5),
}


@pytest.mark.parametrize("road", ["own", "aespa"])
@pytest.mark.parametrize("name", TRANSPOSED)
def test_a_transposed_convolution_is_a_convolution(name, road):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), TRANSPOSED[name], nn.BatchNorm2d(6), nn.Conv2d(6, 2, 1)).eval()
    before = model(x := images())
    changes = polynomial_(model, x, road)
    assert (changes[0].path, changes[0].before, changes[0].after) == ("1", "ConvTranspose2d", "Conv2d")
    assert not any(isinstance(module, nn.ConvTranspose2d) for module in model.modules())
    assert_close(model(x), before)
    assert_close(fuse_at(model, x)(x), before)


def test_the_whole_road_of_a_decoder():
    """Bit for bit what the quantized network gives; an image may be made larger itself."""
    torch.manual_seed(0)
    forward = lambda net, x: net.head(net.up(net.two(F.interpolate(x, scale_factor=2)).square()).square())  # noqa: E731
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    model = Written(forward, two=nn.Conv2d(1, 4, 3, 2, 1), up=nn.ConvTranspose2d(4, 4, 4, 2, 1), head=head).eval()
    x = images(5, 4, channels=1, count=12)
    polynomial_(model, x, "square")
    quantized = pc.quantize(model, x)
    program = pc.compile(quantized, x, profile="counted", truncation="exact", progress=False)
    found = program(x[:2], check=True, engine="cleartext").double()
    assert torch.equal(found, quantized.double().eval()(x[:2].double()).detach())
