"""The noise of a circuit, estimated step by step from public data: standard deviations of a coefficient.

With c0 + c1 s = D m + v + q k (D = q / t, ternary s, k the quotient by q):

* fresh: v is an error, of deviation 3.24; where one request serves all plain moduli it is T / t times as large;
* a product with a plaintext: dense coefficients in (-t/2, t/2), so v grows by sqrt(n) t / sqrt(12);
* a sum: variances add up. Summands of rotated copies count as independent;
* a key switch: digits as large as their primes' product times errors, divided by P, and a rounding times s;
* a square: t (v k + k v), with the deviation sqrt(2 n / 9) of k (n / 18 if residues are centred), so v grows by
  2 t sqrt(n) sqrt(2 n / 9). Source: the usual average-case analysis of BFV (Iliashenko and Zucca, eprint 2021/204);
* a switch to a shorter modulus: v is divided by what q is divided by, and a rounding times s is added.

The bound of a result is ten deviations, as in :mod:`bfv.noise`.
tests/he/bfv/leveled/test_noise.py holds it against the noise that is measured with the secret key, by
SEAL and in the kernels' ciphertexts.
"""

import math
from collections.abc import Sequence

from papers.falcon2020.circuits.network_circuit import (
    AddPlain,
    AddStep,
    CircuitStep,
    Combine,
    ModSwitch,
    NetworkCircuit,
    Rotate,
    SquareStep,
    sources_of,
)
from papers.falcon2020.circuits.plain_moduli import LeveledParameters

_ERROR, _DEVIATIONS = math.sqrt(10.5), 10


class Noise:
    """log2 of the variances of noise, by step.

    Args:
        parameters: n, q and all t, of which the largest counts.
    """

    def __init__(self, parameters: LeveledParameters) -> None:
        self._n, self._bits = parameters.ring_degree, parameters.data_bits
        self._log_t = max(each.plain_bits for each in parameters.moduli)
        self.fresh = 2 * (math.log2(_ERROR) + parameters.log_lift)
        self.rounding = math.log2(self._n / 18)
        special = (parameters.coefficient_bits[-1], *parameters.special_bits)
        self._switch = [
            self._key_switch(parameters.digit_primes, primes, special) for primes in range(1, len(self._bits) + 1)
        ]

    def after(self, step: CircuitStep, found: Sequence[float], primes: int) -> float:
        """Return the noise of a step's result.

        Args:
            found: the noise of each of its sources.
            primes: data primes of the result, and of the sources but for those of a switch to fewer.
        """
        n, switch = self._n, self._switch[primes - 1]
        match step:
            case Rotate():
                return added(found[0], switch)
            case Combine():
                return added(*found) + math.log2(n / 12) + 2 * self._log_t
            case AddStep():
                return added(*found)
            case AddPlain():
                return added(found[0], 0.0)
            case SquareStep():
                grown = found[0] + 2 + 2 * self._log_t + math.log2(n * (2 * n / 9))
                return added(grown, switch, 2 * math.log2(n))
            case ModSwitch():
                return found[0]

    def reduced(self, noise: float, before: int, primes: int) -> float:
        """Return the noise after a switch to fewer data primes.

        Args:
            before: data primes.
            primes: data primes that are left.
        """
        return added(noise - 2 * sum(self._bits[primes:before]), self.rounding)

    def _key_switch(self, digit_primes: int, primes: int, special: tuple[int, ...]) -> float:
        """What a key switch adds."""
        starts = range(0, primes, digit_primes)
        digits = [sum(self._bits[first : min(first + digit_primes, primes)]) for first in starts]
        largest = math.log2(len(digits) * self._n / 3 * _ERROR**2) + 2 * (max(digits) - sum(special))
        return added(largest, self.rounding)


def noise_bits(circuit: NetworkCircuit, parameters: LeveledParameters) -> int:
    """Return log2 of a bound on the noise of every output: bits, rounded up."""
    primes, noise = circuit.primes_of(len(parameters.data_bits)), Noise(parameters)
    found = [noise.fresh] * circuit.inputs
    for number, step in enumerate(circuit.steps, circuit.inputs):
        sources = sources_of(step)
        made = noise.after(step, [found[source] for source in sources], primes[number])
        found.append(noise.reduced(made, primes[sources[0]], step.primes) if isinstance(step, ModSwitch) else made)
    return math.ceil(math.log2(_DEVIATIONS) + max(found[output] for output in circuit.outputs) / 2)


def added(*logs: float) -> float:
    """Return log2 of a sum.

    Args:
        logs: log2 of each summand.
    """
    largest = max(logs)
    return largest + math.log2(sum(2.0 ** max(each - largest, -1000.0) for each in logs))
