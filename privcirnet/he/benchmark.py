"""Run one linear layer through the protocol, with random weights and inputs, timed and checked."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from privcirnet.he import modular, params
from privcirnet.he.encodings import spectral
from privcirnet.he.engine import client_engine, server_engine
from privcirnet.he.linear import LinearLayer, encode_weights
from privcirnet.he.program import convolve, expand_rows
from privcirnet.he.protocol import linear, shares

_LARGEST = 127
"""Weights and inputs are 8-bit."""


class Timing(NamedTuple):
    """Seconds of one run."""

    client_encrypt: float
    server: float
    client_decrypt: float


@dataclass(frozen=True)
class LayerBenchmark:
    """What :func:`bench_layer` measured; counts and bytes are of one run.

    Attributes:
        rotations: HE-Rot that the engine performed.
        pmults: HE-Pmult that the engine performed.
        bytes_up: client to server.
        bytes_down: server to client.
        timings: of each run.
        max_abs_error: of the decrypted result against direct integer convolution, over all runs.
    """

    rotations: int
    pmults: int
    bytes_up: int
    bytes_down: int
    timings: list[Timing]
    max_abs_error: int


def bench_layer(
    layer: LinearLayer,
    engine: str,
    plain_bits: int,
    coefficient_bits: tuple[int, ...] = params.DEFAULT_COEFFICIENT_BITS,
    repetitions: int = 3,
    progress: Callable[[], object] | None = None,
) -> LayerBenchmark:
    """Run a layer ``repetitions`` times on shared random inputs; weights are encoded beforehand, once.

    Raises:
        RuleError: unknown engine, parameters that do not exist, or too little noise budget.
    """
    parameters = params.choose(layer.layout.transform_lengths, plain_bits, layer.ring_degree, coefficient_bits)
    noise = params.noise_bits(layer.ring_degree, plain_bits, layer.plan.products_per_sum)
    params.check_noise(parameters, noise, "bench")
    client, server, t = client_engine(engine, parameters), server_engine(engine, parameters), parameters.plain_modulus
    random, shape = np.random.default_rng(0), layer.shape
    rows_shape = (shape.out_channels // layer.block_size, shape.in_channels, shape.kernel, shape.kernel)
    rows = random.integers(-_LARGEST, _LARGEST + 1, rows_shape)
    encoded = encode_weights(layer, spectral.weight_spectrum(layer.layout, rows, t), server, "bench")
    held = linear.ServerLayer(layer, encoded, np.zeros(shape.out_channels, dtype=np.int64))
    keys = server.load_keys(client.public_keys(layer.column_steps), layer.column_steps)
    timings: list[Timing] = []
    error, up, down = 0, 0, 0
    for _ in range(repetitions):
        x = random.integers(-_LARGEST, _LARGEST + 1, shape.input_shape)
        theirs = shares.uniform(x.shape, t)
        ours = modular.subtract(modular.residues(x, t), theirs, t)
        start = time.perf_counter()
        messages = linear.request(layer, ours, client)
        sent = time.perf_counter()
        replies, server_share = linear.reply(held, theirs, messages, server, keys)
        answered = time.perf_counter()
        client_share = linear.finish(layer, replies, client)
        timings.append(Timing(sent - start, answered - sent, time.perf_counter() - answered))
        result = modular.centered(modular.add(client_share, server_share, t), t)
        expected = convolve(x, expand_rows(rows, layer.block_size), shape.stride, shape.padding)
        error = max(error, int(np.abs(result - expected).max()))
        up, down = sum(map(len, messages)), sum(map(len, replies))
        if progress:
            progress()
    rotations, pmults = (server.counts[name] // repetitions for name in ("rotate", "pmult"))
    return LayerBenchmark(rotations, pmults, up, down, timings, error)
