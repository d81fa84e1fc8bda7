"""A network with its bootstrapping, the rehearsal that measures its needs, and its seconds, predicted.

Seconds are a processor's, of one core, from counts of the circuit, measured at n = 65536 (``python bench.py
suite=bootstrapping`` and ``benchmarks/ckks_networks.py``): a row of n words is transformed for each diagonal and
multiplied with both halves of a ciphertext, baby steps are rotations without a division, giant steps are whole key
switches. Squares, sums and the means before the classifier are left out: a network took 70 seconds where 61 are
predicted.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.bootstrapping import Bootstrapping
from privcirnet.he.ckks.circuit import CkksCircuit
from privcirnet.he.ckks.context import Context
from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.ckks.network import IMAGE, CkksNetwork, Scales, sums_of
from privcirnet.he.ckks.parameters import CkksParameters
from privcirnet.he.ckks.simulator import ErrorEstimate, LinearMapUse, Simulator
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import Network


@dataclass(frozen=True, eq=False)
class Rehearsed:
    """A circuit that the simulator has run, so that it can run, with its keys, counts and errors.

    Attributes:
        reply: estimate of the logits that are sent back, divided by ``network.answer``.
    """

    circuit: CkksCircuit
    counting: Simulator
    reply: ErrorEstimate

    @property
    def bootstrappings(self) -> int:
        """Number of bootstrappings for an image."""
        return self.counting.total["raised"]

    @cached_property
    def key_bytes(self) -> int:
        """Memory of the keys that the server keeps."""
        return Context(self.circuit.bootstrapping.parameters).key_bytes(self.counting.keys)

    def check(self, keys_gb: float, memory: int, needed: int) -> None:
        """Raise unless keys fit their budget, and all that client and server need (bytes) the process's memory."""
        Context(self.circuit.bootstrapping.parameters).check_keys_gb(self.counting.keys, keys_gb)
        if needed > memory:
            rule = "keys, encoded weights and what computes on them must fit the memory"
            got = f"{needed / 1e9:.1f} GB for {memory / 1e9:.1f} GB"
            raise RuleError(rule, got=got, remedy="give a smaller weights_gb, or use a machine with more memory")


@dataclass(frozen=True, eq=False)
class CkksProgram:
    """A trained network that a server runs on encrypted images without asking its client.

    Attributes:
        log_step: real pixel = integer x 2^log_step.

    Raises:
        RuleError: the network is not one of sums of convolutions and squares, or a weight is not finite.
    """

    network: Network
    scales: Scales
    bootstrapping: Bootstrapping
    log_step: int

    def __post_init__(self) -> None:
        self.sums.check()

    @cached_property
    def sums(self) -> CkksNetwork:
        """The network's sums, all values in [-1, 1]."""
        return sums_of(self.network).scaled(self.scales)

    @cached_property
    def description(self) -> dict[str, Any]:
        """The public description, as plain data: parameters, layout of image and logits, levels, keys; no weight."""
        network, bootstrapping, rehearsed = self.sums, self.bootstrapping, self.rehearsed(0)
        parameters, placement, last = bootstrapping.parameters, rehearsed.circuit.placement, rehearsed.circuit.ends.last
        names = ("ring_degree", "levels", "scale_bits", "first_bits", "digit_primes", "upper_levels", "upper_bits")
        more = ("ephemeral_weight", "low_levels", "low_digit_primes")
        return {
            "parameters": {name: getattr(parameters, name) for name in (*names, *more)},
            "bootstrapping": {name: getattr(bootstrapping, name) for name in BOOTSTRAPPING},
            "image": [network.channels, network.size, network.size],
            "last": [last.channels, last.size],
            "classes": len(network.bias),
            "log_step": self.log_step,
            "bound": network.bound,
            "answer": network.answer,
            "level": placement.image,
            "bootstrapped": {network.nodes[place].name: level for place, level in placement.bootstrapped.items()},
            "keys": sorted(list(pair) for pair in rehearsed.counting.keys.items()),
        }

    def real(self, images: Values | Sequence[Values]) -> Reals:
        """Return images as the network takes them; ``images``: integers as the data set has them, (N, C, H, W)."""
        expected = self.sums.channels, self.sums.size, self.sums.size
        if not len(images) or np.shape(images)[1:] != expected:
            rule, remedy = f"images must have the program's shape {expected}", "use the data set of the program"
            raise RuleError(rule, got=np.shape(images), remedy=remedy)
        return np.asarray(images, dtype=np.float64) * 2.0**self.log_step

    def rehearsed(self, weights_gb: float) -> Rehearsed:
        """Return the circuit and what it takes: the simulator runs it, so that what cannot run is said at once.

        Raises:
            RuleError: a level is missing, a scale drifts, or a value is too large; with layer and level.
        """
        circuit = CkksCircuit(self.sums, self.bootstrapping, weights_gb)
        counting = Simulator(self.bootstrapping.parameters)
        counting.layer = "image"
        image = counting.fresh(level=circuit.placement.image)
        logits = circuit(counting, [image] * circuit.layouts[IMAGE].parts)
        return Rehearsed(circuit, counting, counting.reply(logits))


BOOTSTRAPPING = ("to_coefficients", "to_slots", "failure_bits", "degree")
"""Numbers of a bootstrapping besides its parameters."""


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
