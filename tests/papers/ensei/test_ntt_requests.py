"""Requests in the NTT domain: the same results and the same noise as a layer's own, one use of each encryption of zero."""

import numpy as np
import pytest

from papers.ensei.ntt_requests import NttClient, NttServer
from privcirnet.errors import RuleError
from privcirnet.he.bfv.client import KernelClient
from privcirnet.he.bfv.kernel_engine import KernelServer
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.planner import counted_goal, plan_named
from privcirnet.he.ring import modular, sampling


@pytest.fixture(scope="module")
def layer():
    return plan_named("ensei", LinearShape(6, 6, 8, 8, 3, 1, 1), 1, counted_goal(8192)).layer


def test_a_layer_gives_what_it_gives_otherwise(layer):
    parameters = choose(layer.transform_lengths, 30)
    t, client, server = parameters.plain_modulus, KernelClient(parameters), KernelServer(parameters)
    keys = server.load_keys(client.public_keys(()), ())
    rows = np.random.default_rng(0).integers(-8, 9, layer.shape.weight_shape(1))
    weights = layer.encode_spectrum(layer.spectrum(rows, t), server)
    ours, theirs = (layer.encode_input(sampling.uniform(layer.shape.input_shape, t), t) for _ in range(2))
    requests, receiver = NttClient(client), NttServer(parameters)
    receiver.ahead(requests.ahead(len(ours)))
    messages = requests.request(ours)
    ordinary = server.receive_all(client.encrypt_all(ours), theirs)
    assert sum(map(len, messages)) == sum(len(message) - 32 for message in client.encrypt_all(ours))
    mask = sampling.uniform((layer.ciphertexts_out, layer.ring_degree), t)
    found = []
    for inputs in (ordinary, receiver.receive(messages, theirs)):
        results = layer.evaluate(weights, inputs, server, keys)
        replies = server.reply_all(results, mask, keys)
        found.append(layer.decode_output(modular.subtract(client.decrypt_all(replies), mask, t), t))
    assert (found[0] == found[1]).all()
    assert found[0].any()
    with pytest.raises(IndexError):
        requests.request(ours)  # nothing is used twice


def test_strangers_bytes_are_checked(layer):
    parameters = choose(layer.transform_lengths, 30)
    requests, receiver = NttClient(KernelClient(parameters)), NttServer(parameters)
    receiver.ahead(requests.ahead(2))
    (message,) = requests.request(np.zeros((1, 8192), dtype=np.uint64))
    own = np.zeros((1, 8192), dtype=np.uint64)
    with pytest.raises(RuleError, match="bytes"):
        receiver.receive([message[:-3]], own)
    with pytest.raises(RuleError, match="residue"):
        receiver.receive([b"\xff" * len(message)], own)
