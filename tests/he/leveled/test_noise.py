"""The noise estimate against what SEAL measures with the secret key."""

from privcirnet.he.leveled import engine
from privcirnet.he.leveled.noise import noise_bits
from privcirnet.he.leveled.parameters import distance_bits
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS


def test_the_noise_is_under_its_bound_and_not_far(encrypted):
    """SEAL's budget is log2 q - log2(t noise) - 1."""
    circuit, keys = encrypted.plan.circuit, encrypted.keys
    for number, parameters in enumerate(encrypted.parameters.moduli):
        server, client = encrypted.server.engines[number], encrypted.client._engines[number]
        inputs = [server.receive(message) for message in encrypted.request[number]]
        outputs = engine.run(circuit, engine.encode(circuit, server), inputs, server, keys[number])
        data = sum(parameters.coefficient_bits[:-1])
        measured = [data - client._decryptor.invariant_noise_budget(o) - 1 - parameters.plain_bits for o in outputs]
        assert noise_bits(circuit, parameters) - 8 <= max(measured) <= noise_bits(circuit, parameters)


def test_all_answers_together_hide_the_weights(encrypted):
    assert distance_bits(encrypted.parameters, encrypted.plan.circuit) >= IMAGE_DISTANCE_BITS
