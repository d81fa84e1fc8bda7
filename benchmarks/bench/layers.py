"""Run linear layers through the protocol, with random weights and inputs, timed and checked.

Contestants take turns, run by run, so that a slow moment of the machine meets all of them.
"""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.noise import check_noise
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, choose
from privcirnet.he.layers.integer import convolve, dense_weight
from privcirnet.he.layers.layer import Layer
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.ring import modular, sampling
from privcirnet.he.rlwe.parameters import TABLE
from privcirnet.he.system import threads
from privcirnet.he.system.threads import one_thread

_LARGEST = 127
"""Weights and inputs are 8-bit."""


class Timing(NamedTuple):
    """Seconds of one run."""

    client_encrypt: float
    server: float
    client_decrypt: float


@dataclass(frozen=True)
class LayerBenchmark:
    """What was measured of one layer; counts and bytes are of one run.

    Attributes:
        timings: of each run.
        max_abs_error: of the decrypted result against direct integer convolution, over all runs.
    """

    rotations: int
    pmults: int
    bytes_up: int
    bytes_down: int
    timings: tuple[Timing, ...]
    max_abs_error: int

    @property
    def median(self) -> Timing:
        """Median seconds of each part."""
        return Timing(*(statistics.median(part) for part in zip(*self.timings, strict=True)))

    @property
    def seconds(self) -> float:
        """Median seconds of whole runs."""
        return statistics.median(sum(timing) for timing in self.timings)


class Entry(NamedTuple):
    """Who runs what.

    Attributes:
        threads: to work on; 0: as many as are in use.
    """

    layer: Layer
    engine: str
    threads: int = 0


def speedup(found: LayerBenchmark, other: LayerBenchmark, part: str = "server") -> float:
    """Return how many times as long the other took: median over the runs, pair by pair.

    Args:
        other: of another that was run in turns with it.
    """
    pairs = zip(found.timings, other.timings, strict=True)
    return statistics.median(getattr(b, part) / getattr(a, part) for a, b in pairs)


def bench_layer(
    layer: Layer,
    engine: str,
    plain_bits: int,
    coefficient_bits: tuple[int, ...] = DEFAULT_COEFFICIENT_BITS,
    repetitions: int = 3,
    progress: Callable[[], object] | None = None,
) -> LayerBenchmark:
    """Return what was measured of one layer, see :func:`bench_layers`."""
    return bench_layers({"": Entry(layer, engine)}, plain_bits, coefficient_bits, repetitions, progress)[""]


def bench_layers(
    entries: Mapping[str, Entry],
    plain_bits: int,
    coefficient_bits: tuple[int, ...] = DEFAULT_COEFFICIENT_BITS,
    repetitions: int = 3,
    progress: Callable[[], object] | None = None,
    table: str = TABLE,
) -> dict[str, LayerBenchmark]:
    """Return what was measured of layers, by name: run in turns on shared random inputs, weights encoded beforehand.

    Times are processor seconds, of which other work on the machine takes little, if all entries run on one thread.

    Args:
        coefficient_bits: bits of the primes of q.
        repetitions: timed runs of each, after one that is not timed if there are more than one.

    Raises:
        RuleError: unknown engine, parameters that do not exist, or too little noise budget.
    """
    contestants = {name: _Contestant(entry, plain_bits, coefficient_bits, table) for name, entry in entries.items()}
    warm_up = int(repetitions > 1)
    clock = time.process_time if all(entry.threads == 1 for entry in entries.values()) else time.perf_counter
    for _ in range(repetitions + warm_up):
        for name, contestant in contestants.items():
            with threads.using(entries[name].threads):
                contestant.run(clock)
            if progress:
                progress()
    return {name: contestant.result(warm_up) for name, contestant in contestants.items()}


class _Contestant:
    """Both parties of one layer, ready to run."""

    def __init__(self, entry: Entry, plain_bits: int, coefficient_bits: tuple[int, ...], table: str) -> None:
        layer, engine = entry.layer, entry.engine
        parameters = choose(layer.transform_lengths, plain_bits, layer.ring_degree, coefficient_bits, table)
        check_noise(parameters, layer.noise_bits(parameters), "bench")
        self._layer, self._t = layer, parameters.plain_modulus
        self._client, self._server = engine_of(engine).parties(parameters)
        self._random = np.random.default_rng(0)
        self._rows = self._random.integers(-_LARGEST, _LARGEST + 1, layer.shape.weight_shape(layer.block_size))
        encoded = layer.encode_spectrum(layer.spectrum(self._rows, self._t), self._server)
        self._exchange, self._held = LinearExchange(layer), PreparedNode(encoded)
        self._keys = self._server.load_keys(self._client.public_keys(layer.column_steps), layer.column_steps)
        self._timings: list[Timing] = []
        self._error = self._up = self._down = 0

    def run(self, clock: Callable[[], float]) -> None:
        """One exchange, checked."""
        layer, t = self._layer, self._t
        x = self._random.integers(-_LARGEST, _LARGEST + 1, layer.shape.input_shape)
        theirs = sampling.uniform(x.shape, t)
        ours = modular.subtract(modular.residues(x, t), theirs, t)
        start = clock()
        messages = self._exchange.request([ours], self._client)
        sent = clock()
        replies, server_share = self._exchange.reply(self._held, [theirs], messages, self._server, self._keys)
        answered = clock()
        client_share = self._exchange.finish([ours], replies, self._client)
        self._timings.append(Timing(sent - start, answered - sent, clock() - answered))
        result = modular.centered(modular.add(client_share, server_share, t), t)
        with one_thread():
            expected = convolve(x, dense_weight(self._rows, layer.shape, layer.block_size), layer.shape)
        self._error = max(self._error, int(np.abs(result - expected).max()))
        self._up, self._down = sum(map(len, messages)), sum(map(len, replies))

    def result(self, skipped: int) -> LayerBenchmark:
        """What was measured, the first ``skipped`` runs' times left out."""
        runs = len(self._timings)
        rotations, pmults = (self._server.counts[name] // runs for name in ("rotate", "pmult"))
        timings = tuple(self._timings[skipped:])
        return LayerBenchmark(rotations, pmults, self._up, self._down, timings, self._error)
