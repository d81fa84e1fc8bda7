"""Programs whose layers mix both families of encodings, and sets with short replies."""

from dataclasses import replace

import pytest

from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.params.sizes import message_bytes
from privcirnet.he.planning.chooser import sets_for
from privcirnet.he.planning.fit import Target, fit, predicted_seconds, replan
from privcirnet.he.planning.goal import Allowed
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.he.program.program import Weights, layers_of
from tests.he.networks import random_image
from tests.he.parties import check, parties
from tests.he.planning.case import LOCAL, NETWORK

WAN = LINKS["wan"]


def families(nodes) -> set[str]:
    return {layer.encoding for layer in layers_of(nodes)}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_coefficient_encodings_where_they_are_cheapest(engine: str) -> None:
    """Small layers take one product each, without rotations; programs that mix families are on the ladder."""
    target = Target(COUNTED, WAN, failure_bits=4, family="any")
    program = fit(NETWORK.nodes, NETWORK.weights, target).program
    assert families(program.nodes) == {"cheetah"}
    spectral = fit(NETWORK.nodes, NETWORK.weights, replace(target, family="spectral")).program
    assert families(spectral.nodes) == {"cirencode"}
    check(program, *parties(program, engine), random_image(program))


def test_wider_weights_have_a_wider_noise_bound() -> None:
    """129 is beyond 8 bits. The largest weight of all layers counts, not each layer's: it tells less."""
    name = NETWORK.linear_nodes[0][0].name
    wide = Weights(NETWORK.weights[name].rows * 0 + 129, NETWORK.weights[name].bias)
    target = Target(COUNTED, WAN, failure_bits=0, family="any")
    for weights, bits in ((NETWORK.weights, 8), (NETWORK.weights | {name: wide}, 9)):
        layers = layers_of(fit(NETWORK.nodes, weights, target).program.nodes)
        assert {layer.weight_bits for layer in layers if layer.encoding == "cheetah"} == {bits}  # type: ignore[attr-defined]


def test_any_is_never_dearer_than_spectral() -> None:
    nodes = NETWORK.nodes
    for link in (LOCAL, WAN):
        spectral, either = (replan(nodes, COUNTED, link, Allowed(family)) for family in ("spectral", "any"))
        assert predicted_seconds(either, COUNTED, link) < predicted_seconds(spectral, COUNTED, link)


def test_depthwise_layers_stay_spectral() -> None:
    """Falcon's denser packing needs more ciphertexts than the transformed maps at the ring degrees of programs."""
    shape = LinearShape(14, 14, 96, 96, 3, 1, 1, 96)
    spectral, falcon = cheapest_layer(shape, 1, COUNTED, WAN, "any"), CoefficientLayer(shape, 1, 8192, "falcon")
    assert spectral.encoding == "cirencode"
    assert 2 * spectral.ciphertexts_in <= falcon.ciphertexts_in
    assert 2 * spectral.ciphertexts_out <= falcon.ciphertexts_out


def test_where_bytes_cost_time_t_is_no_longer_than_it_must_be() -> None:
    """Each of its bits lengthens replies; in one process they cost nothing, and the truncation is safer."""
    made = {}
    for name in ("local", "wan"):
        target = Target(COUNTED, LINKS[name], failure_bits=20, sets=sets_for(8192), auto=True)
        made[name] = fit(NETWORK.nodes, NETWORK.weights, target).program.parameters
    assert made["wan"].plain_bits < made["local"].plain_bits
    assert message_bytes(made["wan"])[1] < message_bytes(made["local"])[1]
