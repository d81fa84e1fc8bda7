"""Bootstrapping in CKKS at n = 65536: seconds, precision, bytes."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from privcirnet.he.ckks.bootstrapping import Bootstrapping, parameters_for
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.embedding import Slots
from privcirnet.he.ckks.evaluator import CkksEvaluator, Cleartext, EncryptedEvaluator
from privcirnet.he.ckks.server import CkksServer
from privcirnet.he.ckks.simulator import Simulator
from privcirnet.he.rlwe.key_switching import Ciphertext
from privcirnet.he.system.process import peak_bytes

Circuit = Callable[[CkksEvaluator[Any], Any], Any]


def run_bootstrapping(repetitions: int, progress: Callable[[], object]) -> dict[str, Any]:
    """Refresh random vectors of complex slots.

    Returns:
        "seconds" and "processor_seconds" of all threads (medians), "precision_bits" (-log2 of the worst error of a real
        or imaginary part in all vectors), "precision_bits_mean" (-log2 of the mean error), "failure_bits",
        "bytes_keys", "peak_bytes" (of client and server in one process), "levels", "log_q".
    """
    refresh = Bootstrapping(parameters_for())
    party = Party(refresh, progress)
    low = refresh.to_coefficients
    keys = party.prepare(refresh, low)
    found = party.timed(refresh, low, repetitions)
    parameters = refresh.parameters
    return {
        **found,
        "failure_bits": refresh.failure_bits,
        "bytes_keys": keys,
        "peak_bytes": peak_bytes(),
        "levels": parameters.levels - refresh.levels - low,
        "log_q": parameters.log_q,
    }


def bootstrapping_runs(repetitions: int) -> int:
    """Return how often :func:`run_bootstrapping` calls its progress."""
    return 2 + repetitions


def _needed(refresh: Bootstrapping, circuit: Circuit, level: int) -> dict[int, int]:
    """Keys that a circuit takes, by name, with levels."""
    simulator = Simulator(refresh.parameters)
    circuit(simulator, simulator.fresh(level=level))
    return simulator.keys


class Party:
    """Client and server in one process; keys are made one by one, so that no more than one travels at a time.

    Args:
        progress: called after keys are made, and after each run.
    """

    def __init__(self, refresh: Bootstrapping, progress: Callable[[], object]) -> None:
        self._refresh, self._progress = refresh, progress
        self._client, self._server = CkksClient(refresh.parameters), CkksServer(refresh.parameters)
        self._keys: dict[int, Any] = {}
        self._levels: dict[int, int] = {}

    def prepare(self, circuit: Circuit, level: int) -> int:
        """Make the keys that a circuit takes and that there are not yet.

        Returns:
            Bytes of all keys.
        """
        for name, at in _needed(self._refresh, circuit, level).items():
            if self._levels.get(name, -1) < at:
                one = {name: at}
                self._keys.update(self._server.load_keys(self._client.evaluation_keys(one), one))
                self._levels[name] = at
        self._progress()
        return sum(key.nbytes for key in self._keys.values())

    def timed(self, circuit: Circuit, level: int, repetitions: int) -> dict[str, float]:
        """Run a circuit on random slots, once more than it is timed, and compare with the twin in clear.

        Returns:
            "seconds" and "processor_seconds", medians; "precision_bits" and "precision_bits_mean".
        """
        seconds: list[tuple[float, float]] = []
        errors: list[float] = []
        machine = EncryptedEvaluator(self._server, self._keys)
        for number in range(repetitions + 1):
            slots = _random(number, self._refresh.parameters.slots)
            fresh = self._server.receive(self._client.encrypt(slots, level), level)
            start = time.perf_counter(), time.process_time()
            found: Ciphertext = circuit(machine, fresh)
            seconds.append((time.perf_counter() - start[0], time.process_time() - start[1]))
            error = self._client.decrypt(self._server.reply(found)) - circuit(Cleartext(), slots)
            errors += [*np.abs(error.real), *np.abs(error.imag)]
            self._progress()
        bits = {"precision_bits": -np.log2(np.max(errors)), "precision_bits_mean": -np.log2(np.mean(errors))}
        medians = map(statistics.median, zip(*seconds[1:], strict=True))
        return dict(zip(("seconds", "processor_seconds"), medians, strict=True)) | {
            name: float(value) for name, value in bits.items()
        }


def _random(seed: int, count: int) -> Slots:
    """Slots whose real and imaginary parts are uniform in [-1, 1]."""
    random = np.random.default_rng(seed)
    return random.uniform(-1, 1, count) + 1j * random.uniform(-1, 1, count)


def bootstrapping_facts(found: dict[str, Any]) -> dict[str, str]:
    """Return a run in words."""
    return {
        "bootstrapping": f"{found['seconds']:.2f} s, {found['processor_seconds']:.2f} s of processors",
        "levels": f"{found['levels']} new ones, and those of StoC",
        "precision": f"{found['precision_bits']:.1f} bits in the worst slot, {found['precision_bits_mean']:.1f} mean",
        "failure": f"2^-{found['failure_bits']} a bootstrapping at most",
        "memory": f"{found['bytes_keys'] / 1e9:.2f} GB of keys, {found['peak_bytes'] / 1e9:.2f} GB at most in all",
    }
