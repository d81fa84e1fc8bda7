"""INSECURE CKKS parameters of a toy ring degree, and parties that share them."""

from dataclasses import dataclass

import numpy as np

from privcirnet.he.leveled.ckks.client import CkksClient
from privcirnet.he.leveled.ckks.embedding import Slots
from privcirnet.he.leveled.ckks.machine import Encrypted
from privcirnet.he.leveled.ckks.parameters import CkksParameters
from privcirnet.he.leveled.ckks.server import Ciphertext, CkksServer


def insecure_ckks(
    levels: int, digit_primes: int = 2, scale_bits: int = 40, n: int = 1024, first: int = 54, **more: int
):
    """INSECURE parameters, put together behind the back of the check."""
    toy = object.__new__(CkksParameters)
    values = {"ring_degree": n, "levels": levels, "scale_bits": scale_bits, "first_bits": first}
    for name, value in (values | {"digit_primes": digit_primes} | more).items():
        object.__setattr__(toy, name, value)
    return toy


@dataclass
class Pair:
    """A client and a server of the same parameters."""

    client: CkksClient
    server: CkksServer

    @staticmethod
    def of(parameters: CkksParameters) -> "Pair":
        return Pair(CkksClient(parameters), CkksServer(parameters))

    def machine(self, steps=()) -> Encrypted:
        return Encrypted(self.server, self.server.load_keys(self.client.evaluation_keys(steps), steps))

    def fresh(self, slots) -> Ciphertext:
        return self.server.receive(self.client.encrypt(slots))

    def slots(self, ciphertext: Ciphertext) -> np.ndarray:
        return self.client.decrypt(self.server.reply(ciphertext))


def random_slots(seed: int, count: int = 512) -> Slots:
    """Complex slots of absolute value 1."""
    angles = 2 * np.pi * np.random.default_rng(seed).random(count)
    return np.cos(angles) + 1j * np.sin(angles)
