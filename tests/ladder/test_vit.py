"""What a vision transformer brings to the ladder."""

import copy

import numpy as np
import pytest
import torch

from privcirnet.he.program import operations as op
from privcirnet.he.program.rearrangement import Channels, Take, Tokens, Transpose
from privcirnet.nn.attention import PolynomialAttention
from privcirnet.nn.learned import learn_steps_
from privcirnet.nn.norm import TokenBatchNorm
from privcirnet.nn.quantize import quantize
from tests.ladder.case import LOG_STEP, logits_of, real
from tests.ladder.training import train_a_little_
from tests.ladder.vit import VITS


@pytest.fixture(params=VITS, ids=lambda case: case.name)
def case(request):
    return request.param


def test_norms_and_attention_are_folded(case):
    assert not [m for m in case.fused.modules() if isinstance(m, TokenBatchNorm | PolynomialAttention)]


def test_the_ladder_has_something_to_carry(case):
    program = case.program
    operations = [type(node.operation) for node in program.nodes]
    counts = {kind: operations.count(kind) for kind in (Tokens, Take, Channels, Transpose, op.Product, op.Square)}
    assert counts == {Tokens: 1, Take: 1, Channels: 6, Transpose: 2, op.Product: 4, op.Square: 4}
    assert {node.module: layer.block_size for node, layer in program.linear_nodes if layer.block_size > 1} == {
        name: b for name, b in case.blocks.items() if b > 1
    }
    known = {node.name: node for node in program.nodes}
    products = [node for node in program.nodes if isinstance(node.operation, op.Product)]
    assert all(isinstance(known[node.inputs[0]].operation, op.Truncate) for node in products)
    scores = [node for node in products if program.weights[node.name].bias.any()]
    assert len(scores) == 2, "those with a constant for each head"


@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("stream_bits", [8, 10, 14])
def test_streams_of_every_width_are_the_integer_program_s_bitwise(stream_bits, learned):
    """Trained for a few steps, which at random rounding and clipping differ from evaluation; then bitwise again."""
    case = VITS[1]
    network = quantize(case.fused, [real(case.images)], LOG_STEP, stream_bits=stream_bits)
    calibrated = copy.deepcopy(network.state_dict())
    if learned:
        learn_steps_(network)
    train_a_little_(network, case.fused(real(case.images)).detach(), case.images)
    network.eval()
    steps = {name: value for name, value in network.state_dict().items() if name.endswith("log_step")}
    assert any(not torch.equal(value, calibrated[name]) for name, value in steps.items()) == learned
    program, expected = case.lowered(network), network(real(case.images)).detach().numpy()
    for image, wanted in zip(case.images, expected, strict=True):
        assert np.array_equal(logits_of(program, image), wanted)
