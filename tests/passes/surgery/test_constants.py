"""Constants of a network, be they numbers, parameters, buffers or tensors, go into what is beside them."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.errors import RuleError
from privcirnet.nn.norm import Affine
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.surgery import polynomial_
from tests.nn.networks import Written

IMAGES = torch.rand(2, 3, 8, 8)


def network(forward) -> Written:
    torch.manual_seed(0)
    made = Written(forward, conv=nn.Conv2d(3, 8, 3, padding=1), last=nn.Conv2d(8, 8, 1), row=nn.Linear(8, 8))
    for name, value in {
        "mean": torch.rand(3, 1, 1),
        "std": torch.rand(3, 1, 1) + 0.5,
        "channels": torch.rand(1, 8, 1, 1) + 0.5,
        "number": torch.tensor([1.3]),
        "columns": torch.rand(8),
        "places": torch.rand(8, 8, 8),
        "positions": torch.rand(1, 64, 8),
    }.items():
        made.register_buffer(name, value)
    made.temperature = nn.Parameter(torch.tensor([1.0]))
    return made.eval()


FORMS = {
    "(image - mean) / std": lambda net, x: net.conv((x - net.mean) / net.std),
    "image * (1 / std)": lambda net, x: net.conv(x * (1 / net.std)),
    "image - places": lambda net, x: net.conv(x - net.places[:3]),
    "x / channels": lambda net, x: net.last(net.conv(x) / net.channels),
    "channels - x": lambda net, x: net.last(net.channels - net.conv(x)),
    "channels + x": lambda net, x: net.last(net.channels + net.conv(x)),
    "x - channels, without a layer before": lambda net, x: net.last(torch.relu(net.conv(x)) - net.channels),
    "x / number": lambda net, x: net.last(net.conv(x) / net.number),
    "x / temperature": lambda net, x: net.last(net.conv(x) / net.temperature),
    "x + columns": lambda net, x: net.last(net.conv(x) + net.columns),
    "places - x": lambda net, x: net.last(net.places - net.conv(x)),
    "ones_like": lambda net, x: net.last(torch.ones_like(net.conv(x)) - net.conv(x)),
    "expand_as": lambda net, x: net.last(net.conv(x) * net.channels.expand_as(x[:, :1].expand(-1, 8, -1, -1))),
    "tokens": lambda net, x: net.row(net.conv(x).flatten(2).mT + net.positions),
    "vectors": lambda net, x: net.row((net.conv(x).mean((2, 3)) - net.columns) / (net.columns + 1)),
    "factor of a term": lambda net, x: torch.add(y := net.conv(x), net.last(y), alpha=0.5),
    "factor of what is subtracted": lambda net, x: torch.rsub(y := net.conv(x), net.last(y), alpha=0.5),
    "a term of fewer places": lambda net, x: (y := net.conv(x)) - y.mean((2, 3), keepdim=True),
    "numbers alone": lambda net, x: net.last(1 - net.conv(x) / 4 + 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_network_computes_what_it_did(name):
    model = network(FORMS[name])
    wanted = model(IMAGES)
    assert not any("fine-tune" in change.effect for change in polynomial_(model, IMAGES, "own"))
    assert_close(model(IMAGES), wanted, rtol=1e-4, atol=1e-5)
    fuse_at(model, IMAGES)
    assert not {*dict(model.named_buffers()), *dict(model.named_parameters())} & {"mean", "std", "channels", "places"}


def test_an_encrypted_network_has_its_constants():
    def forward(net: Written, x: Tensor) -> Tensor:
        x = torch.relu(net.conv((x - net.mean) / net.std) / net.channels) - net.channels
        x = net.places - net.last(x)
        return net.row((x.mean((2, 3)) + net.columns) / net.number)

    model, images = network(forward), torch.rand(16, 3, 8, 8)
    wanted = model(images)
    polynomial_(model, images, "own")
    quantized = pc.quantize(model, images)
    program = pc.compile(quantized, images, profile="counted", progress=False)
    assert torch.equal(program(images[:1], check=True, engine="cleartext"), quantized(images[:1]))
    assert_close(quantized(images), wanted, rtol=0.02, atol=0.02)


@pytest.mark.parametrize(("name", "trains"), [("number", False), ("temperature", True)])
def test_what_is_trained_stays_trainable(name, trains):
    model = network(lambda net, x: net.last(net.conv(x) * getattr(net, name)))
    polynomial_(model, IMAGES, "own")
    kinds = [type(module) for module in model.children()]
    assert (Affine in kinds, nn.BatchNorm2d in kinds) == (not trains, trains)


@pytest.mark.parametrize("activation", ["own", "aespa"])
@pytest.mark.parametrize(
    ("forward", "got"),
    [
        (lambda net, x: (y := net.conv(x)) / y.norm(dim=1, keepdim=True), r"div .*divide by numbers, param"),
        (lambda net, x: 1 / (1 + net.conv(x) ** 2), r"div .*let numbers and constants scale values"),
        (lambda net, x: torch.div(net.conv(x), net.channels, rounding_mode="floor"), r"div .*let numbers and"),
        (lambda net, x: net.conv(x) * net.places, r"mul .*multiply values by constants of channels"),
        (lambda net, x: net.conv(x) * 0, r"mul .*a number that is not 0"),
    ],
)
def test_other_divisors_and_factors_are_named(forward, got, activation):
    with pytest.raises(RuleError, match=got):
        polynomial_(network(forward), IMAGES, activation)
