"""Encryption parameters of a leveled circuit: one modulus q, and as many plain moduli as its values need together.

A value of B bits is computed modulo several primes t_i whose product has more than B bits, each with ciphertexts and
keys of its own, and put together by the Chinese remainder theorem (LoLa, and Falcon 2020, Section 4, take three). The
noise of every product grows with t, so more and shorter primes need a shorter q.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.leveled.circuit import Circuit
from privcirnet.he.leveled.network import LeveledNetwork
from privcirnet.he.leveled.noise import noise_bits
from privcirnet.he.leveled.plan import Plan
from privcirnet.he.params import noise
from privcirnet.he.params.parameters import MAX_PLAIN_BITS, Parameters, coefficient_primes
from privcirnet.he.params.security import MAX_LOG_Q
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.sampling import IMAGE_DISTANCE_BITS, image_distance_bits

RING_DEGREES = (8192, 16384, 32768)
"""From the cheapest."""
_MOST_MODULI, _MOST_PRIMES = 8, 16
_PRIME_BITS = 40, 46, 52, 59
_SPARE_BITS = 8
"""Of the product of all t over the results: what decrypts under foreign keys is noise, and seldom under their bound."""


@dataclass(frozen=True)
class LeveledParameters:
    """Parameters for every plain modulus; all share n and q.

    Attributes:
        moduli: one for each t.
    """

    moduli: tuple[Parameters, ...]

    @property
    def ring_degree(self) -> int:
        """The ring degree n."""
        return self.moduli[0].ring_degree

    @property
    def coefficient_bits(self) -> tuple[int, ...]:
        """Bits of each prime of q, the special prime last."""
        return self.moduli[0].coefficient_bits

    @property
    def plain_bits(self) -> int:
        """Bits that values may have, sign included: those of the product of all t, rounded down."""
        return math.prod(each.plain_modulus for each in self.moduli).bit_length() - 1

    def combined(self, residues: Sequence[Residues]) -> np.ndarray:
        """Return signed integers from their residues.

        Args:
            residues: for each t, of the same shape.

        Returns:
            Python integers of least absolute value.
        """
        whole = math.prod(each.plain_modulus for each in self.moduli)
        total = np.zeros(residues[0].shape, dtype=object)
        for each, values in zip(self.moduli, residues, strict=True):
            t = each.plain_modulus
            total = total + values.astype(object) * (whole // t * pow(whole // t, -1, t))
        total = total % whole
        return np.where(2 * total > whole, total - whole, total)


def plan_for(network: LeveledNetwork, planner: Callable[[LeveledNetwork, int], Plan]) -> tuple[Plan, LeveledParameters]:
    """Return a network's plan for the cheapest parameters that its results fit.

    Cheapest: by the words that a key switch touches, for all plain moduli.

    Args:
        network: what is computed.
        planner: network, n -> plan; raises DoesNotFit where the network needs more slots.

    Raises:
        DoesNotFit: none of n = 8192, 16384, 32768 carries the network.
    """
    bits = network.bits
    found: list[tuple[int, Plan, LeveledParameters]] = []
    refused = f"{bits} bits"
    for n in RING_DEGREES:
        try:
            plan = planner(network, n)
        except DoesNotFit as error:
            refused = error.got or refused
            continue
        for count in range(1, _MOST_MODULI + 1):
            if made := _shortest(n, count, bits, plan.circuit):
                found.append((count * n * len(made.coefficient_bits) ** 2, plan, made))
    if not found:
        rule = f"a network must fit n = {RING_DEGREES[-1]} with 128-bit security: fewer layers, bits or values"
        raise DoesNotFit(rule, got=refused, remedy="use the interactive protocol, or quantise to fewer bits")
    _, plan, parameters = min(found, key=lambda each: each[0])
    return plan, parameters


def fits(parameters: LeveledParameters, circuit: Circuit) -> bool:
    """Return whether every answer of a circuit decrypts after the flooding that hides the weights in all of them.

    Args:
        parameters: for it.
        circuit: of the network.
    """
    found = [noise.noise_budget(each, noise_bits(circuit, each)) for each in parameters.moduli]
    return min(found) >= noise.MIN_NOISE_BUDGET and distance_bits(parameters, circuit) >= IMAGE_DISTANCE_BITS


def distance_bits(parameters: LeveledParameters, circuit: Circuit) -> float:
    """Return -log2 of the distance of an answer's noise from one that no weight has a part in.

    Args:
        parameters: for it.
        circuit: of the network.
    """
    count = len(circuit.outputs) * circuit.ring_degree
    replies = [(count, float(noise_bits(circuit, each))) for each in parameters.moduli]
    return image_distance_bits(replies, min(map(noise.flood_bits, parameters.moduli)))


def check_parameters(parameters: LeveledParameters, circuit: Circuit, bits: int) -> None:
    """Raise unless parameters carry a circuit and its results.

    Args:
        parameters: for it.
        circuit: of the network.
        bits: of the results, sign included.

    Raises:
        DoesNotFit: the results are over the plain moduli, or the circuit is for another ring degree.
        RuleError: the noise is over q: the network is too deep, or an answer would say too much of the weights.
    """
    if parameters.plain_bits < bits:
        got, remedy = f"{bits} bits for {parameters.plain_bits}", "use more plain moduli"
        raise DoesNotFit("a network's results must be under the product of its plain moduli", got=got, remedy=remedy)
    if parameters.ring_degree != circuit.ring_degree:
        got = f"{parameters.ring_degree} for {circuit.ring_degree}"
        raise DoesNotFit("a circuit must have the parameters' ring degree", got=got, remedy="let choose pick both")
    for each in parameters.moduli:
        noise.check_noise(each, noise_bits(circuit, each), "the answer")
    if (distance := distance_bits(parameters, circuit)) < IMAGE_DISTANCE_BITS:
        rule = f"an answer's noise must be within 2^-{IMAGE_DISTANCE_BITS} of one without weights"
        raise RuleError(rule, got=f"2^-{distance:.1f}", remedy="use a longer q or fewer outputs")


def _shortest(n: int, count: int, bits: int, circuit: Circuit) -> LeveledParameters | None:
    """The shortest q for that many plain moduli; None if there is none, or no such plain moduli."""
    plain_bits = max(-(-(bits + _SPARE_BITS) // count) + 1, (2 * n).bit_length() + 5)
    needed = 0
    for primes in _coefficient_bits(n) if plain_bits <= MAX_PLAIN_BITS else ():
        if sum(primes[:-1]) < needed:
            continue
        try:
            moduli = _plain_moduli(n, primes, plain_bits, count)
        except RuleError:
            return None
        made = LeveledParameters(tuple(Parameters(n, primes, t) for t in moduli))
        if fits(made, circuit):
            return made
        needed = max(noise_bits(circuit, each) for each in made.moduli) + plain_bits  # a longer q has hardly less noise
    return None


def _coefficient_bits(n: int) -> list[tuple[int, ...]]:
    """Moduli q that the table allows, the fewest primes first: primes of one size, the special prime too."""
    sets = ((bits,) * primes for primes in range(3, _MOST_PRIMES + 1) for bits in _PRIME_BITS)
    return [primes for primes in sets if sum(primes) <= MAX_LOG_Q[n]]


@lru_cache(maxsize=256)
def _plain_moduli(n: int, coefficient_bits: tuple[int, ...], bits: int, count: int) -> tuple[int, ...]:
    found: list[int] = []
    for _ in range(count):
        skip = coefficient_primes(n, coefficient_bits) | frozenset(found)
        found.append(modular.largest_prime(bits, 2 * n, skip))
    return tuple(found)
