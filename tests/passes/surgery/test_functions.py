"""Reductions, stacks, repetitions, and layers that are no modules, as people write them."""

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
    layers = {"conv": nn.Conv2d(3, 8, 3, padding=1), "last": nn.Conv2d(8, 8, 1), "row": nn.Linear(8, 8)}
    made = Written(forward, **layers, glu=nn.GLU(1), norm=nn.BatchNorm2d(8))
    for norm in made.norm.weight, made.norm.bias, made.norm.running_mean, made.norm.running_var:
        nn.init.uniform_(norm, 0.5, 1.5)
    return made.eval()


def of_norm(net: Written, x: Tensor) -> Tensor:
    norm = net.norm
    return F.batch_norm(net.conv(x), norm.running_mean, norm.running_var, norm.weight, norm.bias)


FORMS = {
    "a mean of each axis": lambda net, x: net.row(net.conv(x).mean(-1).mean(-1)),
    "a mean of flattened places": lambda net, x: net.row(net.conv(x).flatten(2).mean(-1)),
    "a mean of viewed places": lambda net, x: net.row(net.conv(x).view(2, 8, -1).mean(2, keepdim=True).flatten(1)),
    "a sum": lambda net, x: net.row(net.conv(x).sum((2, 3))),
    "a sum of each axis": lambda net, x: net.last(net.conv(x).sum(3, keepdim=True).sum(2, keepdim=True)),
    "a sum of tokens": lambda net, x: net.row(net.conv(x).flatten(2).mT.sum(1)),
    "the largest": lambda net, x: net.row(net.conv(x).amax((2, 3))),
    "the largest, of flattened places": lambda net, x: net.row(net.conv(x).flatten(2).max(2)[0]),
    "the largest of each axis": lambda net, x: net.row(torch.max(torch.max(net.conv(x), 3).values, 2).values),
    "a stack summed": lambda net, x: torch.stack([y := net.conv(x), net.last(y), y.flip(3)]).sum(0),
    "a stack averaged": lambda net, x: torch.stack([y := net.conv(x), net.last(y)], 1).mean(1),
    "a stack shuffled": lambda net, x: torch.stack([y := net.conv(x), net.last(y)], 2).flatten(1, 2)[:, :8],
    "a stack of vectors": lambda net, x: torch.stack([y := net.row(net.conv(x).sum((2, 3))), 2 * y], 1).flatten(1),
    "gates expanded": lambda net, x: (y := net.conv(x)) * net.last(y.mean((2, 3), keepdim=True)).sigmoid().expand_as(y),
    "a gated linear unit": lambda net, x: F.glu(net.conv(x), 1) * net.glu(net.last(net.conv(x))),
    "linear": lambda net, x: F.linear(net.conv(x).mean((2, 3)), net.row.weight) @ net.row.weight,
    "convolution": lambda net, x: F.conv2d(F.conv2d(x, net.conv.weight, None, 2, 1), net.last.weight, net.row.bias),
    "batch norm": of_norm,
    "layer norm": lambda net, x: F.layer_norm(net.conv(x).mean((2, 3)), (8,), net.row.bias),
    "group norm": lambda net, x: F.group_norm(net.conv(x), 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_the_network_computes_what_it_did(name):
    model = network(FORMS[name])
    wanted = model(IMAGES)
    assert not any("fine-tune" in change.effect for change in polynomial_(model, IMAGES, "own"))
    assert_close(model(IMAGES), wanted, rtol=1e-4, atol=1e-4)
    fuse_at(model, IMAGES)


@pytest.mark.parametrize("name", ["the largest", "the largest of each axis", "a gated linear unit"])
def test_what_is_no_polynomial_in_them_is_replaced(name):
    changes = polynomial_(model := network(FORMS[name]), IMAGES)
    assert any("fine-tune" in change.effect for change in changes)
    fuse_at(model, IMAGES)


def test_they_run_encrypted():
    def forward(net: Written, x: Tensor) -> Tensor:
        x = F.conv2d(F.relu(net.conv(x)), net.last.weight.flip(0), net.row.bias)
        gates = torch.sigmoid(x.flatten(2).mean(-1)).view(-1, 8, 1, 1).expand_as(x)
        x = torch.stack([x, net.last(x)], 1).mean(1) * gates
        return F.linear(x.sum((2, 3)) / 16 + x.flip(2).flatten(2).max(2)[0], net.row.weight)

    model, images = network(forward), torch.rand(16, 3, 8, 8)
    wanted = model(images)
    polynomial_(model, images, "own")
    quantized = pc.quantize(model, images)
    program = pc.compile(quantized, images, profile="counted", progress=False)
    assert torch.equal(program(images[:1], check=True, engine="cleartext"), quantized(images[:1]))
    assert_close(quantized(images), wanted, rtol=0, atol=0.05)


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: F.linear(net.conv(x).mean((2, 3)), net.conv(x).mean((0, 2, 3))[None]),
        lambda net, x: net.conv(x) @ net.conv(x),
        lambda net, x: F.batch_norm(net.conv(x), None, None, training=True),
    ],
)
def test_weights_of_images_are_named(forward):
    with pytest.raises(RuleError, match="let layers and norms have weights that depend on no image"):
        polynomial_(network(forward), IMAGES, "own")
