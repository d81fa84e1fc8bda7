import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.coefficients.layer import CoefficientLayer
from papers.coefficients.layout import grids
from privcirnet.errors import RuleError
from privcirnet.he.bfv import batching
from privcirnet.he.bfv.noise import check_noise, fitting_plain_bits
from privcirnet.he.bfv.parameters import NARROW_COEFFICIENT_BITS, NARROW_RING_DEGREE, Parameters, choose, reply_bits
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.layers.layer import layer_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring import modular
from tests.he.exchange import Party, random_input, random_rows, slow_convolution
from tests.he.insecure import INSECURE_RING_DEGREES, insecure_parameters
from tests.he.layer_examples import grouped_shapes
from tests.he.protocol.uniformity import LIMIT, REPLIES, pairwise, worst_chi_square

ENCODINGS = ("cheetah", "falcon")
DEPTHWISE = LinearShape(14, 14, 576, 576, 3, 1, 1, 576)
SMALL = LinearShape(4, 3, 4, 4, 3, 1, 1, 4)


def narrow(plain_bits: int) -> Parameters:
    return choose({1}, plain_bits, NARROW_RING_DEGREE, NARROW_COEFFICIENT_BITS)


def largest_t(layer: CoefficientLayer) -> Parameters:
    """The largest plain modulus that the layer's noise leaves room for."""
    return narrow(fitting_plain_bits(NARROW_COEFFICIENT_BITS, layer.noise_bits(narrow(20))))


@given(
    st.one_of(grouped_shapes(), grouped_shapes(1, 16), grouped_shapes(20, 1, 9)),
    st.sampled_from(ENCODINGS),
    st.sampled_from(INSECURE_RING_DEGREES),
)
def test_a_layer_equals_direct_sums(shape: LinearShape, encoding: str, n: int) -> None:
    """Groups, dense layers and single channels; where no window fits the ring that is said."""
    layer = CoefficientLayer(shape, 1, n, encoding)
    if grids(shape, n):
        assert_exact(layer)
    else:
        with pytest.raises(RuleError, match=f"window must fit one polynomial: got kernel {shape.kernel}"):
            _ = layer.placement


def assert_exact(layer: CoefficientLayer) -> None:
    weight, x = random_rows(layer.shape, 1), random_input(layer.shape)
    party = Party(layer, weight, None, insecure_parameters(layer.ring_degree))
    assert (party.run(x) == slow_convolution(layer.shape, weight, x)).all()
    assert party.server.counts["pmult"] <= layer.pmults
    assert party.server.counts["rotate"] == layer.rotations == 0


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(("height", "width"), [(30, 11), (11, 30), (64, 64)])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 1), (7, 1)])
def test_maps_larger_than_a_ciphertext(encoding: str, height: int, width: int, kernel: int, stride: int) -> None:
    groups = 2 if encoding == "falcon" else 1
    layer = CoefficientLayer(LinearShape(height, width, 2, 4, kernel, stride, kernel // 2, groups), 1, 256, encoding)
    assert layer.placement.grid.tiles > 1
    assert_exact(layer)


def test_falcon_s_layer_at_the_paper_s_size() -> None:
    """(14, 14, 576, 3), "same", n = 4096, flooded: the paper reports 8.98 MB without flooding."""
    layer = CoefficientLayer(DEPTHWISE, 1, 4096, "falcon")
    parameters = largest_t(layer)
    assert parameters.plain_bits == 30
    check_noise(parameters, layer.noise_bits(parameters), "conv1")
    assert all((np.diff(kept) > 0).all() for kept in layer.kept), "filters stand in another order than outputs"
    assert layer_bytes(layer, parameters.coefficient_bits, 30) == (
        96 * (4096 * sum(parameters.coefficient_bits[:-1]) // 8 + 32),
        96 * (4096 * 40 + 6 * 196 * 35) // 8,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "encoding"),
    [
        (LinearShape(14, 14, 40, 40, 3, 1, 1, 40), "cheetah"),
        (LinearShape(7, 9, 48, 96, 5, 2, 2, 24), "falcon"),
        (LinearShape(16, 16, 16, 20, 3, 1, 1), "cheetah"),
        (LinearShape(90, 70, 3, 5, 7, 2, 3), "cheetah"),
    ],
    ids=str,
)
def test_encrypted_layers_are_exact(shape: LinearShape, encoding: str) -> None:
    layer = CoefficientLayer(shape, 1, 4096, encoding)
    parameters, weight, x = largest_t(layer), random_rows(shape, 1), random_input(shape)
    party = Party(layer, weight, None, parameters, engine="tenseal")
    assert (party.run(x) == slow_convolution(shape, weight, x)).all()
    up, down = layer_bytes(layer, parameters.coefficient_bits, parameters.plain_bits)
    assert party.sent == (up + 32 * layer.ciphertexts_in, down), "SEAL's seeds are longer"
    assert party.server.counts["pmult"] == layer.pmults
    assert party.server.counts["rotate"] == 0


MEASURED = {
    (LinearShape(14, 14, 36, 36, 3, 1, 1, 36), "falcon"): (16, 14),
    (LinearShape(16, 16, 64, 4, 3, 1, 1), "cheetah"): (18, 16),
    (LinearShape.gemm(1, 2048, 8), "cheetah"): (20, 16),
}
"""(shape, encoding) -> (bits of the bound, bits measured), all weights at 127 in absolute value."""


@pytest.mark.parametrize(("shape", "encoding"), MEASURED, ids=str)
@pytest.mark.parametrize("signs", ["equal", "random"])
def test_noise_is_under_its_bound(shape: LinearShape, encoding: str, signs: str) -> None:
    """With the secret key: SEAL's budget is log2 q - log2(t noise) - 1."""
    layer = CoefficientLayer(shape, 1, 4096, encoding)
    parameters, weight = largest_t(layer), random_rows(shape, 1)
    weight = np.full_like(weight, 127) if signs == "equal" else np.sign(weight) * 127
    party = Party(layer, weight, None, parameters, engine="tenseal")
    budgets = [party.client._decryptor.invariant_noise_budget(c) for c in party.results(random_input(shape))]
    noise = sum(NARROW_COEFFICIENT_BITS[:-1]) - min(budgets) - 1 - parameters.plain_bits
    bound, least = MEASURED[shape, encoding]
    assert layer.noise_bits(parameters) == bound
    assert least - 1 <= noise < bound


def test_noise_bound_is_the_formula() -> None:
    layer = CoefficientLayer(LinearShape(14, 14, 576, 576, 3, 1, 1, 576), 1, 4096, "falcon")
    assert layer.weights_per_sum == 6 * 9
    parameters = narrow(20)
    expected = 128 * (10 * math.sqrt(10.5) * math.sqrt(54) + 54) + 2**13
    assert layer.noise_bits(parameters) == math.ceil(math.log2(expected)) == 16
    four = CoefficientLayer(layer.shape, 1, 4096, "falcon", weight_bits=4)
    assert four.noise_bits(parameters) == 14, "the encryption of zero alone is under 2^13"
    one = CoefficientLayer(LinearShape.gemm(4096, 1, 1), 1, 4096, "cheetah")
    assert one.weights_per_sum == 1
    uneven = CoefficientLayer(LinearShape(14, 14, 11, 11, 3, 1, 1, 11), 1, 4096, "falcon")
    assert (uneven.ciphertexts_out, uneven.weights_per_sum) == (2, 6 * 9), "the most of any sum counts: six and five"
    assert one.noise_bits(parameters) == math.ceil(math.log2(22 * 2**7 + 2**13))


def sent_coefficients(party: Party, request: list[bytes]) -> np.ndarray:
    """The coefficients that a reply to a request holds, decrypted; of c0 no others come."""
    layer, parameters = party.layer, party.parameters
    messages, _ = party.exchange.reply(party.held, [None], request, party.server, party.keys)
    if party.engine == "tenseal":
        bits = reply_bits(parameters.coefficient_bits, parameters.plain_bits)
        assert [len(m) for m in messages] == [bits.octets(layer.ring_degree, len(kept)) for kept in layer.kept]
    slots = np.stack(party.client.decrypt_all(messages, layer.kept))
    polynomials = batching.slots_to_coefficients(slots, parameters.plain_modulus)
    return np.concatenate([p[kept] for p, kept in zip(polynomials, layer.kept, strict=True)])


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_every_coefficient_that_is_sent_is_uniform(encoding: str) -> None:
    layer, parameters = CoefficientLayer(SMALL, 1, 64, encoding), insecure_parameters(64, None, 20)
    party, t = Party(layer, random_rows(SMALL, 1), None, parameters), parameters.plain_modulus
    request = party.exchange.request([modular.residues(random_input(SMALL), t)], party.client)
    samples = np.stack([sent_coefficients(party, request) for _ in range(REPLIES)])
    assert samples.shape[1] == np.prod(SMALL.output_shape)
    assert worst_chi_square(samples, t) < LIMIT
    assert worst_chi_square(pairwise(samples, t), t) < LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encrypted_replies_to_one_request_differ_everywhere(encoding: str) -> None:
    layer, parameters = CoefficientLayer(SMALL, 1, 4096, encoding), narrow(28)
    party = Party(layer, random_rows(SMALL, 1), None, parameters, engine="tenseal")
    share = modular.residues(random_input(SMALL), parameters.plain_modulus)
    request = party.exchange.request([share], party.client)
    first, second = (sent_coefficients(party, request) for _ in range(2))
    assert (first != second).all()


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("b", [2, 4])
def test_circulant_rows_are_encoded_densely(encoding: str, b: int) -> None:
    shape = LinearShape(5, 4, 8, 16, 3, 1, 1, 2)
    rows = random_rows(LinearShape(5, 4, 4, 16, 3, 1, 1), b)
    x = random_input(shape)
    layer = CoefficientLayer(shape, b, 256, encoding)
    expected = slow_convolution(shape, expand_rows(rows, b), x)
    assert (Party(layer, rows, None, insecure_parameters(256)).run(x) == expected).all()


def test_zero_weights_are_skipped_and_dead_outputs_are_zero() -> None:
    shape = LinearShape(6, 6, 8, 2, 3, 1, 1)
    layer, parameters = CoefficientLayer(shape, 1, 64, "cheetah"), insecure_parameters(64)
    weight, x = random_rows(shape, 1), random_input(shape)
    weight[:, 0] = 0
    party = Party(layer, weight, None, parameters)
    assert sum(plaintext is not None for plaintext in party.held.weights) < len(layer.placement.factors)
    assert (party.run(x) == slow_convolution(shape, weight, x)).all()
    weight[1] = 0
    assert (Party(layer, weight, None, parameters).run(x) == slow_convolution(shape, weight, x)).all()


def test_unknown_encodings_are_refused() -> None:
    with pytest.raises(RuleError, match="got 'iron'; use one of cheetah, falcon"):
        CoefficientLayer(SMALL, 1, 128, "iron")


def test_weights_beyond_the_bound_are_refused() -> None:
    weight = random_rows(SMALL, 1)
    weight[0, 0, 0, 0] = -129
    with pytest.raises(RuleError, match=r"weights must have 8 bits, .*: got 129"):
        Party(CoefficientLayer(SMALL, 1, 128, "cheetah"), weight, None, insecure_parameters(128))
    nine = CoefficientLayer(SMALL, 1, 128, "cheetah", weight_bits=9)
    x = random_input(SMALL)
    assert (Party(nine, weight, None, insecure_parameters(128)).run(x) == slow_convolution(SMALL, weight, x)).all()
