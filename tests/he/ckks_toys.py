"""INSECURE CKKS parameters of a toy ring degree, and parties that share them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.embedding import Slots
from privcirnet.he.ckks.evaluator import EncryptedEvaluator
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.server import CkksServer
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.ring.modular import bit_reversed
from privcirnet.he.rlwe.key_switching import Ciphertext
from privcirnet.he.rlwe.parameters import conjugation_element


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

    def machine(self, steps=(), *, conjugates=False) -> EncryptedEvaluator:
        """With keys for rotations by some steps, or for names with levels."""
        context = self.server.context
        names = steps if isinstance(steps, Mapping) else context.elements(steps)
        names = {*names, conjugation_element(context.parameters.ring_degree)} if conjugates else names
        return EncryptedEvaluator(self.server, self.server.load_keys(self.client.evaluation_keys(names), names))

    def fresh(self, slots) -> Ciphertext:
        return self.server.receive(self.client.encrypt(slots))

    def slots(self, ciphertext: Ciphertext) -> np.ndarray:
        return self.client.decrypt(self.server.reply(ciphertext))


def random_slots(seed: int, count: int = 512) -> Slots:
    """Complex slots of absolute value 1."""
    angles = 2 * np.pi * np.random.default_rng(seed).random(count)
    return np.cos(angles) + 1j * np.sin(angles)


def random(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def slot_order(length: int, slots: int) -> np.ndarray:
    """The coefficient of its slice that each slot holds in slot encoding, shape (n / 2,)."""
    return np.tile(bit_reversed(length), slots // length)


def in_slots(slices: np.ndarray) -> Slots:
    """Slices of 2 l real values in slot encoding."""
    length = slices.shape[1] // 2
    folded = slices[:, :length] + 1j * slices[:, length:]
    return np.take_along_axis(folded, slot_order(length, folded.size).reshape(folded.shape), axis=1).reshape(-1)


def applied(maps, slots: Slots) -> Slots:
    for linear in maps:
        slots = linear(slots)
    return slots


def simulate(circuit, parameters: CkksParameters, bound: float = 1.0, names=None):
    """What is known of a circuit of one value, as the server replies it, and the simulator."""
    simulator = Simulator(parameters, names)
    found = circuit(simulator, simulator.fresh(bound))
    return simulator.reply(found), simulator
