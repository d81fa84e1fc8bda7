"""Spectral layers as both parties use them: exact under encryption, special cases of other papers, uniform masks."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout, lanes_to_slots, slots_to_lanes
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer, plan_layer
from privcirnet.he.planning.profile import COUNTED
from privcirnet.he.ring import cyclic, modular
from privcirnet.he.rlwe.parameters import galois_element
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import depthwise_shapes, layers
from tests.he.planning.test_planner import PROFILES

N = 256


def assert_exact(layer: SpectralLayer) -> Party:
    """Both parties' result is the direct sum, and the engine did what was planned."""
    shape, b = layer.shape, layer.block_size
    rows, bias, x = random_rows(shape, b), np.arange(shape.out_channels) * 1000 - 5, random_input(shape)
    parameters = insecure_parameters(layer.ring_degree, layer.transform_lengths)
    party = Party(layer, rows, bias, parameters)
    assert (party.run(x) == slow_layer(shape, b, rows, bias, x)).all()
    assert party.server.counts["rotate"] == layer.rotations
    t = parameters.plain_modulus
    spectrum = spectral_layer.weight_spectrum(layer.layout, rows, t)
    zeros = layer.pmults - len(list(layer.plaintexts(spectrum, t)))  # of weights that happen to cancel
    assert party.server.counts["pmult"] == layer.pmults - zeros
    assert zeros <= 1 + layer.pmults // 50
    assert party.server.elements == {galois_element(step, layer.ring_degree) for step in layer.column_steps}
    return party


@given(layers())
def test_encrypted_layer_equals_direct_convolution(layer: SpectralLayer) -> None:
    assert_exact(layer)


PLANNED = [
    (LinearShape(4, 4, 8, 8, 3, 1, 1), 2),
    (LinearShape(5, 3, 24, 12, 3, 2, 1), 4),
    (LinearShape(9, 9, 2, 3, 5, 1, 2), 1),
    (LinearShape(6, 6, 8, 8, 3, 1, 1, groups=8), 1),
    (LinearShape(6, 6, 8, 16, 3, 2, 1, groups=2), 2),
    (LinearShape(20, 20, 2, 2, 3, 1, 1), 2),
    (LinearShape(7, 7, 6, 10, 1, 2), 2),
    (LinearShape.gemm(65, 24, 8), 4),
    (LinearShape.gemm(257, 6, 9), 3),
    (LinearShape.gemm(1, 40, 10), 5),
]


@pytest.mark.parametrize(("shape", "b"), PLANNED, ids=lambda v: v.kind if isinstance(v, LinearShape) else f"b{v}")
@pytest.mark.parametrize("sums", ["any", "encrypted"])
def test_every_candidate_of_the_planner_is_exact(shape: LinearShape, b: int, sums: str) -> None:
    """Whatever the price makes of it; of each number of lanes the tilings that differ most."""
    found: dict[tuple[object, ...], SpectralLayer] = {}
    for profile in PROFILES.values():
        for _, layer in plan_layer(shape, b, Objective(profile, LINKS["local"], sums)).candidates:
            found.setdefault((layer.pieces[0], len(layer.pieces)), layer)
    chosen = sorted(found.values(), key=lambda layer: (layer.tile, layer.pieces[0].lanes))
    for layer in chosen[:: max(1, len(chosen) // 12)]:
        assert_exact(layer)


@pytest.mark.parametrize("b", [1, 2, 4, 8])
@pytest.mark.parametrize("tile", [(4, 4), (2, 3)])
def test_extreme_values_decode_exactly(b: int, tile: tuple[int, int]) -> None:
    """Sums that reach (t - 1) / 2 in absolute value."""
    shape = LinearShape(4, 4, 8, 8, 3, 1, 1)
    count = SpectralLayout(shape, b, tile).tiles
    layer = SpectralLayer(shape, b, N, tile, (Piece(1, 1, 1, 1),) * count)
    parameters = insecure_parameters(N, layer.transform_lengths, 32)
    half = parameters.plain_modulus // 2
    rows = np.zeros((8 // b, 8, 3, 3), dtype=np.int64)
    rows[:, 0] = 1
    bias = np.zeros(8, dtype=np.int64)
    x = np.zeros(shape.input_shape, dtype=np.int64)
    x[0, 1, 1], x[-1, 3, 3] = half, -half
    assert (Party(layer, rows, bias, parameters).run(x) == slow_layer(shape, b, rows, bias, x)).all()


def test_block_size_1_with_a_1x1_kernel_is_bolt() -> None:
    """Nothing is transformed: the spectrum is the weight, the slots are the input."""
    shape = LinearShape.gemm(7, 6, 10)
    layer = SpectralLayer(shape, 1, N, (1, 1), (Piece(1, 7, 32, 2),))
    assert layer.layout.transformed_axes == []
    assert layer.transform_lengths == {1}
    t, rows = insecure_parameters(N).plain_modulus, random_rows(shape, 1)
    assert (
        spectral_layer.weight_spectrum(layer.layout, rows, t)[0, ..., 0, 0, 0] == modular.residues(rows[..., 0, 0], t)
    ).all()
    x = modular.residues(random_input(shape), t)
    lanes = slots_to_lanes(layer.encode_input(x, t), 32)
    assert (lanes[0, :6, :7] == x[..., 0]).all()
    assert not lanes[:, :, 7:].any()


def test_depthwise_is_a_hadamard_product() -> None:
    """Each slot of the reply is one slot of the request times one of the spectrum: no sum, no rotation."""
    shape = LinearShape(6, 6, 8, 8, 3, 1, 1, groups=8)
    layer = SpectralLayer(shape, 1, 512, (6, 6), (Piece(8, 1, 1, 1),))
    assert (layer.rotations, layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out) == (0, 1, 1, 1)
    assert assert_exact(layer).server.counts["add"] == 0
    assert cheapest_layer(shape, 1, COUNTED, LINKS["lan"]).rotations == 0


@given(depthwise_shapes())
def test_a_planned_depthwise_layer_is_one_product_for_each_ciphertext(shape: LinearShape) -> None:
    """Whatever its stride: the phase images of a channel are added on shares, or in as many products."""
    layer = plan_layer(shape, 1, Objective(replace(COUNTED, ring_degree=N), LINKS["lan"])).layer
    assert isinstance(layer, SpectralLayer)
    assert (layer.rotations, layer.pmults) == (0, layer.ciphertexts_in)
    assert_exact(layer)


def test_spectrum_is_the_transform_of_the_circulant_kernel() -> None:
    """By its definition: the sum over first column and taps of w zeta^(...), element by element."""
    shape, b = LinearShape(4, 2, 6, 3, 3, 1, 1), 3
    layout = SpectralLayout.whole(shape, b)
    t, rows = insecure_parameters(N, layout.transform_lengths).plain_modulus, random_rows(shape, b)
    spectrum = spectral_layer.weight_spectrum(layout, rows, t)[0]
    dense = expand_rows(rows, b)
    lengths = (b, *layout.extent)
    assert lengths == (3, 5, 3)
    impulses = np.zeros(lengths, dtype=np.uint64)
    for p in range(2):
        impulses[...] = 0
        for i in range(b):
            for r in range(3):
                for s in range(3):
                    w = np.uint64(int(dense[i, p * b, r, s]) % t)
                    place = i, (1 - r) % lengths[1], (1 - s) % lengths[2]
                    impulses[place] = modular.add(impulses[place][None], w[None], t)[0]
        expected = impulses
        for axis in range(3):
            expected = cyclic.cyclic(expected, axis, t)
        assert (spectrum[0, p] == expected).all()


@given(layers())
def test_a_plaintext_is_its_blocks_spectra_lane_by_lane(layer: SpectralLayer) -> None:
    spectrum = np.random.default_rng(0).integers(1, 1 << 20, layer.spectrum_shape).astype(np.uint64)
    for placed, product in layer.distinct[:20]:
        plan, turn = placed.plan, product.giant * placed.plan.baby_steps
        lane, out_block, in_block = plan.blocks_of(product.target, turn + product.baby, product.source)
        cells = placed.piece.groups, placed.piece.tiles, layer.block_size, *layer.layout.extent
        lanes = np.zeros((1, plan.lanes, placed.lane_slots), dtype=np.uint64)
        for to, i, j in zip((lane + turn) % plan.lanes, out_block, in_block, strict=True):
            values = np.broadcast_to(spectrum[placed.groups, i, j][:, None], cells).reshape(-1)
            lanes[0, to, : values.size] = values
        slots = spectral_layer.diagonal_slots(layer.layout, placed, spectrum, product)
        assert np.array_equal(slots, lanes_to_slots(lanes)[0])


@given(layers())
def test_zero_plaintexts_are_known(layer: SpectralLayer) -> None:
    spectrum = np.ones(layer.spectrum_shape, dtype=np.uint64)
    for zeros in range(2):
        spectrum[:, :zeros] = 0
        diagonals = spectral_layer.Diagonals(layer, spectrum)
        assert diagonals.present == [bool(diagonals[weight].any()) for weight in range(len(diagonals))]
