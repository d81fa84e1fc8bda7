import math

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he import cost, params
from privcirnet.he.cost import LINKS, OPERATIONS, Link, Profile, linear_cost, square_cost
from privcirnet.he.engine import client_engine, server_engine
from privcirnet.he.shape import LinearShape
from privcirnet.he.linear import LinearLayer
from privcirnet.he.protocol import shares, square
from tests.he.exchange import Party, random_input, random_rows
from tests.he.insecure import insecure_parameters

N = 256
TINY = 1e-12
FREE = LINKS["local"]
SHAPES = [
    (LinearShape(4, 4, 8, 8, 3, 1, 1), 2),
    (LinearShape(4, 4, 8, 4, 3, 2, 1), 1),
    (LinearShape.gemm(4, 24, 12), 2),
    (LinearShape.gemm(4, 64, 3), 1),
    (LinearShape.gemm(1, 40, 10), 2),
]
LAYERS = [
    LinearLayer(*case, N, layer.baby_steps, layer.giants_on_shares, folds)
    for case in SHAPES
    for layer in cost.candidate_layers(*case, N)
    for folds in (False, True)
]
"""Every plan of a few shapes, each with its folds rotated and on shares."""


def pricing(name: str, ring_degree: int = N) -> Profile:
    """A profile that prices one operation at 1 and the rest at next to nothing."""
    return Profile(name, ring_degree, params.DEFAULT_COEFFICIENT_BITS, {**dict.fromkeys(OPERATIONS, TINY), name: 1.0})


def performed(layer: LinearLayer) -> dict[str, int]:
    """Operations of one exchange, counted by the engines: every call of theirs, whoever makes it."""
    counts = dict.fromkeys(OPERATIONS, 0)
    rows = random_rows(layer.shape, layer.block_size)
    parameters = insecure_parameters(N, layer.layout.transform_lengths)
    party = Party(layer, rows, np.zeros(layer.shape.out_channels, dtype=np.int64), parameters)

    def watch(engine: object, method: str, name: str) -> None:
        original = getattr(engine, method)

        def counted(*arguments: object) -> object:
            counts[name] += 1
            return original(*arguments)

        setattr(engine, method, counted)

    for name in ("receive", "add_plain", "rotate", "to_ntt", "from_ntt", "add", "reply"):
        watch(party.server, name, name)
    watch(party.server, "multiply", "pmult")
    for name in ("encrypt", "decrypt"):
        watch(party.client, name, name)
    party.run(random_input(layer.shape))
    return counts


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.shape.kind}-B{layer.baby_steps}")
def test_predicted_counts_are_what_the_engines_do(layer: LinearLayer) -> None:
    done = performed(layer)
    for name in set(OPERATIONS) - {"transform", "pmult_plain"}:
        assert linear_cost(layer, pricing(name), FREE).total == pytest.approx(done[name], abs=1e-6), name


def test_transforms_are_priced_by_value_and_length() -> None:
    """Client and server each transform the input once and the output once, along 2, 5 and 5 points."""
    layer = cost.paper_layer(LinearShape(4, 4, 8, 6, 3, 1, 1), 2, N)
    found = linear_cost(layer, pricing("transform"), FREE)
    assert found.client_encrypt == pytest.approx(8 * 25 * 12)
    assert found.client_decrypt == pytest.approx(6 * 25 * 12)
    assert found.server == pytest.approx(14 * 25 * 12)
    plain = cost.paper_layer(LinearShape.gemm(4, 8, 8), 1, N)
    assert linear_cost(plain, pricing("transform"), FREE).total == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("values", [1, N, N + 1, 5 * N])
def test_square_counts(values: int) -> None:
    parameters = insecure_parameters(N)
    client, server = client_engine("cleartext", parameters), server_engine("cleartext", parameters)
    share = shares.uniform((values,), parameters.plain_modulus)
    messages = square.request(share, client)
    replies, _ = square.reply(share, messages, server, frozenset())
    counts = {"encrypt": len(messages), "receive": len(messages), "reply": len(replies), "decrypt": len(replies)}
    counts |= {"pmult_plain": server.counts["pmult"], "rotate": server.counts["rotate"]}
    for name, count in counts.items():
        assert square_cost(values, pricing(name), FREE).total == pytest.approx(count, abs=1e-6), name


def test_network_time_is_bytes_and_one_round_trip() -> None:
    """The bytes are those of real messages at the largest plain modulus."""
    parameters = params.choose({2, 5}, 60)
    layer = cost.paper_layer(LinearShape(4, 4, 8, 8, 3, 1, 1), 2, 8192)
    up, down = params.message_bytes(parameters)
    profile = pricing("rotate", 8192)
    plan = layer.plan
    expected = (plan.ciphertexts_in * up + plan.ciphertexts_out * down) / 1e6 + 0.25
    assert linear_cost(layer, profile, Link(1e6, 0.25)).network == pytest.approx(expected)
    assert linear_cost(layer, profile, FREE).network == 0
    client = client_engine("tenseal", parameters)
    slots = shares.uniform((8192,), parameters.plain_modulus)
    assert len(client.encrypt(slots)) == up


@pytest.mark.parametrize("price", ["rotate", "reply", "pmult"])
def test_cheapest_layer_is_the_least_of_all(price: str) -> None:
    shape = LinearShape.gemm(4, 32, 32)
    profile = pricing(price)
    found = linear_cost(cost.cheapest_layer(shape, 1, profile, FREE), profile, FREE).total
    assert found == min(linear_cost(layer, profile, FREE).total for layer in cost.candidate_layers(shape, 1, N))


def test_the_cheapest_plan_follows_the_price() -> None:
    shape = LinearShape.gemm(4, 64, 64)
    few_rotations = cost.cheapest_layer(shape, 1, pricing("rotate"), FREE).plan
    few_replies = cost.cheapest_layer(shape, 1, pricing("reply"), FREE).plan
    assert few_rotations.rotations < few_replies.rotations
    assert few_rotations.ciphertexts_out > few_replies.ciphertexts_out


def test_papers_unit() -> None:
    layer = cost.paper_layer(LinearShape.gemm(256, 192, 576), 8, 8192)
    assert linear_cost(layer, cost.COUNTED, FREE).total == pytest.approx(18 + 0.135 * 432, abs=0.01)
    assert math.isinf(FREE.bandwidth)


@pytest.mark.parametrize(
    "seconds",
    [
        {},
        dict.fromkeys(OPERATIONS, 0.0),
        {**dict.fromkeys(OPERATIONS, 1.0), "more": 1.0},
        dict.fromkeys(OPERATIONS, math.nan),
    ],
)
def test_profiles_are_checked(seconds: dict[str, float]) -> None:
    with pytest.raises(RuleError, match="a cost profile must hold a positive time for every operation"):
        Profile("broken", N, params.DEFAULT_COEFFICIENT_BITS, seconds)


def test_profile_is_plain_data() -> None:
    assert Profile(**cost.COUNTED.to_dict()) == cost.COUNTED  # type: ignore[arg-type]
