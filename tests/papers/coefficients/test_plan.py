"""Coefficient layers beside those of programs: by name, with a price, and with the promises of a layer."""

from dataclasses import replace

import pytest

from papers.coefficients.layer import COEFFICIENT_ENCODINGS, NAMES, CoefficientLayer
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective, linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.parameter_choice import budget, replies
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED
from tests.he.layers import test_layer as promises
from tests.he.planning.test_named import CONV, DEPTHWISE, GEMM, GROUPS

GOAL = Objective(replace(COUNTED, ring_degree=256), LINKS["wan"])


@pytest.mark.parametrize("name", COEFFICIENT_ENCODINGS)
@pytest.mark.parametrize("shape", [GEMM, CONV, DEPTHWISE, GROUPS], ids=lambda shape: shape.kind)
def test_an_encoding_has_one_layer(name: str, shape: LinearShape) -> None:
    choice = NAMES[name].plan(shape, 1, GOAL)
    assert [layer for _, layer in choice.candidates] == [choice.layer] == [CoefficientLayer(shape, 1, 256, name)]
    assert choice.layer.rotations == 0
    assert choice.candidates[0][0].total > 0
    assert choice.explain().endswith("the only candidate")
    assert NAMES[name].fits(shape, 1) == (name == "cheetah" or shape.groups > 1)


@pytest.mark.parametrize("name", COEFFICIENT_ENCODINGS)
def test_promises_of_a_layer(name: str) -> None:
    layer = CoefficientLayer(promises.SHAPE, 2, promises.N, name)
    promises.test_members_agree_with_each_other(layer)
    promises.test_a_layer_is_its_fields(layer)


def test_depthwise_layers_of_programs_need_fewer_ciphertexts() -> None:
    """At the ring degrees of programs, Falcon's denser packing included."""
    shape = LinearShape(14, 14, 96, 96, 3, 1, 1, 96)
    spectral, falcon = cheapest_layer(shape, 1, COUNTED, LINKS["wan"]), CoefficientLayer(shape, 1, 8192, "falcon")
    assert 2 * spectral.ciphertexts_in <= falcon.ciphertexts_in
    assert 2 * spectral.ciphertexts_out <= falcon.ciphertexts_out


def test_only_coefficients_that_are_sent_cost_bytes_and_tell_of_noise() -> None:
    layer, parameters = CoefficientLayer(LinearShape.gemm(1, 1 << 11, 8), 1, 16384, "cheetah"), choose({1}, 41, 16384)
    assert list(replies([layer], (), parameters)) == [(8, layer.noise_bits(parameters))]
    loud = replace(layer, weight_bits=100)
    assert budget((loud,), parameters).noise == loud.noise_bits(parameters) > budget((layer,), parameters).noise
    profile = replace(COUNTED, ring_degree=16384)
    whole = cheapest_layer(layer.shape, 1, profile, LINKS["wan"])
    assert linear_cost(layer, profile, LINKS["wan"]).network < linear_cost(whole, profile, LINKS["wan"]).network
