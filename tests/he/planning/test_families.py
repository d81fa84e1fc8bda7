"""Programs whose layers mix both families of encodings, and sets with short replies."""

from dataclasses import replace

import numpy as np
import pytest

from privcirnet.he.encodings.coefficient_layer import CoefficientLayer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.params.noise import largest_plain_bits
from privcirnet.he.params.parameters import ParameterSet
from privcirnet.he.params.security import MAX_LOG_Q, check_security
from privcirnet.he.params.sizes import as_short, ciphertext_bytes, message_bytes
from privcirnet.he.planning.chooser import SETS, SHORT_REPLIES, sets_for
from privcirnet.he.planning.fit import Target, fit, predicted_seconds, replan, scaled
from privcirnet.he.planning.goal import Allowed
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED, LINKS
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.program import Program, Weights, layers_of
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.session import run
from privcirnet.pipeline import audit
from tests.he.networks import random_image
from tests.he.planning.case import LOCAL, NETWORK

WAN = LINKS["wan"]


def families(nodes) -> set[str]:
    return {layer.encoding for layer in layers_of(nodes)}


def assert_runs(program: Program, engine: str) -> None:
    """Every step of an encrypted image is the integer interpreter's."""
    server = Server(program, engine)
    client = Client(server.greeting(), engine)
    session, image = server.session(client.keys()), random_image(program)
    logits, _ = run(client, session, image)
    values = audit.reconstruct(program, client.shares, session.shares)
    assert audit.wrong_nodes(program, values) == []
    told = interpret(program, image, lambda node, _: values[node.name])
    assert np.array_equal(told[program.output.name], logits)


@pytest.mark.parametrize("engine", ["cleartext", "kernel"])
def test_coefficient_encodings_where_they_are_cheapest(engine: str) -> None:
    """Small layers take one product each, without rotations; programs that mix families are on the ladder."""
    target = Target(COUNTED, WAN, failure_bits=4, family="any")
    program = fit(NETWORK.nodes, NETWORK.weights, target).program
    assert families(program.nodes) == {"cheetah"}
    spectral = fit(NETWORK.nodes, NETWORK.weights, replace(target, family="spectral")).program
    assert families(spectral.nodes) == {"cirencode"}
    assert_runs(program, engine)


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


CARRIED = ((46, 7), (48, 8), (53, 10), (54, 8), (54, 8), (60, 9))
"""For each of SHORT_REPLIES: bits of t up to which it is of use, and bytes of a reply's coefficient then."""


@pytest.mark.parametrize(("wanted", "carried"), [*zip(SHORT_REPLIES, CARRIED, strict=True)], ids=str)
def test_sets_with_short_replies(wanted: ParameterSet, carried: tuple[int, int]) -> None:
    """They are secure, carry a program, and their replies are shorter than others' with no more primes and that t."""
    (n, bits), (t, width) = (wanted.ring_degree, wanted.coefficient_bits), carried
    check_security(n, bits)
    assert sum(bits) <= MAX_LOG_Q[n]
    assert largest_plain_bits(n, bits, 1) >= t
    assert ciphertext_bytes(n, bits, t)[1] == 2 * n * width
    known = (s.coefficient_bits for s in SETS if s.ring_degree == n and len(s.coefficient_bits) <= len(bits))
    assert all(ciphertext_bytes(n, other, t)[1] > 2 * n * width for other in known)
    program = fit(NETWORK.nodes, NETWORK.weights, Target(scaled(COUNTED, wanted), WAN, failure_bits=8)).program
    assert program.parameters.coefficient_bits == bits
    assert_runs(program, "tenseal" if wanted == SHORT_REPLIES[-1] else "kernel")


def test_short_replies_are_looked_at_where_bytes_cost_time() -> None:
    assert sets_for(0) == SETS
    assert sets_for(0, thrifty=True) == SETS + SHORT_REPLIES
    assert sets_for(8192, thrifty=True) == SETS[:3] + SHORT_REPLIES[:4]
    made = {}
    for name in ("local", "wan"):
        sets = sets_for(8192, thrifty=LINKS[name].counts)
        fitted = fit(
            NETWORK.nodes, NETWORK.weights, Target(COUNTED, LINKS[name], failure_bits=20, sets=sets, auto=True)
        )
        made[name] = fitted.choice.set, message_bytes(fitted.program.parameters)
    assert made["local"][0] in SETS
    assert made["wan"][0] in SHORT_REPLIES
    assert made["wan"][1][1] < made["local"][1][1]


def test_plans_depend_on_the_length_of_replies_and_not_on_t() -> None:
    """Of the t with replies of one length, the longest stands for all."""
    for found in SETS + SHORT_REPLIES:
        n, bits = found.ring_degree, found.coefficient_bits
        for t in range(20, 61):
            longest = as_short(bits, t)
            assert t <= longest <= 60
            assert ciphertext_bytes(n, bits, longest) == ciphertext_bytes(n, bits, t)
            if longest < 60:
                assert ciphertext_bytes(n, bits, longest + 1) != ciphertext_bytes(n, bits, t)
