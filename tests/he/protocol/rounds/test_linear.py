"""Linear layers on shares: every slot that is sent is uniformly masked, and the counts are the plan's."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from privcirnet.he.bfv.engines import ENGINES, engine_of
from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer, encode_weights
from privcirnet.he.layers.spectral_layout import slots_to_lanes
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.ring import cyclic, modular, sampling
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer
from tests.he.networks import bottleneck, network, random_image
from tests.he.parties import check, parties
from tests.he.protocol.uniformity import LIMIT, REPLIES, pairwise, worst_chi_square

ENCRYPTED = ("kernel", "tenseal")
N = 64
LAYERS = [
    SpectralLayer(LinearShape(2, 2, 2, 2, 3, 1, 1), 2, N, (2, 2), (Piece(1, 1, 2, 1),)),
    SpectralLayer(LinearShape(3, 3, 3, 1, 3, 2, 1), 1, N, (2, 2), (Piece(1, 1, 4, 1, folds_on_shares=False),)),
    SpectralLayer(LinearShape(4, 2, 1, 2, 3, 1, 1), 1, N, (2, 2), (Piece(1, 1, 4, 1), Piece(1, 1, 2, 1, 1, True))),
    SpectralLayer(LinearShape(2, 2, 3, 3, 3, 1, 1, groups=3), 1, N, (2, 2), (Piece(3, 1, 2, 1),)),
    SpectralLayer(LinearShape.gemm(3, 4, 2), 1, N, (1, 1), (Piece(1, 3, 16, 1, 2),)),
    SpectralLayer(LinearShape.gemm(1, 3, 2), 1, N, (1, 1), (Piece(1, 1, 32, 2, folds_on_shares=False),)),
    SpectralLayer(LinearShape.gemm(4, 8, 8), 1, N, (1, 1), (Piece(1, 4, 16, 2, giants_on_shares=True),)),
    SpectralLayer(LinearShape.gemm(4, 8, 2), 1, N, (1, 1), (Piece(1, 4, 16, 1),)),
]
"""Whole and half-used lanes and ciphertexts, padding, tiles, groups, copies, folds, giant steps on shares."""


def replies_to(layer: SpectralLayer) -> tuple[np.ndarray, int]:
    """Decrypted replies to one and the same request, (replies, slots)."""
    parameters = insecure_parameters(N, layer.transform_lengths, 20)
    bias = np.arange(layer.shape.out_channels)
    party = Party(layer, random_rows(layer.shape, layer.block_size), bias, parameters)
    t = parameters.plain_modulus
    request = party.exchange.request([modular.residues(random_input(layer.shape), t)], party.client)
    found = []
    for _ in range(REPLIES):
        messages, _ = party.exchange.reply(party.held, [None], request, party.server, party.keys)
        found.append(np.concatenate([party.client.decrypt(m) for m in messages]))
    return np.stack(found), t


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.shape.kind}-{layer.layout.cell}")
def test_every_slot_of_a_reply_is_uniform(layer: SpectralLayer) -> None:
    """And every two of them together: also slots that hold no output, where bare products would tell the weights."""
    samples, t = replies_to(layer)
    assert samples.shape[1] == layer.ciphertexts_out * N
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


def test_padding_is_masked_too() -> None:
    """Transformed back, every position of a block is uniform, the ones that are cut off as well.

    Each slot mixes all positions, so a mask of the wanted ones alone passes the tests on slots; the cut-off ones
    would show sums of products of the weights.
    """
    layer = LAYERS[0]
    layout = layer.layout
    samples, t = replies_to(layer)
    assert (layout.cell, layout.extent) == (2 * 3 * 3, (3, 3))
    blocks = slots_to_lanes(samples, 2)[:, 0, : layout.cell].reshape(-1, 2, *layout.extent)
    for axis in (1, 2, 3):
        blocks = cyclic.cyclic(blocks, axis, t, inverse=True)
    positions = blocks.reshape(len(samples), -1)
    assert positions.shape[1] == 2 * 3 * 3
    assert worst_chi_square(positions, t) < LIMIT
    assert worst_chi_square(pairwise(positions, t), t) < LIMIT


def test_the_test_sees_an_unmasked_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fill of unused slots left out, or one mask for two slots, the figures are far over their limit."""
    original = sampling.uniform

    def unfilled(shape: tuple[int, ...], t: int) -> Any:
        slots = original(shape, t)
        slots[..., -1] = 0
        return slots

    def repeated(shape: tuple[int, ...], t: int) -> Any:
        slots = original(shape, t)
        slots[..., 0] = slots[..., 1]
        return slots

    with monkeypatch.context() as patch:
        patch.setattr(sampling, "uniform", unfilled)
        assert worst_chi_square(*replies_to(LAYERS[0])) > 10 * LIMIT
    with monkeypatch.context() as patch:
        patch.setattr(sampling, "uniform", repeated)
        samples, t = replies_to(LAYERS[0])
        assert worst_chi_square(pairwise(samples, t), t) > 10 * LIMIT


@pytest.mark.parametrize("name", ENCRYPTED)
def test_encrypted_replies_differ_in_every_slot(name: str) -> None:
    """An encrypted engine on one request twice: no slot keeps its value."""
    layer = paper_layer(LinearShape(4, 4, 4, 4, 3, 1, 1), 2, 8192)
    parameters = network().parameters
    client, server = engine_of(name).parties(parameters)
    rows = random_rows(layer.shape, 2)
    spectrum = spectral_layer.weight_spectrum(layer.layout, rows, parameters.plain_modulus)
    exchange, held = LinearExchange(layer), PreparedNode(encode_weights(layer, spectrum, server))
    keys = server.load_keys(client.public_keys(layer.column_steps), layer.column_steps)
    request = exchange.request([modular.residues(random_input(layer.shape), parameters.plain_modulus)], client)
    first, second = (
        np.concatenate([client.decrypt(m) for m in exchange.reply(held, [None], request, server, keys)[0]])
        for _ in range(2)
    )
    assert (first != second).all()


@pytest.mark.parametrize("engine", ENGINES)
def test_a_depthwise_layer_is_one_product_for_each_ciphertext_and_no_rotation(engine: str) -> None:
    program = bottleneck()
    client, session = parties(program, engine)
    check(program, client, session, random_image(program))
    layer = dict((node.name, layer) for node, layer in program.linear_nodes)["depth"]
    done = session.preparation.counts["depth"]
    assert (done["rotate"], done["pmult"]) == (layer.rotations, layer.pmults) == (0, layer.ciphertexts_in)
    assert (layer.ciphertexts_in, layer.ciphertexts_out) == (4 + 4 + 1 + 1, 4), (
        "four phase images, apart and in four lanes"
    )


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.shape.kind}-{layer.layout.cell}")
def test_without_a_bias_it_is_zero(layer: SpectralLayer) -> None:
    rows, zero = random_rows(layer.shape, layer.block_size, 0, 3), np.zeros(layer.shape.out_channels, dtype=np.int64)
    parameters = insecure_parameters(N, layer.transform_lengths, 20)
    party = Party(layer, rows, zero, parameters)
    x = random_input(layer.shape, 1, 9)
    expected = party.run(x)
    party.held = dataclasses.replace(party.held, bias=None)
    assert (party.run(x) == expected).all()
    assert (expected == slow_layer(layer.shape, layer.block_size, rows, zero, x)).all()
