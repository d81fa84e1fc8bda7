"""How much memory a server of a whole network takes: every layer's weights in one engine, one image through all."""

from collections.abc import Callable, Mapping

import numpy as np

from benchmarks.bench.runs import BenchRun
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.bfv.parameters import choose
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.layers.layer import Layer
from privcirnet.he.protocol.rounds.exchange import PreparedNode
from privcirnet.he.protocol.rounds.linear import LinearExchange
from privcirnet.he.ring import sampling
from privcirnet.he.system.process import peak_bytes

_LARGEST = 127
"""Weights are 8-bit."""


def network_memory(
    layers: Mapping[str, Layer], engine: str, bench_run: BenchRun, cache: WeightCache, progress: Callable[[], object]
) -> dict[str, float]:
    """Serve all layers from one process, client included, and ask the system for the most memory that it ever had.

    Args:
        progress: called twice for each layer: encoded, run.

    Returns:
        "peak" and "weights_kept" in bytes, "weights" encoded in all, in bytes.
    """
    lengths = set[int]().union(*(layer.transform_lengths for layer in layers.values()))
    degree = next(iter(layers.values())).ring_degree
    parameters = choose(lengths, bench_run.plain_bits, degree, bench_run.coefficient_bits, bench_run.table)
    steps = set[int]().union(*(layer.column_steps for layer in layers.values()))
    client, server = engine_of(engine).client(parameters), engine_of(engine).server(parameters, cache)
    keys = server.load_keys(client.public_keys(steps), steps)
    t, random = parameters.plain_modulus, np.random.default_rng(0)
    rounds: list[tuple[LinearExchange, PreparedNode]] = []
    for layer in layers.values():
        rows = random.integers(-_LARGEST, _LARGEST + 1, layer.shape.weight_shape(layer.block_size))
        encoded = layer.encode_spectrum(layer.spectrum(rows, t), server)
        rounds.append((LinearExchange(layer), PreparedNode(encoded)))
        progress()
    for exchange, held in rounds:
        shares = [sampling.uniform(exchange.layer.shape.input_shape, t)]
        replies, _ = exchange.reply(held, shares, exchange.request(shares, client), server, keys)
        exchange.finish(shares, replies, client)
        progress()
    return {
        "peak": peak_bytes(),
        "weights_kept": cache.taken,
        "weights": sum(x.circuit.weight_bytes(degree, bench_run.coefficient_bits) for x in layers.values()),
    }
