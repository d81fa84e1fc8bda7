import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privcirnet.he import cost, modular
from privcirnet.he.encodings import spectral
from privcirnet.he.shape import LinearShape, SpectralLayout, slots_to_lanes
from privcirnet.he.linear import LinearLayer
from tests.he.exchange import Party, random_input, random_rows, slow_layer
from tests.he.insecure import insecure_parameters

N = 256


@st.composite
def circulant_layers(draw: st.DrawFn) -> LinearLayer:
    """Any block size up to 8, stride, kernel, rectangular map and channel counts that are no powers of two."""
    b = draw(st.sampled_from([1, 2, 3, 4, 5, 8]))
    kernel, stride = draw(st.sampled_from([1, 3, 5, 7])), draw(st.sampled_from([1, 2, 3]))
    padding = draw(st.integers(0, kernel - 1))
    height, width = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    height, width = max(height, kernel - 2 * padding), max(width, kernel - 2 * padding)
    channels = (b * draw(st.integers(1, 12 // b or 1)) for _ in range(2))
    shape = LinearShape(height, width, *channels, kernel, stride, padding)
    rows = max(height // stride, 1) + kernel
    ring_degree = N if b * (rows * (max(width // stride, 1) + kernel)) <= N else 2048
    layouts = cost.candidate_layers(shape, b, ring_degree)
    layer = draw(st.sampled_from(layouts))
    return LinearLayer(shape, b, ring_degree, layer.baby_steps, layer.giants_on_shares, draw(st.booleans()))


@given(circulant_layers(), st.booleans())
def test_encrypted_layer_equals_direct_convolution(layer: LinearLayer, bounded: bool) -> None:
    shape, b = layer.shape, layer.block_size
    rows, bias, x = random_rows(shape, b), np.arange(shape.out_channels) * 1000 - 5, random_input(shape)
    parameters = insecure_parameters(layer.ring_degree, layer.layout.transform_lengths)
    party = Party(layer, rows, bias, parameters, mask_bound=1 << 30 if bounded else None)
    assert (party.run(x) == slow_layer(shape, b, rows, bias, x)).all()
    assert party.server.counts["rotate"] == layer.plan.rotations
    assert party.server.counts["pmult"] == layer.plan.pmults


@pytest.mark.parametrize("b", [1, 2, 4, 8])
def test_extreme_values_decode_exactly(b: int) -> None:
    """Sums that reach (t - 1) / 2 in absolute value."""
    shape = LinearShape(4, 4, 8, 8, 3, 1, 1)
    layer = cost.paper_layer(shape, b, N)
    parameters = insecure_parameters(N, layer.layout.transform_lengths, 32)
    half = parameters.plain_modulus // 2
    rows = np.zeros((8 // b, 8, 3, 3), dtype=np.int64)
    rows[:, 0] = 1
    bias = np.zeros(8, dtype=np.int64)
    x = np.zeros(shape.input_shape, dtype=np.int64)
    x[0, 1, 1], x[-1, 3, 3] = half, -half
    assert (Party(layer, rows, bias, parameters).run(x) == slow_layer(shape, b, rows, bias, x)).all()


@pytest.mark.parametrize("b", [2, 4, 8])
def test_spectrum_is_b_times_smaller(b: int) -> None:
    shape = LinearShape(4, 4, 16, 8, 3, 1, 1)
    t = insecure_parameters(N, {b, 5}).plain_modulus
    sizes = {}
    for size in (1, b):
        layout = SpectralLayout(shape, size, N)
        spectrum = spectral.weight_spectrum(layout, random_rows(shape, size), t)
        assert spectrum.shape == (8 // size, 16 // size, size, 5, 5)
        sizes[size] = spectrum.size
    assert sizes[1] == b * sizes[b]


def test_block_size_1_with_a_1x1_kernel_is_bolt() -> None:
    """Nothing is transformed: the spectrum is the weight, the slots are the input."""
    shape = LinearShape.gemm(7, 6, 10)
    layout, layer = SpectralLayout(shape, 1, N), cost.paper_layer(shape, 1, N)
    t, rows = insecure_parameters(N).plain_modulus, random_rows(shape, 1)
    assert (spectral.weight_spectrum(layout, rows, t) == modular.residues(rows[:, :, None], t)).all()
    x = modular.residues(random_input(shape), t)
    lanes = slots_to_lanes(spectral.encode_input(layout, layer.plan, x, t), layout.lanes)
    assert (lanes[0, :6, :7] == x[..., 0]).all()
    assert not lanes[:, :, 7:].any()


def test_block_size_1_with_a_kernel_transforms_the_image_axes_only() -> None:
    """NeuJeans in BFV: a kernel with one tap in the middle has a flat spectrum."""
    shape = LinearShape(4, 6, 2, 3, 3, 1, 1)
    layout = SpectralLayout(shape, 1, N)
    t = insecure_parameters(N, layout.transform_lengths).plain_modulus
    rows = np.zeros((3, 2, 3, 3), dtype=np.int64)
    rows[..., 1, 1] = np.arange(6).reshape(3, 2)
    spectrum = spectral.weight_spectrum(layout, rows, t)
    assert spectrum.shape == (3, 2, 1, 5, 7)
    assert (spectrum == np.arange(6, dtype=np.uint64).reshape(3, 2, 1, 1, 1)).all()


@given(circulant_layers(), st.integers(0, 2**32 - 1))
def test_mask_decodes_to_itself_and_leaves_other_slots_uniform(layer: LinearLayer, seed: int) -> None:
    layout, found = layer.layout, layer.plan
    t = insecure_parameters(layer.ring_degree, layout.transform_lengths).plain_modulus
    random = np.random.default_rng(seed)
    mask = random.integers(0, t, (layer.shape.out_channels, *layout.extent), dtype=np.uint64)
    uniform = random.integers(0, t, (found.ciphertexts_out, layer.ring_degree), dtype=np.uint64)
    before = uniform.copy()
    slots = spectral.encode_mask(layout, found, mask, uniform, t)
    assert (uniform == before).all()
    _, height, width = layer.shape.output_shape
    assert (spectral.decode_output(layout, found, slots, t) == mask[:, :height, :width]).all()
    lanes, drawn = slots_to_lanes(slots, found.lanes), slots_to_lanes(uniform, found.lanes)
    made_up = np.zeros(lanes.shape, dtype=bool)
    for terms in found.output_terms:
        ciphertext, lane = terms[-1]
        made_up[ciphertext, lane, : layout.lane_length] = True
    assert made_up.sum() == layout.blocks_out * layout.lane_length
    assert (lanes[~made_up] == drawn[~made_up]).all()


def test_every_value_of_a_mask_reaches_every_slot_of_its_block() -> None:
    """The padding's values too: were they left out, slots of one block would depend on each other."""
    shape = LinearShape(2, 2, 2, 2, 3, 1, 1)
    layer = cost.paper_layer(shape, 2, 64)
    layout, t = layer.layout, insecure_parameters(64, {2, 3}, 20).plain_modulus
    uniform = np.zeros((1, 64), dtype=np.uint64)
    for index in range(2 * 9):
        mask = np.zeros((2, 3, 3), dtype=np.uint64)
        mask.reshape(-1)[index] = 1
        lanes = slots_to_lanes(spectral.encode_mask(layout, layer.plan, mask, uniform, t), layer.plan.lanes)
        assert lanes[0, 0, :18].all()
        assert not lanes[0, 0, 18:].any()
