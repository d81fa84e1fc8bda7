"""Seconds of a network on bootstrapped CKKS, predicted from counts of its circuit.

Processor seconds of one core, measured at n = 65536 (``python bench.py suite=bootstrapping`` and
``benchmarks/ckks_networks.py``): a row of n words is transformed for each diagonal and multiplied with both halves of a
ciphertext, baby steps are rotations without a division, giant steps are whole key switches. Squares, sums and the means
before the classifier are left out: a network took 70 seconds where 61 are predicted.
"""

from collections import defaultdict

from privcirnet.he.ckks.circuit import CkksCircuit
from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.simulator import LinearMapUse, Simulator

_DEGREE = 65536
_ROW, _PRODUCT = 0.32e-3, 0.11e-3
"""Seconds of a transform, and of a row of both halves of a ciphertext times a plaintext."""
_BABY = 0.35e-3
"""Seconds of a row of a baby step."""
_REAL, _BOTH = 5.3, 6.9
"""Seconds of a bootstrapping of real values, and of complex ones."""
_EXTRA_BYTES = 2.5e9
"""Memory of a process beside keys and weights: libraries, maps of the bootstrapping, sums of a linear map."""
STEPS = ("StoC", "CtoS", "EvalMod")
"""Parts of a bootstrapping: last words of their layers' names."""


def part_of(layer: str) -> str:
    """Return the part of a bootstrapping that a layer is; "" for one of the network."""
    last = layer.rsplit(maxsplit=1)[-1] if layer else ""
    return last if last in STEPS else ""


def row_of(layer: str) -> str:
    """Return the name that a layer is counted by: the parts of a bootstrapping are one."""
    part = part_of(layer)
    return f"{layer.removesuffix(part)}bootstrapping" if part else layer


def map_seconds(use: LinearMapUse, parameters: CkksParameters) -> float:
    """Return the processor seconds of a linear map."""
    rows = _rows(use.level, parameters)
    giants = use.giants * (4 * (use.level + 1) + 3 * (rows - use.level))
    key_switches = use.babies * rows * _BABY + giants * _ROW
    return diagonal_seconds(use.products, use.level, parameters) + key_switches * parameters.ring_degree / _DEGREE


def diagonal_seconds(count: int, level: int, parameters: CkksParameters) -> float:
    """Return the processor seconds of plaintexts that are transformed and multiplied with a ciphertext."""
    return count * _rows(level, parameters) * (_ROW + _PRODUCT) * parameters.ring_degree / _DEGREE


def part_seconds(parts: int) -> float:
    """Return the processor seconds of bootstrapping real values at n = 65536, two ciphertexts as one of complex slots.

    Args:
        parts: ciphertexts, one or an even number.
    """
    return _REAL if parts == 1 else _BOTH * parts / 2


def _rows(level: int, parameters: CkksParameters) -> int:
    return len(parameters.at(level).special_primes) + 1 + level


def bootstrapping_seconds(circuit: CkksCircuit) -> dict[str, float]:
    """Return the processor seconds of the bootstrappings behind each sum that is bootstrapped, by its name."""
    share = circuit.bootstrapping.parameters.ring_degree / _DEGREE
    parts = {place: circuit.layouts[place].parts for place in circuit.placement.bootstrapped}
    nodes = circuit.network.nodes
    return {nodes[i].name: share * part_seconds(count) for i, count in parts.items()}


def predicted(circuit: CkksCircuit, counting: Simulator) -> dict[str, float]:
    """Return the processor seconds by layer (:func:`row_of`)."""
    seconds_of = defaultdict[str, float](float)
    for use in counting.maps:
        if not part_of(use.layer):
            seconds_of[use.layer] += map_seconds(use, circuit.bootstrapping.parameters)
    for name, seconds in bootstrapping_seconds(circuit).items():
        seconds_of[f"{name} bootstrapping"] += seconds
    return dict(seconds_of)


def encoded_bytes(counting: Simulator) -> int:
    """Return the memory of a network's encoded weights, if all are kept."""
    products = sum(use.products for use in counting.maps if not part_of(use.layer))
    return 16 * counting.parameters.ring_degree * products


def memory_bytes(circuit: CkksCircuit, counting: Simulator) -> int:
    """Return about how much memory client and server take in one process."""
    parameters = circuit.bootstrapping.parameters
    extra = _EXTRA_BYTES * parameters.ring_degree / _DEGREE
    return round(Context(parameters).key_bytes(counting.keys) + circuit.weight_bytes + extra)
