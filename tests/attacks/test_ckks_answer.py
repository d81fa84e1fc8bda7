"""What a client can read from a CKKS answer beside its logits, and how far it is hidden."""

import numpy as np
import pytest

from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.server import ANSWER_BITS, CkksServer, flood_bits, flood_reply
from privcirnet.he.protocol import wire
from privcirnet.he.protocol.one_message.ckks import CkksInferenceServer
from privcirnet.he.protocol.one_message.session import OneMessageClient, OneMessageServer
from privcirnet.he.ring.modular import centered
from privcirnet.he.ring.sampling import image_distance_bits
from tests.he import ckks_served
from tests.he.ckks_toys import insecure_ckks, random


@pytest.fixture
def parties():
    parameters = insecure_ckks(1, scale_bits=40)
    client, server = CkksClient(parameters), CkksServer(parameters)
    yield client, server, server.receive(client.public_key(), 0)
    client.close()


def remainder(server, asked, reply, guess) -> float:
    """How far a reply's second polynomial is from what weights make of the request's, as a part of the modulus."""
    made = server.multiply_plain(asked, guess).residues[1] if guess is not None else 0
    prime = server.context.parameters.data_primes[0]
    return float(np.abs(centered((reply.residues[1] + prime - made)[0] % prime, prime)).mean() / prime)


def test_a_guess_of_the_weights_cannot_be_confirmed_by_the_second_polynomial(parties):
    """It is linear in the weights, and exact: without a fresh encryption of zero it tells the right guess at once."""
    client, server, public = parties
    weights, wrong = random(0, 512), random(1, 512)
    asked = server.receive(client.encrypt(random(2, 512)))
    bare = server.multiply_plain(asked, weights)
    assert remainder(server, asked, bare, weights) == 0 < remainder(server, asked, bare, wrong)
    reply = flood_reply(server.context, bare, public)
    for guess in (weights, wrong):
        assert remainder(server, asked, reply, guess) == pytest.approx(0.25, abs=0.03), "uniform"


def test_answers_to_the_same_request_have_noise_of_their_own(parties):
    """Of the width that is said: half of that of one part in each coefficient."""
    client, server, public = parties
    bare = server.lower(server.receive(client.encrypt(random(2, 512))), 0)
    replies = [flood_reply(server.context, bare, public) for _ in range(2)]
    assert not (replies[0].residues == replies[1].residues).any(axis=-1).all()
    noise = [client._coefficients(server.reply(r)) - client._coefficients(server.reply(bare)) for r in replies]
    width = 2.0 ** flood_bits(server.context.parameters)
    for each in noise:
        assert each.std() == pytest.approx(width / 2, rel=0.15)
        assert abs(each.mean()) < 5 * width / 2 / len(each) ** 0.5
    assert abs(np.corrcoef(noise)[0, 1]) < 0.2
    slots = abs(client.decrypt(server.reply(replies[0])) - client.decrypt(server.reply(bare)))
    assert 2.0 ** -(ANSWER_BITS + 5) < slots.max() < 2.0**-ANSWER_BITS


@pytest.fixture(scope="module")
def answered():
    """All slots of an answer as the client decrypts them: of a harness that has no noise, and of a service."""
    with ckks_served.insecure():
        program, image = ckks_served.program(), ckks_served.images()[0]
        server = OneMessageServer(program)
        client = OneMessageClient(server.greeting())
        session, asking = server.session(client.keys()), client.infer(image)
        request = next(asking)
        bare = CkksInferenceServer(program, hides=False)
        bare_reply = bare.answer([wire.unframe(request, 1)], session.keys)
        served = wire.unframe(session.handle(request), wire.OUTPUT)
        decrypt = client.inference._decrypted
        yield server, decrypt(bare_reply[0][0]), decrypt(served[0])


def test_slots_beside_the_logits_tell_nothing_of_the_classifier(answered):
    """They held its bias, which is a weight, in every slot of a class."""
    server, bare, _ = answered
    ends, bias = server.description.ends, ckks_served.program().sums.bias
    beside = np.arange(bare.size) % ends.last.area != 0
    assert np.abs(bias).max() > 2.0**-10
    assert np.abs(bare[beside]).max() < 2.0**-15 < np.abs(bare[~beside]).max()


def test_flooding_of_a_served_answer_is_not_that_of_bfv(answered):
    """It is 2^12 times the circuit's error, not 2^40, so an image's answer is 2^-7 from one without it, not 2^-30.

    A client that collects answers learns of the circuit's error, and so of the weights: SECURITY.md says so.
    """
    server, bare, served = answered
    assert server.inference.flooding == 12
    error, noise = np.abs(bare[1:64].imag).std(), np.abs(served - bare).std()
    assert noise > 2**9 * error
    n, noise_bits = 2 * bare.size, server.inference.rehearsed.reply.noise_bits(bare.size)
    distance = image_distance_bits([(n, noise_bits)], flood_bits(server.description.parameters))
    assert 6 < distance < 9
