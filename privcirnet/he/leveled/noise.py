"""The noise of a circuit, estimated step by step from public data: standard deviations of a coefficient.

With c0 + c1 s = D m + v + q k (D = q / t, ternary s, k the quotient by q):

* fresh: v is an error, of deviation 3.24;
* a product with a plaintext: dense coefficients in (-t/2, t/2), so v grows by sqrt(n) t / sqrt(12);
* a sum: variances add up. Summands of rotated copies count as independent;
* a key switch: d digits as large as a prime times errors, divided by the special prime, and a rounding times s;
* a square: t (v k + k v), with the deviation sqrt(2 n / 9) of k (n / 18 if residues were centred), so v grows by
  2 t sqrt(n) sqrt(2 n / 9). Source: the usual average-case analysis of BFV (Iliashenko and Zucca, eprint 2021/204).

The bound of a result is ten deviations, as in :mod:`params.noise`. tests/he/leveled/test_noise.py holds it against the
noise that SEAL measures with the secret key.
"""

import math

from privcirnet.he.leveled.circuit import Add, AddPlain, Circuit, Combine, Rotate, Square
from privcirnet.he.params.parameters import Parameters

_ERROR, _DEVIATIONS = math.sqrt(10.5), 10


def noise_bits(circuit: Circuit, parameters: Parameters) -> int:
    """Return log2 of a bound on the noise of every output.

    Args:
        circuit: of the network.
        parameters: of one plain modulus.

    Returns:
        bits, rounded up.
    """
    variances = variances_of(circuit, parameters)
    return math.ceil(math.log2(_DEVIATIONS) + max(variances[output] for output in circuit.outputs) / 2)


def variances_of(circuit: Circuit, parameters: Parameters) -> list[float]:
    """Return log2 of the variance of the noise of every value.

    Args:
        circuit: of the network.
        parameters: of one plain modulus.
    """
    n, log_t = circuit.ring_degree, parameters.plain_bits
    switch, rounding = _key_switch(parameters), math.log2(n)
    found = [2 * math.log2(_ERROR)] * circuit.inputs
    for step in circuit.steps:
        match step:
            case Rotate(source):
                found.append(_sum(found[source], switch))
            case Combine(terms):
                found.append(_sum(*(found[value] for value, _ in terms)) + math.log2(n / 12) + 2 * log_t)
            case Add(first, second):
                found.append(_sum(found[first], found[second]))
            case AddPlain(source):
                found.append(_sum(found[source], 0.0))
            case Square(source):
                grown = found[source] + 2 + 2 * log_t + math.log2(n * (2 * n / 9))
                found.append(_sum(grown, switch, 2 * rounding))
    return found


def _key_switch(parameters: Parameters) -> float:
    """log2 of the variance that a key switch adds."""
    n, (*data, special) = parameters.ring_degree, parameters.coefficient_bits
    digits = len(data) * n / 3 * _ERROR**2
    return _sum(math.log2(digits) + 2 * (max(data) - special), math.log2(n / 18))


def _sum(*logs: float) -> float:
    largest = max(logs)
    return largest + math.log2(sum(2.0 ** (each - largest) for each in logs))
