"""What each party can reach."""

import gc
import json
import types

import numpy as np
import pytest
import tenseal.sealapi as seal

from privcirnet.he.bfv import client as kernel_client
from privcirnet.he.bfv import engines
from privcirnet.he.bfv import kernel_engine as kernel
from privcirnet.he.bfv import seal as tenseal
from privcirnet.he.layers import spectral_layer
from privcirnet.he.layers.bsgs import BsgsPlan
from privcirnet.he.layers.integer import expand_rows
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.ring import modular
from privcirnet.he.ring.kernels.ntt import Tables
from privcirnet.he.rlwe.kernels.rns import RnsRing
from tests.he.networks import network, random_image


def reachable(*roots: object) -> list[object]:
    """Everything that objects hold, directly or not; code, classes and modules are not followed."""
    closed = (type, types.ModuleType, types.FunctionType, types.CodeType, types.BuiltinFunctionType)
    known, waiting = {}, list(roots)
    while waiting:
        item = waiting.pop()
        if id(item) in known or isinstance(item, closed):
            continue
        known[id(item)] = item
        waiting += gc.get_referents(item)
    return list(known.values())


SECRETS = (
    kernel_client.KernelClient,
    tenseal.TensealClient,
    engines.CleartextClient,
    seal.KeyGenerator,
    seal.SecretKey,
    seal.Encryptor,
    seal.Decryptor,
)


@pytest.fixture(scope="module", params=["kernel", "tenseal"])
def midway(request: pytest.FixtureRequest) -> tuple[list[object], list[object], Server]:
    """What (client, server) reach in the middle of an inference."""
    server = Server(network(), request.param)
    client = Client(server.greeting(), request.param)
    session = server.session(client.keys())
    exchange = client.infer(random_image(server.program))
    message = next(exchange)
    for _ in range(2):
        message = exchange.send(session.handle(message))
    reply = session.handle(message)
    return reachable(client, exchange, message), reachable(server, session, reply), server


HELD = {
    kernel.KernelServer: {kernel_client.KernelClient},
    tenseal.TensealServer: {tenseal.TensealClient, seal.KeyGenerator, seal.Encryptor, seal.Decryptor},
}


def test_the_server_reaches_no_key_that_decrypts(midway: tuple[list[object], list[object], Server]) -> None:
    """Two parties in one process have only plans, known by their shapes, and roots of unity in common, all public."""
    of_client, of_server, server = midway
    assert not [item for item in of_server if isinstance(item, SECRETS)]
    assert HELD[type(server.engine)] <= {type(item) for item in of_client}
    for own in [item for item in of_client if isinstance(item, kernel_client.KernelClient)]:
        assert holds(arrays(of_client), own._key())
        assert not holds(arrays(of_server), own._key())
    common = {id(i) for i in of_client} & {id(i) for i in of_server}
    plans = [item for item in of_client if isinstance(item, BsgsPlan | Tables | RnsRing)]
    public = {id(item) for item in reachable(*plans)}
    assert plans
    shared = [item for item in of_client if id(item) in common - public]
    assert not [item for item in shared if isinstance(item, np.ndarray | tenseal._Context | Client | Server)]


def arrays(items: list[object]) -> list[np.ndarray]:
    return [item for item in items if isinstance(item, np.ndarray)]


def holds(found: list[np.ndarray], wanted: np.ndarray) -> bool:
    flat = wanted.reshape(-1)
    return any(array.size == flat.size and (array.reshape(-1) == flat).all() for array in found)


def test_the_client_reaches_no_weight(midway: tuple[list[object], list[object], Server]) -> None:
    of_client, of_server, server = midway
    program, t = server.program, server.program.parameters.plain_modulus
    secrets = []
    for node, layer in program.linear_nodes:
        weights = program.weights[node.name]
        spectrum = spectral_layer.weight_spectrum(layer.layout, weights.rows, t)
        dense = expand_rows(weights.rows, layer.block_size)
        secrets += [weights.rows, weights.bias, modular.residues(weights.bias, t), spectrum, dense]
        assert holds(arrays(of_server), weights.rows)
        assert holds(arrays(of_server), weights.bias)
    assert arrays(of_client)
    assert not [secret for secret in secrets if holds(arrays(of_client), secret)]
    assert not [item for item in of_client if isinstance(item, tenseal.TensealServer | kernel.KernelServer | Server)]


def test_of_the_weights_a_greeting_says_how_wide_results_are_and_nothing_else() -> None:
    first, second = (json.loads(Server(network(seed=seed), "cleartext").greeting()) for seed in (0, 1))
    assert {first.pop("output_bits"), second.pop("output_bits")} <= {23, 24}
    assert first == second
    assert not np.array_equal(network(seed=0).weights["head"].rows, network(seed=1).weights["head"].rows)
