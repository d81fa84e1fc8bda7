"""A client and a server of each engine, and slots for them to work on."""

import functools

import numpy as np

from privcirnet.he.bfv import interface
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.ring import sampling
from privcirnet.he.ring.modular import Integers

PARAMETERS = choose({1}, 46)


N, T = PARAMETERS.ring_degree, PARAMETERS.plain_modulus


STEPS = (1, 2, 256, 3000, 4095)


SINGLE = ("tenseal", "cleartext")
"""Engines that work on one ciphertext at a time."""


@functools.cache
def pair(name: str) -> tuple[interface.ClientEngine, interface.ServerEngine, interface.EvaluationKeys]:
    """(client, server, keys) of one engine."""
    client, server = engine_of(name).parties(PARAMETERS)
    return client, server, server.load_keys(client.public_keys(STEPS), STEPS)


def random_slots() -> np.ndarray:
    return sampling.uniform((N,), T)


X, Y, Z = random_slots(), random_slots(), random_slots()


def some_places(n: int, count: int) -> list[Integers]:
    """Ascending positions for some messages, of different numbers."""
    random = np.random.default_rng(5)
    return [np.unique(np.append(random.integers(0, n, 50 * (number + 1)), [0, n - 1])) for number in range(count)]


KEPT = np.unique(np.concatenate([[0, N - 1], np.random.default_rng(3).integers(0, N, 300)]))
