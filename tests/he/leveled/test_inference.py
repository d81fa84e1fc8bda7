"""Both parties: encrypted results are the integer network's, and what is wrong is refused."""

from dataclasses import fields, replace

import numpy as np
import pytest

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.leveled.inference import LeveledInferenceClient, LeveledInferenceServer
from privcirnet.he.leveled.lola import lola_plan
from privcirnet.he.leveled.network import LeveledNetwork
from privcirnet.he.leveled.parameters import LeveledParameters, plan_for
from privcirnet.he.leveled.periodic import periodic_plan
from privcirnet.he.leveled.plan import PublicPlan
from tests.he.leveled.networks import image_of, network


def test_encrypted_results_are_the_integer_network_s(encrypted):
    """Twice with the same keys; the engine did what the circuit says."""
    for seed in (0, 1):
        image = image_of(encrypted.network, seed)
        for server in encrypted.server.engines:
            server.counts.clear()
        answer = encrypted.server.answer(encrypted.client.request(image), encrypted.keys)
        assert list(encrypted.client.results(answer)) == list(encrypted.network.evaluate(image))
        for server in encrypted.server.engines:
            wanted = encrypted.plan.circuit.counts
            assert {name: server.counts[name] for name in ("rotate", "pmult", "square")} == {
                name: wanted[name] for name in ("rotate", "pmult", "square")
            }


def test_three_layers_with_two_squares_and_padded_blocks():
    """n = 16384, with the plan of the fewest keys."""
    made = network(2, 6, 6, 3, b=4, largest=1)
    plan, parameters = plan_for(made, periodic_plan)
    client, server = LeveledInferenceClient(plan.public, parameters), LeveledInferenceServer(plan, parameters)
    image = image_of(made)
    answer = server.answer(client.request(image), server.load_keys(client.keys()))
    assert list(client.results(answer)) == list(made.evaluate(image))
    client.close()


def test_slots_without_a_result_are_masked(encrypted):
    """Two answers to one request differ wherever the client reads no result: partial sums of weights stay hidden."""
    slots = []
    for _ in range(2):
        answer = encrypted.server.answer(encrypted.request, encrypted.keys)
        slots.append(np.array([encrypted.client._engines[0].decrypt(message) for message in answer[0]]))
    for output in range(len(encrypted.plan.circuit.outputs)):
        free = encrypted.plan.public.free(output)
        same = slots[0][output] == slots[1][output]
        assert same[~free].all()
        assert same[free].sum() <= 3, "chance is 8192 / t"


def test_a_truncated_or_foreign_request_is_refused(encrypted):
    cut = [list(messages) for messages in encrypted.request]
    cut[-1][-1] = cut[-1][-1][:-1]
    with pytest.raises(RuleError, match="a ciphertext must have the length"):
        encrypted.server.answer(cut, encrypted.keys)
    with pytest.raises(RuleError, match="a request must have 9 ciphertexts for each of"):
        encrypted.server.answer([messages[:-1] for messages in encrypted.request], encrypted.keys)
    large = [list(messages) for messages in encrypted.request]
    large[0][0] = b"\xff" * len(large[0][0])
    with pytest.raises(RuleError, match="every residue must be under its prime"):
        encrypted.server.answer(large, encrypted.keys)


def test_keys_that_are_cut_or_too_few_are_refused(encrypted):
    with pytest.raises(RuleError, match="must have the length that the plan's rotations fix"):
        encrypted.server.load_keys([encrypted.sent_keys[0][:-1], *encrypted.sent_keys[1:]])
    with pytest.raises(RuleError, match="keys must be for every plain modulus"):
        encrypted.server.load_keys([])


def test_a_foreign_answer_is_refused(encrypted):
    with pytest.raises(RuleError, match="an answer must have"):
        encrypted.client.results([])


def test_what_decrypts_to_no_result_is_refused(encrypted):
    """The answer to keys of another client: noise, which has more bits than a result with all but certainty."""
    stranger = LeveledInferenceClient(encrypted.plan.public, encrypted.parameters)
    answer = encrypted.server.answer(encrypted.request, encrypted.keys)
    with pytest.raises(RuleError, match=r"a result must have at most \d+ bits, or it is wrong"):
        stranger.results(answer)


def test_the_client_s_half_of_a_plan_has_no_weights(encrypted):
    """Another network of the same architecture has the same one, but for the bits of its results."""
    made = encrypted.network
    other = LeveledNetwork(tuple(replace(one, rows=-one.rows[::-1]) for one in made.layers), made.low, made.high)
    first, second = (lola_plan(each, encrypted.parameters.ring_degree).public for each in (made, other))
    for each in fields(PublicPlan):
        assert np.array_equal(getattr(first, each.name), getattr(second, each.name)) or each.name == "bits"


def test_a_network_deeper_than_its_parameters_is_refused(encrypted):
    deeper = network(2, 6, 3, 3)
    plan = plan_for(deeper, periodic_plan)[0]
    with pytest.raises(DoesNotFit, match="under the product of its plain moduli"):
        LeveledInferenceServer(plan, encrypted.parameters, "cleartext")
    many = LeveledParameters(encrypted.parameters.moduli * 4)
    with pytest.raises(DoesNotFit, match="must have the parameters' ring degree"):
        LeveledInferenceServer(plan, many, "cleartext")
    shallow = periodic_plan(deeper, encrypted.parameters.ring_degree)
    with pytest.raises(RuleError, match="every layer must leave 2 bits of noise budget"):
        LeveledInferenceServer(shallow, many, "cleartext")


def test_an_image_that_the_network_was_not_made_for_is_refused(encrypted):
    with pytest.raises(RuleError, match=r"pixels must be integers in \[0, 4\]: got \[0, 5\]"):
        encrypted.client.request(np.array([[[0] * 6] * 5 + [[5] * 6]]))
    with pytest.raises(RuleError, match="must have the network's size"):
        encrypted.client.request(np.zeros((1, 5, 6), dtype=np.int64))


def test_a_network_that_nothing_carries_is_refused():
    made = network(2, 6, 3, 3, largest=1 << 40)
    with pytest.raises(DoesNotFit, match="must fit n = 32768"):
        plan_for(LeveledNetwork(made.layers, 0, 1 << 60), periodic_plan)
