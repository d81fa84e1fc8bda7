"""Both parties: encrypted results are the integer network's, and what is wrong is refused."""

from dataclasses import fields, replace

import numpy as np
import pytest

from papers.falcon2020.circuits.modulus_switching import with_switches
from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.planning.periodic import periodic_plan
from papers.falcon2020.planning.plan import PublicPlan
from papers.falcon2020.protocol.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv.weight_cache import WeightCache
from tests.papers.falcon2020.exact_networks import image_of, network


@pytest.mark.parametrize("engine", ["encrypted", "by_seal"])
def test_encrypted_results_are_the_integer_network_s(engine, request):
    """Twice with the same keys; the engine did what the circuit says."""
    made = request.getfixturevalue(engine)
    for seed in (0, 1):
        image = image_of(made.network, seed)
        for evaluator in made.server.engine.evaluators:
            evaluator.counts.clear()
        answer = made.server.answer(made.client.request(image), made.keys)
        assert list(made.client.results(answer)) == list(made.network.evaluate(image))
        for evaluator in made.server.engine.evaluators:
            wanted = made.plan.circuit.counts
            assert {name: evaluator.counts[name] for name in ("rotate", "pmult", "square")} == {
                name: wanted[name] for name in ("rotate", "pmult", "square")
            }


def test_three_layers_with_two_squares_and_padded_blocks():
    """Of few messages, with results that the client adds up."""
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, packed_plan)
    client, server = LeveledInferenceClient(plan.public, parameters), LeveledInferenceServer(plan, parameters)
    image = image_of(made)
    answer = server.answer(client.request(image), server.load_keys(client.keys()))
    assert list(client.results(answer)) == list(made.evaluate(image))
    assert len(plan.public.summed) > 1
    client.close()


def test_one_request_and_one_set_of_keys_serve_all_plain_moduli(encrypted):
    assert len(encrypted.parameters.moduli) > 1
    assert len(encrypted.sent_keys) == len(encrypted.request) == 1
    assert len(encrypted.sent_keys[0]) == encrypted.parameters.key_bytes(
        encrypted.plan.public.primes, encrypted.plan.public.keys
    )


def test_slots_without_a_result_are_masked(encrypted):
    """Two answers to one request differ wherever the client reads no result: partial sums of weights stay hidden."""
    slots = []
    for _ in range(2):
        answer = encrypted.server.answer(encrypted.request, encrypted.keys)
        slots.append(np.array([encrypted.client.engine.decrypt(0, message) for message in answer[0]]))
    for output in range(len(encrypted.plan.circuit.outputs)):
        held = [place for number, place in encrypted.plan.public.results if number == output]
        same = slots[0][output] == slots[1][output]
        assert same[held].all()
        assert np.delete(same, held).sum() <= 3, "chance is 8192 / t"


def test_what_the_client_adds_up_is_masked_by_shares_of_zero():
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, packed_plan)
    server = LeveledInferenceServer(plan, parameters, "cleartext")
    t = parameters.moduli[0].plain_modulus
    first, second = (server._mask(0, t) for _ in range(2))
    assert plan.public.gather(first[None], t).tolist() == [0, 0, 0]
    assert (first == second).sum() <= 3, "no slot is left as it is: chance is n / t"


def test_messages_that_are_cut_or_foreign_are_refused(encrypted):
    server, request, (keys,) = encrypted.server, encrypted.request, encrypted.sent_keys

    def first(message: bytes) -> list[list[bytes]]:
        return [[message, *request[0][1:]], *request[1:]]

    for rule, call in (
        ("a ciphertext must have the length", lambda: server.answer(first(request[0][0][:-1]), encrypted.keys)),
        (
            "must have 9 ciphertexts in each of 1 rows",
            lambda: server.answer([row[:-1] for row in request], encrypted.keys),
        ),
        ("every residue must", lambda: server.answer(first(b"\xff" * len(request[0][0])), encrypted.keys)),
        ("the plan's rotations fix", lambda: server.load_keys([keys[:-1]])),
        ("every residue must be under its prime", lambda: server.load_keys([b"\xff" * len(keys)])),
        ("keys must be for every plain modulus", lambda: server.load_keys([])),
        ("an answer must have", lambda: encrypted.client.results([])),
    ):
        with pytest.raises(RuleError, match=rule):
            call()


def test_what_decrypts_to_no_result_is_refused(encrypted):
    """The answer to keys of another client: noise, which has more bits than a result with all but certainty."""
    stranger = LeveledInferenceClient(encrypted.plan.public, encrypted.parameters)
    answer = encrypted.server.answer(encrypted.request, encrypted.keys)
    with pytest.raises(RuleError, match=r"a result must have at most \d+ bits, or it is wrong"):
        stranger.results(answer)


def test_the_client_s_half_of_a_plan_has_no_weights(encrypted):
    """Another network of the same architecture has the same one, but for the bits of its results."""
    made = encrypted.network
    other = ExactNetwork(tuple(replace(one, rows=-one.rows[::-1]) for one in made.layers), made.low, made.high)
    first, second = (lola_plan(each, encrypted.parameters.ring_degree).public for each in (made, other))
    for each in fields(PublicPlan):
        assert np.array_equal(getattr(first, each.name), getattr(second, each.name)) or each.name == "bits"


def test_a_network_deeper_than_its_parameters_is_refused(encrypted):
    deeper = network(2, 6, 3, 3)
    plan = plan_for(deeper, periodic_plan)[0]
    with pytest.raises(DoesNotFit, match="under the product of its plain moduli"):
        LeveledInferenceServer(plan, encrypted.parameters, "cleartext")
    many = replace(encrypted.parameters, moduli=encrypted.parameters.moduli * 4)
    with pytest.raises(DoesNotFit, match="must have the parameters' ring degree"):
        LeveledInferenceServer(plan, many, "cleartext")
    shallow = periodic_plan(deeper, encrypted.parameters.ring_degree)
    with pytest.raises(RuleError, match="its parameters' data primes: got 4 for 3"):
        LeveledInferenceServer(shallow, many, "cleartext")
    leveled = replace(shallow, circuit=with_switches(shallow.circuit, many))
    with pytest.raises(RuleError, match="every layer must leave 2 bits of noise budget"):
        LeveledInferenceServer(leveled, many, "cleartext")


def test_an_image_that_the_network_was_not_made_for_is_refused(encrypted):
    with pytest.raises(RuleError, match=r"pixels must be integers in \[0, 4\]: got \[0, 5\]"):
        encrypted.client.request(np.array([[[0] * 6] * 5 + [[5] * 6]]))
    with pytest.raises(RuleError, match="must have the network's size"):
        encrypted.client.request(np.zeros((1, 5, 6), dtype=np.int64))


@pytest.mark.parametrize("kept", [0, 3])
def test_weights_beyond_the_limit_on_memory_are_encoded_when_they_are_needed(encrypted, kept):
    """In portions of their sum; what stays is counted against the limit."""
    parameters, circuit = encrypted.parameters, encrypted.plan.circuit
    size = 8 * parameters.ring_degree * len(parameters.data_bits)
    cache = WeightCache(kept * size)
    server = LeveledInferenceServer(encrypted.plan, parameters, cache=cache)
    answer = server.answer(encrypted.request, server.load_keys(encrypted.sent_keys))
    assert list(encrypted.client.results(answer)) == list(encrypted.network.evaluate(encrypted.image))
    assert (kept - 1) * size < cache.taken <= kept * size
    for evaluator in server.engine.evaluators:
        assert evaluator.counts["pmult"] == circuit.counts["pmult"]


def test_a_network_that_nothing_carries_is_refused():
    made = network(2, 6, 3, 3, largest=1 << 40)
    with pytest.raises(DoesNotFit, match="must fit n = 32768"):
        plan_for(ExactNetwork(made.layers, 0, 1 << 60), periodic_plan)
