"""Channels of constants beside those of a map, as in ResNet's shortcuts of option A."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.surgery import polynomial_
from tests.nn.networks import Written

IMAGES = torch.rand(2, 3, 8, 8)


def network(forward) -> Written:
    torch.manual_seed(0)
    made = Written(forward, conv=nn.Conv2d(3, 4, 3, padding=1), last=nn.Conv2d(4, 16, 1, 2), row=nn.Linear(16, 4))
    made.register_buffer("places", torch.rand(1, 2, 8, 8))
    return made.eval()


def option_a(net: Written, x: Tensor) -> Tensor:
    x = net.conv(x)
    return net.row(torch.relu(net.last(x) + F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, 6, 6))).mean((2, 3)))


W = torch.rand(8, 16)
FORMS = {
    "zeros": lambda net, x: torch.cat([y := net.conv(x), torch.zeros_like(y)], 1),
    "more zeros than channels": lambda net, x: torch.cat([torch.zeros(2, 9, 8, 8), net.conv(x)], 1),
    "places": lambda net, x: torch.cat([net.places.expand(2, -1, -1, -1), net.conv(x), net.conv(x)], 1),
    "of the image": lambda net, x: net.last(torch.cat([x, torch.ones_like(x[:, :1])], 1)),
    "a pad of ones": lambda net, x: F.pad(net.conv(x), (0, 0, 0, 0, 0, 2), value=1.0),
    "option A": option_a,
    "the first of all channels": lambda net, x: net.row(net.last(net.conv(x)).mean((2, 3), True).flatten(1)[:, :8] @ W),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("activation", ["own", "identity"])
def test_the_network_computes_what_it_did(name, activation):
    model = network(FORMS[name])
    wanted = model(IMAGES)
    polynomial_(model, IMAGES, activation)
    if activation == "own":
        assert_close(model(IMAGES), wanted, rtol=1e-4, atol=1e-5)
    fuse_at(model, IMAGES)


def test_option_a_runs_encrypted():
    model, images = network(option_a), torch.rand(16, 3, 8, 8)
    wanted = model(images)
    polynomial_(model, images, "own")
    quantized = pc.quantize(model, images)
    program = pc.compile(quantized, images, profile="counted", progress=False)
    assert torch.equal(program(images[:1], check=True, engine="cleartext"), quantized(images[:1]))
    assert_close(quantized(images), wanted, rtol=0, atol=0.03)


def test_more_constants_than_a_map_has_channels_are_named():
    model = network(lambda net, x: torch.cat([net.conv(x), torch.cat([net.places.expand(2, -1, -1, -1)] * 3, 1)], 1))
    with pytest.raises(RuleError, match=r"cat.*no more constant ones than a map has"):
        polynomial_(model, IMAGES, "own")
