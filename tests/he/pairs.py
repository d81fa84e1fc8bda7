"""A client and a server of each engine, and slots for them to work on."""

import functools

import numpy as np

from privcirnet.he.circuits.bfv.interactive import interface
from privcirnet.he.ring import sampling
from privcirnet.he.schemes.bfv.parameters import choose

PARAMETERS = choose({1}, 46)


N, T = PARAMETERS.ring_degree, PARAMETERS.plain_modulus


STEPS = (1, 2, 256, 3000, 4095)


SINGLE = ("tenseal", "cleartext")
"""Engines that work on one ciphertext at a time."""


@functools.cache
def pair(name: str) -> tuple[interface.ClientEngine, interface.ServerEngine, interface.EvaluationKeys]:
    """(client, server, keys) of one engine."""
    client, server = interface.client_engine(name, PARAMETERS), interface.server_engine(name, PARAMETERS)
    return client, server, server.load_keys(client.public_keys(STEPS), STEPS)


def random_slots() -> np.ndarray:
    return sampling.uniform((N,), T)


X, Y, Z = random_slots(), random_slots(), random_slots()


KEPT = np.unique(np.concatenate([[0, N - 1], np.random.default_rng(3).integers(0, N, 300)]))
