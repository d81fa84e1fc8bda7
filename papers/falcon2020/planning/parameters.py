"""Encryption parameters of a leveled circuit: one modulus q, and as many plain moduli as its values need together.

A value of B bits is computed modulo several primes t_i whose product has more than B bits, each with ciphertexts and
keys of its own, and put together by the Chinese remainder theorem (LoLa, and Falcon 2020, Section 4, take three). The
noise of every product grows with t, so more and shorter primes need a shorter q.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from papers.falcon2020.circuits.double_hoisting import with_double_hoisting
from papers.falcon2020.circuits.modulus_switching import at_one_modulus, with_switches
from papers.falcon2020.circuits.network_circuit import (
    Combine,
    ModSwitch,
    NetworkCircuit,
    Rotate,
    SquareStep,
    sources_of,
)
from papers.falcon2020.circuits.noise import noise_bits
from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.circuits.repetitions import without_repetitions
from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.plan import Plan
from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.bfv import noise
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, Parameters, coefficient_primes
from privcirnet.he.ring import modular
from privcirnet.he.ring.sampling import FLOODING_BITS, IMAGE_DISTANCE_BITS, image_distance_bits
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from privcirnet.he.rlwe.wire_bytes import packed_bytes

RING_DEGREES = (8192, 16384, 32768)
"""From the cheapest."""
_MOST_MODULI, _MOST_PRIMES = 8, 16
_PRIME_BITS, _SEAL_BITS = (40, 48, 56), (40, 46, 52, 59)
"""Of the data primes but the first, for the kernels and for SEAL."""
_DIGITS, _EXTRA = (1, 2, 3, 4), (1, 2, 3)
"""Data primes in a digit of key switching, and those of requests alone."""
_SWITCHED = 10
"""Bits that the first data prime has over a plain modulus: an answer keeps this prime alone."""
_MOST_KEY_BYTES = 29_900_000
_SPARE_BITS = 8
"""Of the product of all t over the results: what decrypts under foreign keys is noise, and seldom under their bound."""


def plan_for(
    network: ExactNetwork, planner: Callable[[ExactNetwork, int], Plan], engine: str = "kernel"
) -> tuple[Plan, LeveledParameters]:
    """Return a network's plan for the cheapest parameters that its results fit, with its modulus switches.

    The ring degree is the least that carries the network. Cheapest: by rows of transforms for all plain moduli, among
    parameters whose keys have at most 30 MB; if there are none, those with the shortest keys.

    Args:
        planner: network, n -> plan; raises DoesNotFit where the network needs more slots.
        engine: that it is for: "tenseal" has one request for each plain modulus, one special prime and no levels.
    """
    bits, refused = network.bits, f"{network.bits} bits"
    for n in RING_DEGREES:
        try:
            plan = planner(network, n)
        except DoesNotFit as error:
            refused = error.got or refused
            continue
        counts, alike = range(1, _MOST_MODULI + 1), without_repetitions(plan.circuit)
        found = [made for count in counts for made in _candidates(n, count, bits, alike, engine)]
        if found:
            short = [each for each in found if each.key_bytes <= _MOST_KEY_BYTES]
            best = min(short, key=lambda each: each.work) if short else min(found, key=lambda each: each.key_bytes)
            return _at_levels(plan, best.parameters), best.parameters
    rule = f"a network must fit n = {RING_DEGREES[-1]} with 128-bit security: fewer layers, bits or values"
    raise DoesNotFit(rule, got=refused, remedy="use the interactive protocol, or quantise to fewer bits")


def plan_at(network: ExactNetwork, planner: Callable[[ExactNetwork, int], Plan], parameters: LeveledParameters) -> Plan:
    """Return a network's plan for parameters that :func:`plan_for` found, with its modulus switches.

    Raises:
        DoesNotFit: the network needs more slots.
    """
    return _at_levels(planner(network, parameters.ring_degree), parameters)


def _at_levels(plan: Plan, parameters: LeveledParameters) -> Plan:
    """A plan with its modulus switches and double hoisting, which SEAL's, without primes for requests, does without."""
    circuit, top = plan.circuit, len(parameters.data_bits)
    if parameters.request_bits:
        circuit = with_double_hoisting(with_switches(circuit, parameters), top, 1 + len(parameters.special_bits))
    keys, primes = tuple(circuit.keys(top).items()), circuit.primes_of(top)[circuit.outputs[0]]
    return replace(plan, circuit=circuit, public=replace(plan.public, keys=keys, primes=primes))


def fits(parameters: LeveledParameters, circuit: NetworkCircuit) -> bool:
    """Return whether every answer of a circuit decrypts after the flooding that hides the weights in all of them."""
    bits = noise_bits(circuit, parameters)
    found = [noise.noise_budget(each, bits) for each in _answers(parameters, circuit)]
    return min(found) >= noise.MIN_NOISE_BUDGET and distance_bits(parameters, circuit) >= IMAGE_DISTANCE_BITS


def distance_bits(parameters: LeveledParameters, circuit: NetworkCircuit) -> float:
    """Return -log2 of the distance of an answer's noise from one that does not depend on the weights."""
    count, bits = len(circuit.outputs) * circuit.ring_degree, float(noise_bits(circuit, parameters))
    replies = [(count, bits)] * len(parameters.moduli)
    return image_distance_bits(replies, min(map(noise.flood_bits, _answers(parameters, circuit))))


def _answers(parameters: LeveledParameters, circuit: NetworkCircuit) -> list[Parameters]:
    """Of the answers' ciphertexts, for each plain modulus."""
    level = circuit.primes_of(len(parameters.data_bits))[circuit.outputs[0]]
    return [parameters.at(number, level) for number in range(len(parameters.moduli))]


def check_parameters(parameters: LeveledParameters, circuit: NetworkCircuit, bits: int, engine: str = "kernel") -> None:
    """Raise unless parameters carry a circuit and its results on an engine.

    Args:
        engine: that runs it; SEAL's takes a request for each plain modulus, and stays under one modulus.

    Raises:
        DoesNotFit: the results are over the plain moduli, or the circuit is for another ring degree.
        RuleError: the noise is over q: the network is too deep, or an answer would say too much of the weights; or the
            circuit's modulus switches are for other parameters.
    """
    if parameters.plain_bits < bits:
        got, remedy = f"{bits} bits for {parameters.plain_bits}", "use more plain moduli"
        raise DoesNotFit("a network's results must be under the product of its plain moduli", got=got, remedy=remedy)
    if parameters.ring_degree != circuit.ring_degree:
        got = f"{parameters.ring_degree} for {circuit.ring_degree}"
        raise DoesNotFit("a circuit must have the parameters' ring degree", got=got, remedy="let choose pick both")
    if engine == "tenseal":
        parameters, circuit = replace(parameters, request_bits=()), at_one_modulus(circuit, parameters.key_primes)
    top = len(parameters.data_bits)
    levels = {circuit.primes_of(top)[output] for output in circuit.outputs} | {*circuit.keys(top).values()}
    if max(levels) > parameters.key_primes:
        got, remedy = f"{max(levels)} for {parameters.key_primes}", "let plan_for put in the modulus switches"
        raise RuleError(
            "a circuit must switch keys and answer under its parameters' data primes", got=got, remedy=remedy
        )
    noise_found = noise_bits(circuit, parameters)
    for each in _answers(parameters, circuit):
        noise.check_noise(each, noise_found, "the answer")
    if (distance := distance_bits(parameters, circuit)) < IMAGE_DISTANCE_BITS:
        rule = f"an answer's noise must be within 2^-{IMAGE_DISTANCE_BITS} of one without weights"
        raise RuleError(rule, got=f"2^-{distance:.1f}", remedy="use a longer q or fewer outputs")


@dataclass(frozen=True)
class _Candidate:
    """Parameters, and a circuit without repetitions with its modulus switches for them.

    Attributes:
        counts: how often each of its other steps stands in the network's circuit.
    """

    parameters: LeveledParameters
    circuit: NetworkCircuit
    counts: tuple[int, ...]

    @cached_property
    def key_bytes(self) -> int:
        """Of the public key and all switch keys, their seeds aside."""
        parameters = self.parameters
        widths = parameters.data_bits
        special = parameters.coefficient_bits[-1] + sum(parameters.special_bits)
        digits = [-(-level // parameters.digit_primes) for level in range(len(widths) + 1)]
        each = [digits[level] * (special + sum(widths[:level])) for level in range(len(widths) + 1)]
        switch = sum(each[level] for level in self.circuit.keys(len(widths)).values())
        answer = self.circuit.primes_of(len(widths))[self.circuit.outputs[0]]
        return packed_bytes(parameters.ring_degree, (switch, *widths[:answer]))

    @cached_property
    def work(self) -> int:
        """Rows of transforms for all plain moduli; eight rows of products count as one."""
        parameters, special = self.parameters, 1 + len(self.parameters.special_bits)
        levels, rows = self.circuit.primes_of(len(parameters.data_bits)), 0
        steps = [step for step in self.circuit.steps if not isinstance(step, ModSwitch)]
        for step, count in zip(steps, self.counts, strict=True):
            level, own = levels[sources_of(step)[0]], 0
            digits = -(-level // parameters.digit_primes)
            if isinstance(step, Rotate | SquareStep):
                own += digits * (level + special) + 2 * level + 2 * special
            own += 16 * level + 8 if isinstance(step, SquareStep) else 0
            own += len(step.terms) * level // 4 if isinstance(step, Combine) else 0
            rows += count * own
        return rows * parameters.ring_degree * len(parameters.moduli)


def _candidates(
    n: int, count: int, bits: int, alike: tuple[NetworkCircuit, tuple[int, ...]], engine: str
) -> Iterator[_Candidate]:
    """The shortest q of each size of primes for that many plain moduli, with digits of one prime and more."""
    plain_bits = max(-(-(bits + _SPARE_BITS + 1) // count), (2 * n).bit_length() + 5)
    if (count > 1 and plain_bits * (count - 1) > bits + _SPARE_BITS) or plain_bits > MAX_PLAIN_BITS:
        return
    seal, plain = engine == "tenseal", (n, plain_bits, count)
    shapes = [(digit, extra) for digit in _DIGITS for extra in _EXTRA]
    for size in _SEAL_BITS if seal else _PRIME_BITS:
        first = size if seal else min(size, 8 * -(-(plain_bits + _SWITCHED) // 8))
        needed = _needed((first, size, size), seal, plain, alike[0])
        for primes in range(2, _MOST_PRIMES):
            data = (first, *(size,) * (primes - 1))
            if sum(data) < needed:
                continue
            each = [_made(data, *shape, plain, *alike) for shape in ([(1, 0)] if seal else shapes)]
            if made := [own for own in each if own and fits(own.parameters, own.circuit)]:
                yield from made
                break


def _needed(data: tuple[int, ...], seal: bool, plain: tuple[int, int, int], circuit: NetworkCircuit) -> int:
    """Bits that the data primes have at least: noise hardly depends on their number."""
    made = _parameters(data, 0 if seal else 1, 1, plain)
    if made is None:
        return sum(MAX_LOG_Q.values())
    return noise_bits(circuit, made) + plain[1] + FLOODING_BITS + noise.MIN_NOISE_BUDGET


def _made(
    data: tuple[int, ...],
    digit_primes: int,
    extra: int,
    plain: tuple[int, int, int],
    circuit: NetworkCircuit,
    counts: tuple[int, ...],
) -> _Candidate | None:
    """Parameters and the circuit with its modulus switches, which SEAL's, without primes for requests, does without."""
    made = _parameters(data, extra, digit_primes, plain)
    return made and _Candidate(made, with_switches(circuit, made) if extra else circuit, counts)


def _parameters(
    data: tuple[int, ...], extra: int, digit_primes: int, plain: tuple[int, int, int]
) -> LeveledParameters | None:
    """Parameters whose last ``extra`` data primes are for requests, if they are secure."""
    n, plain_bits, count = plain
    own, special = data[: len(data) - extra], (data[-1],) * digit_primes
    if digit_primes > len(own) or max(sum(own) + sum(special), sum(data)) > MAX_LOG_Q[n]:
        return None
    try:
        moduli = _plain_moduli(n, data + special, plain_bits, count)
    except RuleError:
        return None
    each = tuple(Parameters(n, (*own, special[0]), t) for t in moduli)
    return LeveledParameters(each, special[1:], digit_primes, data[len(own) :])


@lru_cache(maxsize=256)
def _plain_moduli(n: int, coefficient_bits: tuple[int, ...], bits: int, count: int) -> tuple[int, ...]:
    found: list[int] = []
    for _ in range(count):
        skip = coefficient_primes(n, coefficient_bits) | frozenset(found)
        found.append(modular.largest_prime(bits, 2 * n, skip))
    return tuple(found)
