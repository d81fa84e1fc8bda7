"""The noise estimate against what is measured with the secret key: by SEAL, and in the kernels' ciphertexts."""

from math import log2, prod

import numpy as np
import pytest

from papers.falcon2020.circuits.evaluator import encode, run
from papers.falcon2020.circuits.noise import Noise, noise_bits
from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.planning.parameters import distance_bits
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS


def outputs_of(encrypted):
    """For each plain modulus the circuit's outputs as ciphertexts."""
    circuit, server, top = encrypted.plan.circuit, encrypted.server.engine, len(encrypted.parameters.data_bits)
    received = server.receive_all(encrypted.request)
    for number, evaluator in enumerate(server.evaluators):
        plaintexts = encode(circuit, evaluator, top)
        yield number, run(circuit, plaintexts, received[number](), evaluator, encrypted.keys[number])


def test_seal_s_noise_is_under_its_bound_and_not_far(by_seal):
    """SEAL's budget is log2 q - log2(t noise) - 1."""
    bound = noise_bits(by_seal.plan.circuit, by_seal.parameters)
    for number, outputs in outputs_of(by_seal):
        parameters, client = by_seal.parameters.moduli[number], by_seal.client.engine.clients[number]
        data = sum(parameters.coefficient_bits[:-1])
        measured = [data - client._decryptor.invariant_noise_budget(o) - 1 - parameters.plain_bits for o in outputs]
        assert bound - 8 <= max(measured) <= bound


def test_the_kernels_noise_is_under_its_bound_and_not_far(encrypted):
    """With c0 + c1 s = x mod q the noise is x t mod q, centred, over t."""
    chain, secret = encrypted.client.engine.chain, encrypted.client.engine._secret[0]
    bound, n = noise_bits(encrypted.plan.circuit, encrypted.parameters), chain.parameters.ring_degree
    for number, outputs in outputs_of(encrypted):
        t = encrypted.parameters.moduli[number].plain_modulus
        for output in outputs:
            level = output.primes
            assert level == encrypted.plan.public.primes
            primes, q = chain.parameters.data_primes[:level], prod(chain.parameters.data_primes[:level])
            rows = np.empty((level, n), dtype=np.uint64)
            for i, p in enumerate(primes):
                c0, c1, s = (x.astype(object) for x in (*output.residues[:, i], secret[i]))
                rows[i] = (c0 + c1 * s) % p
            found = chain.coefficients(rows[None])[0].astype(object)
            x = sum(row * (q // p * pow(q // p, -1, p)) for row, p in zip(found, primes, strict=True)) * t % q
            largest = np.where(2 * x > q, q - x, x).max() / t
            assert bound - 8 <= log2(largest) <= bound


@pytest.mark.parametrize("engine_name", ["encrypted", "by_seal"])
def test_all_answers_together_hide_the_weights(engine_name, request):
    made = request.getfixturevalue(engine_name)
    assert distance_bits(made.parameters, made.plan.circuit) >= IMAGE_DISTANCE_BITS


def test_no_switch_leaves_less_than_its_own_rounding():
    """What is there before can be as small as it likes: the rounding times s is there afterwards."""
    noise = Noise(LeveledParameters((choose({1}, 20, 8192),)))
    assert noise.reduced(0.0, 3, 1) >= noise.rounding
    large = noise.rounding + 300.0
    bits = sum(choose({1}, 20, 8192).coefficient_bits[1:3])
    assert noise.reduced(large, 3, 1) == pytest.approx(max(large - 2 * bits, noise.rounding), abs=1.0)
