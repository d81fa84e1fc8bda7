"""RMS norms, as modules and functions, of tokens, vectors and maps."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import privcirnet as pc
from privcirnet.nn.exact_functions import DecomposedLayerNorm
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.passes.fuse import fuse_at
from privcirnet.passes.surgery import polynomial_
from tests.nn.networks import Written


def network(forward) -> Written:
    torch.manual_seed(0)
    made = Written(forward, conv=nn.Conv2d(3, 8, 4, 4), norm=nn.RMSNorm(8, eps=1e-3), row=nn.Linear(8, 8))
    nn.init.uniform_(made.norm.weight, 0.5, 1.5)
    return made.eval()


FORMS = {
    "tokens": lambda net, x: net.row(net.norm(net.conv(x).flatten(2).mT)),
    "vectors": lambda net, x: net.row(net.norm(net.conv(x).mean((2, 3)))),
    "places of a map": lambda net, x: net.row(net.norm(net.conv(x).permute(0, 2, 3, 1))),
    "a function": lambda net, x: net.row(F.rms_norm(net.conv(x).flatten(2).mT, (8,), net.norm.weight)),
}


@pytest.mark.parametrize("name", FORMS)
def test_they_run_exactly(name):
    model, images = network(FORMS[name]), torch.rand(8, 3, 8, 8)
    wanted = model(images)
    assert not any(change.effect for change in polynomial_(model, images, "own"))
    fused = fuse_at(model, images)
    assert_close(fused(images).flatten(), wanted.flatten(), rtol=1e-4, atol=1e-4)
    assert_close(pc.quantize(fused, images)(images).flatten(), wanted.flatten(), rtol=0, atol=0.05)


def test_encrypted_they_are_the_quantized_networks():
    model = network(lambda net, x: net.row(net.norm(net.conv(x).flatten(2).mT)).mean(1))
    images = torch.rand(8, 3, 8, 8)
    polynomial_(model, images, "own")
    quantized = pc.quantize(model, images)
    program = pc.compile(quantized, images, profile="counted", progress=False)
    assert torch.equal(program(images[:1], check=True, engine="cleartext"), quantized(images[:1]))


def test_a_polynomial_network_has_a_batch_norm():
    model = network(FORMS["tokens"])
    polynomial_(model, torch.rand(2, 3, 8, 8))
    assert isinstance(model.norm, TokenBatchNorm)


def test_the_pieces_are_torchs():
    x = torch.randn(2, 3, 5)
    pieces = DecomposedLayerNorm(5, 3, 1e-3, centers=False)
    assert_close(5**0.5 * pieces(x), F.rms_norm(x, (5,), eps=1e-3), rtol=1e-5, atol=1e-5)
