"""What travels: lengths, strangers' bytes, seeds, and results that others will see."""

import math

import numpy as np
import pytest

from privcirnet.errors import RuleError
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS, image_distance_bits
from tests.he.ckks_toys import Pair, insecure_ckks, random_slots


def test_messages_have_the_lengths_that_parameters_fix(pair):
    parameters = pair.server.context.parameters
    assert len(pair.client.evaluation_keys([5])) == 2 * pair.server.context.parameters.rlwe.key_bytes(6)
    message = pair.client.encrypt(random_slots(0), level=1)
    bits = [prime.bit_length() for prime in parameters.data_primes]
    assert len(message) == 1024 // 8 * sum(bits[:2]) + 32
    assert len(pair.server.reply(pair.server.receive(message, 1))) == 2 * 1024 // 8 * bits[0]


def test_strangers_bytes_are_refused(pair):
    server, fresh, keys = pair.server, pair.client.encrypt(random_slots(0)), pair.client.evaluation_keys([5])
    reply = server.reply(server.receive(fresh))
    length, residues = "the length that the parameters", "every residue must be under its prime"
    for rule, read, message in (
        *((length, server.receive, message) for message in (fresh[:-1], fresh + b"\0", b"")),
        (residues, server.receive, b"\xff" * (len(fresh) - 32) + fresh[-32:]),
        (length, lambda keys: server.load_keys(keys, [5, 25]), keys),
        (residues, lambda keys: server.load_keys(keys, [5]), b"\xff" * len(keys)),
        (length, pair.client.decrypt, reply[:-1]),
        (residues, pair.client.decrypt, b"\xff" * len(reply)),
    ):
        with pytest.raises(RuleError, match=rule):
            read(message)


def test_nothing_is_used_twice(pair):
    slots = random_slots(1)
    first, second = pair.client.encrypt(slots), pair.client.encrypt(slots)
    assert first[-32:] != second[-32:]
    assert np.mean(np.frombuffer(first, np.uint8) == np.frombuffer(second, np.uint8)) < 0.1
    keys, size = pair.client.evaluation_keys([5, 25]), pair.server.context.parameters.rlwe.key_bytes(6) // 3
    seeds = [keys[end - 64 : end] for end in range(size, len(keys) + 1, size)]
    assert len(set(seeds)) == len(seeds) == 9


def test_a_key_of_another_client_does_not_decrypt(pair):
    message = pair.server.reply(pair.fresh(random_slots(2)))
    other = CkksClient(pair.server.context.parameters)
    assert np.abs(other.decrypt(message) - random_slots(2)).max() > 1
    other.close()
    with pytest.raises(RuntimeError, match="a closed client has no keys"):
        other.decrypt(message)


def test_operations_refuse_what_they_cannot_do(pair):
    low = pair.server.receive(pair.client.encrypt(random_slots(0), level=0), 0)
    with pytest.raises(RuleError, match="a product must find a level above 0"):
        pair.machine().multiply(low, low)
    with pytest.raises(RuleError, match=r"every rotation must have a key: got none for the Galois elements \[125\]"):
        pair.machine({1}).rotate(pair.fresh(random_slots(0)), 3)
    context = Context(pair.server.context.parameters)
    with pytest.raises(RuleError, match=r"must have 512 slots: got shape \(3,\)"):
        context.integers(np.ones(3), 1.0)
    with pytest.raises(RuleError, match=r"coefficients must be under 2\^62"):
        context.integers(2.0, 2.0**62)
    with pytest.raises(RuleError, match=r"coefficients must be under 2\^62: got nan"):
        context.integers(np.nan, 1.0)


def test_a_result_for_others_is_flooded():
    """Its noise is 2^40 times the error's bound wide, which hides the error of all coefficients to 2^-30."""
    pair, slots = Pair.of(insecure_ckks(0, 1, scale_bits=58, first=60)), random_slots(3) / 8
    estimate = Simulator(pair.server.context.parameters).fresh()
    bits, message = estimate.noise_bits(512), pair.server.reply(pair.fresh(slots))
    own, shared = pair.client.decrypt(message), pair.client.decrypt_to_share(message, bits)
    assert np.abs(own - slots).max() < 2**-estimate.precision_bits
    deviation = 2 ** (bits + 40) * math.sqrt(3 / 12) * math.sqrt(1024) / 2**58
    assert 0.8 < np.sqrt((np.abs(shared - own) ** 2).mean()) / deviation < 1.2
    assert image_distance_bits([(1024, float(bits))], bits + 40) > IMAGE_DISTANCE_BITS
