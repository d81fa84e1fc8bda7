"""The ladder once more for a small vision transformer: tokens, batch norms before layers, polynomial attention.

Squares of squares and products of products are beyond what interval arithmetic proves: bounds are measured.
"""

import numpy as np
import pytest
import timm
import torch
from torch import nn

import privcirnet.models  # noqa: F401  (registers the networks)
from privcirnet.artifact import read_program, write_program
from privcirnet.he.params.parameters import WIDE_COEFFICIENT_BITS, WIDE_RING_DEGREE
from privcirnet.he.planning.cost import COUNTED, LINKS, Profile
from privcirnet.he.planning.fit import Target
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Product, Square, Truncate
from privcirnet.he.program.rearrangement import Channels, Take, Tokens, Transpose
from privcirnet.he.ring import sampling
from privcirnet.lower import lower
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.circulant import block_size_of
from privcirnet.nn.convert import circulant_
from privcirnet.nn.fuse import fuse
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.quantize import quantize
from privcirnet.pipeline import audit
from privcirnet.pipeline.export import seen_on
from tests.he.parties import protocol

LEVELS, LOG_STEP, SHAPE = 16, -4, (1, 8, 8)
WIDE = Profile("counted, wide", WIDE_RING_DEGREE, WIDE_COEFFICIENT_BITS, COUNTED.seconds)
SIZE = {"image_size": 8, "patch": 4, "depth": 2, "width": 16, "heads": 2}
BLOCKS = {
    "dense": {},
    "circulant": {
        **{"blocks.0.qkv": 4, "blocks.0.proj": 2, "blocks.0.fc1": 8, "blocks.0.fc2": 4, "head": 2, "patch_embed": 1},
        **{"blocks.1.qkv": 8, "blocks.1.proj": 16, "blocks.1.fc1": 2, "blocks.1.fc2": 16},
    },
}
CASES = [("dense", "square"), ("circulant", "square"), ("circulant", "aespa")]


def real(images):
    return images.double() * 2.0**LOG_STEP


@pytest.fixture(scope="module")
def images():
    return torch.randint(0, LEVELS + 1, (24, *SHAPE), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def case(request):
    return request.param


@pytest.fixture(scope="module")
def model(case, images):
    """A network whose norms have seen data, its constants away from what they start with."""
    blocks, activation = case
    torch.manual_seed(0)
    options = {"norm": "batch", "attention": "polynomial", "activation": activation}
    made = timm.create_model("vit_cifar", num_classes=4, in_chans=1, **SIZE, **options).double()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if name.endswith("weight") and parameter.ndim == 2:
                nn.init.orthogonal_(parameter)
            elif parameter.ndim < 4:
                parameter.add_(0.2 * torch.randn_like(parameter))
    circulant_(made, BLOCKS[blocks])
    for _ in range(30):
        made(real(images))
    return made.eval()


@pytest.fixture(scope="module")
def fused(model):
    return fuse(model)


@pytest.fixture(scope="module")
def quantized(fused, images):
    return quantize(fused, [real(images)], LOG_STEP).eval()


@pytest.fixture(scope="module")
def target(quantized, images):
    return Target(WIDE, LINKS["local"], failure_bits=4, seen=seen_on(quantized, real(images)))


@pytest.fixture(scope="module")
def program(quantized, target):
    return lower(quantized, SHAPE, LEVELS, LOG_STEP, target)


@torch.no_grad()
def test_rung_circulant_to_fused(model, fused, images, case):
    """Folding reorders a handful of float64 operations a value: 1e-10 is about 2^19 units in the last place."""
    torch.testing.assert_close(fused(real(images)), model(real(images)), rtol=1e-10, atol=1e-10)
    assert not [m for m in fused.modules() if isinstance(m, TokenBatchNorm | PolynomialAttention)]
    for name, b in BLOCKS[case[0]].items():
        assert block_size_of(fused.get_submodule(name)) == b


@torch.no_grad()
def test_rung_fused_to_fake_quant(fused, quantized, images):
    fine, coarse = fused(real(images)), quantized(real(images))
    assert (fine - coarse).abs().max() < 0.25 * fine.abs().max()
    assert not torch.equal(fine, coarse)


@torch.no_grad()
def test_rung_fake_quant_to_integer_program_is_bitwise(quantized, program, images):
    """float64 carries every integer of this network exactly, so both sides are the same numbers."""
    for image, wanted in zip(images.numpy(), quantized(real(images)).numpy(), strict=True):
        logits = interpret(program, image)[program.output.name].reshape(-1)
        assert np.array_equal(logits * 2.0**program.output.log_step, wanted)


def test_rung_program_to_folder_and_back(program, tmp_path):
    write_program(tmp_path / "program", program, {})
    again, _ = read_program(tmp_path / "program")
    assert again.nodes == program.nodes
    assert set(again.weights) == set(program.weights)
    for name, weights in program.weights.items():
        assert np.array_equal(again.weights[name].rows, weights.rows)
        assert np.array_equal(again.weights[name].bias, weights.bias)


def test_rung_integer_program_to_clear_text_engine(program, images):
    """Exactly equal, once the interpreter is told which way each truncation went; and that is by at most one unit."""
    for image in images[:3].numpy():
        logits, values, _ = protocol(program, "cleartext", image)
        assert audit.wrong_nodes(program, values) == []
        told = interpret(program, image, lambda node, _, v=values: v[node.name])
        assert np.array_equal(told[program.output.name], logits)
        first = next(n for n in program.nodes if isinstance(n.operation, Truncate))
        assert np.abs(interpret(program, image)[first.name] - values[first.name]).max() == 1


@pytest.mark.parametrize("engine", ["kernel", "tenseal"])
def test_rung_clear_text_engine_to_encrypted_is_bitwise(program, images, engine, monkeypatch):
    """With the same masks the engines give the same shares of every node, bit for bit."""
    results = []
    for name in ("cleartext", engine):
        random = np.random.default_rng(7)
        monkeypatch.setattr(sampling, "uniform", lambda shape, t, r=random: r.integers(0, t, shape, dtype=np.uint64))
        results.append(protocol(program, name, images[0].numpy()))
    (clear, clear_values, _), (encrypted, encrypted_values, _) = results
    assert np.array_equal(clear, encrypted)
    assert all(np.array_equal(clear_values[name], encrypted_values[name]) for name in clear_values)


def test_the_ladder_has_something_to_carry(program, case):
    """A guard for the tests above."""
    operations = [type(node.operation) for node in program.nodes]
    counts = {kind: operations.count(kind) for kind in (Tokens, Take, Channels, Transpose, Product, Square)}
    assert counts == {Tokens: 1, Take: 1, Channels: 6, Transpose: 2, Product: 4, Square: 4}
    assert {node.module: layer.block_size for node, layer in program.linear_nodes if layer.block_size > 1} == {
        name: b for name, b in BLOCKS[case[0]].items() if b > 1
    }
    known = {node.name: node for node in program.nodes}
    products = [node for node in program.nodes if isinstance(node.operation, Product)]
    assert all(isinstance(known[node.inputs[0]].operation, Truncate) for node in products)
    scores = [node for node in products if program.weights[node.name].bias.any()]
    assert len(scores) == 2, "those with a constant for each head"
