import math
from collections.abc import Callable
from dataclasses import astuple, replace

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, choose, message_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_pieces import Piece
from privcirnet.he.mpc.lookup import Lookup
from privcirnet.he.mpc.ot import session as ot
from privcirnet.he.planning import cost, planner, profile
from privcirnet.he.planning.cost import Cost, Objective, linear_cost, operation_cost, square_cost
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.planner import plan_layer
from privcirnet.he.planning.profile import OPERATIONS, Profile
from privcirnet.he.program import operations as op
from privcirnet.he.program.exact import ExactStep
from privcirnet.he.program.lookup_table import ExactTable, tabulated
from privcirnet.he.program.operation import KINDS
from privcirnet.he.protocol.rounds.exact import FloorExchange, TableExchange
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.product import SquareExchange
from privcirnet.he.ring import sampling
from tests.he.exchange import Party, random_input, random_rows
from tests.he.insecure import insecure_parameters
from tests.he.layer_examples import paper_layer

N = 256
TINY = 1e-12
FREE = LINKS["local"]
SHAPES = [
    *((LinearShape(4, 4, 8, 8, 3, 1, 1), 2), (LinearShape(4, 4, 8, 4, 3, 2, 1), 1), (LinearShape.gemm(4, 24, 12), 2)),
    *((LinearShape.gemm(1, 40, 10), 2), (LinearShape(4, 4, 6, 12, 3, 1, 1, groups=3), 2)),
]
DONE = ("encrypt", "receive", "add_plain", "rotate", "to_ntt", "from_ntt", "pmult", "add", "reply", "decrypt")
"""Calls of the engines."""
LOCAL_OPERATIONS: list[op.Operation] = [
    *(
        op.Input(0, 255),
        op.Truncate(3),
        op.Scale(2),
        op.MulConstant(3),
        op.Plus(),
        op.Concat(2),
        op.Add(),
        op.SumPool(2),
    ),
    *(op.Flatten(), op.Tokens(), op.Take(0), op.SliceChannels(0, 2), op.Transpose(1)),
    *(op.SumChannels(1, 3), op.Center(3)),
    *(op.AsStrided((1, 1, 1), 0, (), ()), op.Sampled(1, 0, 1, 1), op.AssertRange(0, 1)),
]
LAYERS = [layer for case in SHAPES for layer in planner.candidate_layers(*case, N)][::3]
"""A third of all plans of a few shapes."""
TWO_PIECES = SpectralLayer(LinearShape.gemm(5, 6, 12), 2, 64, (1, 1), (Piece(1, 4, 8, 2), Piece(1, 1, 16, 1, 2)))


def pricing(name: str, ring_degree: int = N) -> Profile:
    """A profile that prices one operation at 1 and the rest at next to nothing."""
    return Profile(name, ring_degree, DEFAULT_COEFFICIENT_BITS, {**dict.fromkeys(OPERATIONS, TINY), name: 1.0})


def performed(layer: SpectralLayer) -> dict[str, int]:
    """Operations of one exchange, counted by the engines: every call of theirs, whoever makes it."""
    counts = dict.fromkeys(DONE, 0)
    rows = random_rows(layer.shape, layer.block_size)
    parameters = insecure_parameters(N, layer.transform_lengths)
    party = Party(layer, rows, np.zeros(layer.shape.out_channels, dtype=np.int64), parameters)

    def watch(engine: object, method: str, name: str) -> None:
        original = getattr(engine, method)

        def counted(*arguments: object) -> object:
            counts[name] += 1
            return original(*arguments)

        setattr(engine, method, counted)

    for name in ("receive", "add_plain", "to_ntt", "from_ntt", "add", "reply"):
        watch(party.server, name, name)
    watch(party.server, "turn", "rotate")
    watch(party.server, "multiply", "pmult")
    for name in ("encrypt", "decrypt"):
        watch(party.client, name, name)
    party.run(random_input(layer.shape))
    return counts


def assert_predicted(layer: SpectralLayer, predicted: Callable[[str], float]) -> None:
    """What a plan prices is what engines do one at a time: a rotation of an input ends in NTT form, that of a sum
    begins there, and every rotation of a sum or an output adds."""
    done = performed(layer)
    expected = {
        "rotate": sum(predicted(name) for name in ("rotate", "giant", "fold")),
        "to_ntt": predicted("to_ntt") + predicted("rotate"),
        "from_ntt": predicted("from_ntt") + predicted("giant"),
        "add": predicted("pmult") - predicted("from_ntt") + predicted("fold"),
        "add_plain": predicted("add_plain") + predicted("reply"),
    } | {name: predicted(name) for name in ("encrypt", "receive", "pmult", "reply", "decrypt")}
    assert expected == pytest.approx(done, abs=1e-6)
    assert 0 <= round(predicted("hoist")) <= min(layer.ciphertexts_in, round(predicted("rotate")))


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: f"{layer.shape.kind}-{layer.pieces[0].lanes}")
def test_predicted_counts_are_what_the_engines_do(layer: SpectralLayer) -> None:
    assert_predicted(layer, lambda name: linear_cost(layer, pricing(name), FREE).total)


@pytest.mark.slow
@pytest.mark.parametrize("case", [*SHAPES, (LinearShape.gemm(65, 6, 12), 1), (LinearShape(9, 9, 4, 4, 3, 1, 1), 2)])
def test_unlike_pieces_add_up(case: tuple[LinearShape, int]) -> None:
    """The planner's covers: tiles, and pieces of more than one kind."""
    found = [layer for _, layer in plan_layer(*case, Objective(pricing("rotate"), FREE)).candidates]
    for layer in sorted(found, key=lambda layer: -len(set(layer.pieces)))[:3]:
        assert_predicted(layer, lambda name, layer=layer: linear_cost(layer, pricing(name), FREE).total)


def test_a_cost_is_the_sum_of_its_plans_the_transforms_and_a_round_trip() -> None:
    layer, profile, link = TWO_PIECES, pricing("rotate", 64), NetworkLink(1e6, 0.25)
    one, other = (cost.plan_cost(placed.plan, profile, link) for placed in layer.placed)
    found = linear_cost(layer, profile, link)
    expected = one + other + cost.transform_cost(layer.layout, profile) + cost.Cost(network=0.25)
    assert astuple(found) == pytest.approx(astuple(expected))
    assert found.total == pytest.approx(found.client_encrypt + found.server + found.client_decrypt + found.network)
    assert astuple(found * 3) == pytest.approx(astuple(found + found + found))


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_wait_for_the_last_of_a_round(threads: int) -> None:
    """Operations that are not a multiple of the threads count as the next one; of all pieces together."""
    plans = [placed.plan for placed in TWO_PIECES.placed]
    numbers = {
        "receive": sum(plan.ciphertexts_in for plan in plans),
        "rotate": sum(len(plan.baby_rotations) for plan in plans),
        "giant": sum(len(plan.giant_rotations) for plan in plans),
        "reply": sum(plan.ciphertexts_out for plan in plans),
    }
    for name, number in numbers.items():
        found = linear_cost(TWO_PIECES, replace(pricing(name, 64), threads=threads), FREE).total
        assert found == pytest.approx(-(-number // threads) * threads, abs=1e-5)
    assert linear_cost(TWO_PIECES, replace(pricing("call", 64), threads=threads), FREE).total == pytest.approx(1)
    square = cost.square_cost(64 * 4, replace(pricing("reply", 64), threads=threads), FREE).total
    assert square == pytest.approx(-(-4 // threads) * threads, abs=1e-5)


def test_transforms_are_priced_by_value_and_axis() -> None:
    """Client and server each transform the input once and the output once, along three axes of 2, 5 and 5 points."""
    layer = SpectralLayer(LinearShape(4, 4, 8, 6, 3, 1, 1), 2, N, (4, 4), (Piece(1, 1, 4, 1),))
    found = linear_cost(layer, pricing("transform"), FREE)
    assert found.client_encrypt == pytest.approx(8 * 25 * 3)
    assert found.client_decrypt == pytest.approx(6 * 25 * 3)
    assert found.server == pytest.approx(14 * 25 * 3)
    tiled = SpectralLayer(layer.shape, 2, N, (2, 4), (Piece(1, 2, 2, 1),))
    assert linear_cost(tiled, pricing("transform"), FREE).total == pytest.approx(2 * 14 * 2 * 4 * 5 * 3)
    grouped = SpectralLayer(LinearShape(4, 4, 6, 6, 3, 1, 1, groups=6), 1, N, (4, 4), (Piece(6, 1, 1, 1),))
    assert linear_cost(grouped, pricing("transform"), FREE).total == pytest.approx(2 * 12 * 25 * 2)
    circulant = paper_layer(LinearShape.gemm(4, 8, 8), 2, N)
    assert linear_cost(circulant, pricing("transform"), FREE).total == pytest.approx(2 * 16 * 4)
    plain = paper_layer(LinearShape.gemm(4, 8, 8), 1, N)
    assert linear_cost(plain, pricing("transform"), FREE).total == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("values", [1, N, N + 1, 5 * N])
def test_square_counts(values: int) -> None:
    parameters = insecure_parameters(N)
    client, server = engine_of("cleartext").parties(parameters)
    share = sampling.uniform((values,), parameters.plain_modulus)
    exchange = SquareExchange(values, N)
    messages = exchange.request([share], client)
    replies, _ = exchange.reply(PreparedNode(), [share], messages, server, frozenset())
    counts = {"encrypt": len(messages), "receive": len(messages), "reply": len(replies), "decrypt": len(replies)}
    counts |= {"pmult_plain": server.counts["pmult"], "rotate": server.counts["rotate"]}
    for name, count in counts.items():
        assert square_cost(values, pricing(name), FREE).total == pytest.approx(count, abs=1e-6), name


def test_weights_of_one_use_do_not_pay_for_the_ciphertext() -> None:
    seconds = profile.COUNTED.seconds | {"pmult": 1.0, "pmult_plain": 7.0, "to_ntt": 3.0}
    measured = replace(profile.COUNTED, seconds=seconds)
    assert cost.for_one_use(measured).seconds == seconds | {"pmult": 4.0}


def test_product_counts() -> None:
    """Both layers, their plaintexts encoded for one use, in one round trip."""
    left, right, link = (4, 3, 1), (4, 2, 1), NetworkLink(1e9, 0.25)
    shapes = LinearShape.product(left, right, 2), LinearShape.product(right, left, 2)
    layers = [paper_layer(shape, 1, N) for shape in shapes]
    pmults, inputs = (sum(getattr(layer, name) for layer in layers) for name in ("pmults", "ciphertexts_in"))
    for name, count in {"pmult_plain": pmults, "pmult": 0, "receive": inputs, "encrypt": inputs, "call": 2}.items():
        assert cost.product_cost(*layers, pricing(name), FREE).total == pytest.approx(count, abs=1e-6), name
    found = cost.product_cost(*layers, pricing("pmult"), link).network
    separate = [linear_cost(layer, pricing("pmult"), link).network for layer in layers]
    assert found == pytest.approx(sum(separate) - link.round_trip)


def test_network_time_is_bytes_and_one_round_trip() -> None:
    """The bytes are those of real messages at the largest plain modulus."""
    parameters = choose({2, 5}, 60)
    layer = paper_layer(LinearShape(4, 4, 8, 8, 3, 1, 1), 2, 8192)
    up, down = message_bytes(parameters)
    profile = pricing("rotate", 8192)
    expected = (layer.ciphertexts_in * up + layer.ciphertexts_out * down) / 1e6 + 0.25
    assert linear_cost(layer, profile, NetworkLink(1e6, 0.25)).network == pytest.approx(expected)
    assert linear_cost(layer, profile, FREE).network == 0
    slots = sampling.uniform((1, 8192), parameters.plain_modulus)
    assert [len(message) for message in engine_of("kernel").client(parameters).encrypt_all(slots)] == [up]


@pytest.mark.parametrize("values", [64, 8192, 8192 + 300])
def test_network_time_of_a_square_is_that_of_its_messages(values: int) -> None:
    """But for the seeds, of which a short request has one like any other."""
    parameters = choose({1}, 60)
    client, server = engine_of("tenseal").parties(parameters)
    keys, share = server.load_keys(client.public_keys(()), ()), sampling.uniform((values,), parameters.plain_modulus)
    exchange = SquareExchange(values, 8192)
    messages = exchange.request([share], client)
    sent = sum(map(len, (*messages, *exchange.reply(PreparedNode(), [share], messages, server, keys)[0])))
    network = cost.square_cost(values, pricing("rotate", 8192), NetworkLink(1e6, 0.25)).network
    assert network == pytest.approx(sent / 1e6 + 0.25, abs=64 * len(messages) / 1e6)


def exact_steps() -> list[ExactStep]:
    table = tabulated("gelu", 4, 0, 0, -8, 7)
    steps = [op.ExactReLU(4), op.ExactReLU(0), op.ExactReLU(4, most=96), op.ExactTruncate(4), table]
    return [*(step.bounded(-6000, 6000) for step in steps), table.bounded(-(1 << 15), 0), table.bounded(0, 100)]


@pytest.mark.parametrize("step", exact_steps(), ids=lambda step: f"{step.kind}-{step.bits}-{step.bound}-{step.top}")
def test_cost_of_an_exact_step_is_what_it_takes(step: ExactStep) -> None:
    """Transfers and bytes of the exchange, whose messages have the sizes that it says."""
    t, profile, link, shape = 113246209, pricing("encrypt"), NetworkLink(1e6, 0.25), (64, 3, 5)
    of = TableExchange if isinstance(step, ExactTable) else FloorExchange
    exchange = of(step, shape, t)  # type: ignore[arg-type]
    turns = [exchange.plan.turns, exchange.online.turns(t)]
    ahead, online = (sum(sum(turn.octets) for turn in phase) for phase in turns)
    counts = [exchange.floor, *([exchange.lookup] if isinstance(exchange, TableExchange) else [])]
    for count in counts:  # the messages that extend transfers, in either direction
        slots = count.down[-1].stop, count.up if isinstance(count, Lookup) else count.up[-1].stop
        ahead -= sum(ot.message_bytes("softspoken", slot, 64 * 15) for slot in slots)
    seconds = cost.OperationPrices(replace(profile, plain_bits=t.bit_length()), link).exact(step, 64 * 15)
    network = (ahead + online) / link.bandwidth + len(exchange.online.turns(t)) / 2 * link.round_trip
    assert seconds == Cost(server=sum(exchange.plan.transfers) * cost.OT_SECONDS, network=pytest.approx(network))


def test_cost_of_an_operation_is_looked_up_by_its_type() -> None:
    profile, link, shape = pricing("encrypt"), NetworkLink(1e6, 0.25), (3, 5, 7)
    layer, factor = LAYERS[0], planner.candidate_layers(LinearShape.gemm(4, 8, 4), 1, N)[0]
    expected = {
        op.Linear(layer): linear_cost(layer, profile, link),
        op.MatMul(factor, factor): cost.product_cost(factor, factor, profile, link),
        op.Square(): square_cost(3 * 5 * 7, profile, link),
        **{step: cost.OperationPrices(profile, link).exact(step, 3 * 5 * 7) for step in exact_steps()},
    }
    assert len(set(expected.values())) == len(expected)
    assert {*map(type, expected), *map(type, LOCAL_OPERATIONS)} == set(KINDS.values())
    for operation, seconds in (expected | dict.fromkeys(LOCAL_OPERATIONS, Cost())).items():
        assert operation_cost(operation, shape, profile, link) == seconds


@pytest.mark.parametrize(
    "seconds",
    [
        {},
        dict.fromkeys(OPERATIONS, -1e-3),
        {**dict.fromkeys(OPERATIONS, 1.0), "more": 1.0},
        dict.fromkeys(OPERATIONS, math.nan),
    ],
)
def test_profiles_are_checked(seconds: dict[str, float]) -> None:
    with pytest.raises(RuleError, match="a cost profile must hold a time for every operation"):
        Profile("broken", N, DEFAULT_COEFFICIENT_BITS, seconds)


def test_profile_is_plain_data() -> None:
    assert Profile(**profile.COUNTED.to_dict()) == profile.COUNTED  # type: ignore[arg-type]
