"""A rung more: pairs of project and expand as one layer each, from the fused network to the encrypted one."""

from dataclasses import replace

import numpy as np
import torch

from privcirnet.he.program import operations as op
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.protocol import message_sizes
from privcirnet.he.protocol.session import prepare
from privcirnet.pipeline import audit
from tests.he.parties import check, parties, protocol
from tests.ladder.case import logits_of, real
from tests.ladder.mobilenetv2 import MOBILENETV2
from tests.ladder.training import train_a_little_

COMPOSED = replace(
    MOBILENETV2,
    name="mobilenetv2, composed",
    build=lambda images: MOBILENETV2.circulant,
    composed=("down.expand", "same.expand", "last"),
)
"""Alone, with y1 kept for a residual, and with a residual as a second input."""


@torch.no_grad()
def test_composed_is_fused():
    apart, together = MOBILENETV2.fused(real(COMPOSED.images)), COMPOSED.fused(real(COMPOSED.images))
    tolerance = MOBILENETV2.folding
    torch.testing.assert_close(together, apart, rtol=tolerance, atol=tolerance * apart.abs().max().item())


def test_training_to_integer_program_is_bitwise():
    """Composed weights are trained on as any others: circulant, each with its step."""
    network = COMPOSED.quantized
    train_a_little_(network, MOBILENETV2.fused(real(COMPOSED.images)).detach(), COMPOSED.images)
    network.eval()
    program = COMPOSED.lowered(network)
    with torch.no_grad():
        expected = network(real(COMPOSED.images)).numpy()
    for image, wanted in zip(COMPOSED.images, expected, strict=True):
        assert np.array_equal(logits_of(program, image), wanted)


def test_the_program_has_a_layer_and_a_round_less_for_each_pair():
    program, apart = COMPOSED.program, MOBILENETV2.program
    layers = {node.module: layer for node, layer in program.linear_nodes}
    assert layers.keys() == {node.module for node, _ in apart.linear_nodes} - {
        f"{n}.project" for n in ("first", "down", "same")
    }
    assert {name: layers[name].block_size for name in COMPOSED.composed} == dict.fromkeys(COMPOSED.composed, 4)
    sizes = {name: (layers[name].shape.in_channels, layers[name].shape.out_channels) for name in COMPOSED.composed}
    assert sizes == {"down.expand": (8, 24), "same.expand": (24, 12 + 36), "last": (36 + 12, 20)}
    operations = [type(node.operation) for node in program.nodes]
    assert (operations.count(op.Concat), operations.count(op.Channels), operations.count(op.Add)) == (1, 2, 0)
    assert message_sizes.rounds(apart) - message_sizes.rounds(program) == 3


def test_integer_program_to_clear_text_engine_and_to_prepared():
    image = COMPOSED.images[0].numpy()
    logits, values, _ = protocol(COMPOSED.program, "cleartext", image)
    assert audit.wrong_nodes(COMPOSED.program, values) == []
    told = interpret(COMPOSED.program, image, lambda node, _, v=values: v[node.name])
    assert np.array_equal(told[COMPOSED.program.output.name], logits)
    client, session = parties(COMPOSED.program, "cleartext")
    prepare(client, session, 1)
    check(COMPOSED.program, client, session, image)
    assert client.used == "prepared"
