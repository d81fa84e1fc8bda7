"""What is measured: latencies of layers under encryption, on this machine, exact results checked."""

import statistics
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from benchmarks.bench.layers import Entry, LayerBenchmark, bench_layers
from benchmarks.bench.networks import allowed_block_size, network_shapes
from benchmarks.bench.runs import SHAPES
from papers.coefficients.layer import CoefficientLayer
from papers.layouts.named import published_layer, published_named
from papers.reproduce import ckks, ensei
from papers.reproduce.cells import Values
from papers.reproduce.layers import PRIMES, LayerCase
from papers.reproduce.leveled import leveled_latency, leveled_steps
from privcirnet.errors import RuleError
from privcirnet.he.bfv.engines import engine_of
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.planner import counted_goal, plan_named
from privcirnet.he.system import threads as in_use

_ENGINE, _N, _PLAIN_BITS, _MB = "kernel", 8192, 41, 1e6
_RUNS = 5
"""Timed runs of a layer, of which the median counts."""
_NETWORK_RUNS = 3
_BASELINE, _CHEETAH = "Bolt, NeuJeans as published", "Cheetah"


def layer_latency(threads: int = 1, **case: Any) -> Values:
    """Return the latency of one layer, client and server in one process without a link, and its bytes.

    Args:
        case: of :class:`LayerCase`.

    Raises:
        RuleError: a result is wrong.
    """
    result = _benchmark(_frozen(case), threads)
    median, sent = result.median, result.bytes_up + result.bytes_down
    client = median.client_encrypt + median.client_decrypt
    parts = {"latency": result.seconds, "server": median.server, "client": client}
    return {**parts, "traffic": sent / _MB}


def link_latency(bandwidth: float, round_trip: float = 0.3e-3, threads: int = 1, **case: Any) -> Values:
    """Return the latency of one layer over a link: computing, measured, and the time that the link takes for its bytes.

    Args:
        bandwidth: MB a second.
        round_trip: seconds.
        case: of :class:`LayerCase`.

    Raises:
        RuleError: a result is wrong.
    """
    found = layer_latency(threads, **case)
    return {"latency": found["latency"] + found["traffic"] / bandwidth + round_trip, "computing": found["latency"]}


def depthwise_speedups(
    layers: Sequence[Sequence[int]], bandwidth: float, ours: dict[str, Any], against: dict[str, Any]
) -> Values:
    """Return how many times as fast one encoding of depthwise layers is as another, the least and the most.

    Args:
        layers: H, C, R of each.
        bandwidth: of the link, MB a second.
        ours: arguments of the one's :class:`LayerCase`, beside the shape.

    Raises:
        RuleError: a result is wrong.
    """
    ratios: list[float] = []
    for h, c, r in layers:
        shape: dict[str, Any] = {"conv": (h, h, c, c, r), "groups": c}
        one, other = (link_latency(bandwidth, **shape, **case)["latency"] for case in (ours, against))
        ratios.append(other / one)
    return {"latency, least": min(ratios), "latency, most": max(ratios)}


def layer_setup(threads: int = 1, **case: Any) -> Values:
    """Return the seconds before a layer's first input: keys, their loading at the server, and encoded weights.

    Args:
        case: of :class:`LayerCase`.
    """
    found = LayerCase(**case)
    clock = time.process_time if threads == 1 else time.perf_counter
    layer, parameters, seconds = found.layer, found.parameters, list[float]()
    rows = np.random.default_rng(0).integers(-127, 128, layer.shape.weight_shape(layer.block_size))
    for _ in range(_RUNS + 1):
        with in_use.using(threads):
            start = clock()
            client, server = engine_of(_ENGINE).parties(parameters)
            server.load_keys(client.public_keys(layer.column_steps), layer.column_steps)
            layer.encode_spectrum(layer.spectrum(rows, parameters.plain_modulus), server)
            seconds.append(clock() - start)
            client.close()
    return {"setup": statistics.median(seconds[1:])}  # the first loads compiled kernels


def block_size_speedups(b: int, cheetah: str = "ours") -> Values:
    """Return how many times as fast block size b is as the published plans of b = 1, and as Cheetah's encoding.

    Over the layers of :data:`benchmarks.bench.runs.SHAPES`, client and server together, in turns.

    Args:
        cheetah: whose layout of Cheetah's encoding, "ours" or "published".

    Raises:
        RuleError: a result is wrong.
    """
    seconds = [_side_by_side(title) for title in SHAPES]
    ours = [found[f"b = {b}"] for found in seconds]
    against = {"Bolt, NeuJeans": _BASELINE, "Cheetah": f"{_CHEETAH}, {cheetah}", "our b = 1": "b = 1"}
    values: Values = {}
    for name, other in against.items():
        ratios = [found[other] / own for found, own in zip(seconds, ours, strict=True)]
        values |= {f"{name}, least": min(ratios), f"{name}, mean": statistics.mean(ratios)}
        values |= {f"{name}, most": max(ratios)}
    return values


def group_latency(sizes: Sequence[int]) -> Values:
    """Return the latency of MobileNetV2's 32 circulant layers, in four groups of eight with a block size each.

    Args:
        sizes: b of each group; 1 and 16 are measured.

    Raises:
        RuleError: a result is wrong.
    """
    each = {b: _network_seconds("mobilenetv2_cifar", b) for b in sorted(set(sizes))}
    quarter = len(each[sizes[0]]) // len(sizes)
    return {"latency": sum(sum(each[b][i * quarter : (i + 1) * quarter]) for i, b in enumerate(sizes))}


def untrained_network(**network: Any) -> Values:
    """Return the traffic and latency of a network with random weights.

    Args:
        network: arguments of :func:`reproduce.untrained.untrained`.
    """
    from papers.reproduce.untrained import untrained

    return untrained(**network)


def _frozen(case: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """Arguments that can be a key."""
    return tuple(sorted((name, tuple(v) if isinstance(v, list) else v) for name, v in case.items()))


def _exact(found: dict[str, LayerBenchmark]) -> dict[str, LayerBenchmark]:
    """Results, none of which is wrong."""
    if wrong := [str(result) for result in found.values() if result.max_abs_error]:
        raise RuleError("an encrypted result must be exact", got=wrong[0], remedy="report it, with this line")
    return found


@cache
def _benchmark(case: tuple[tuple[str, Any], ...], threads: int) -> LayerBenchmark:
    found = LayerCase(**dict(case))
    entry = Entry(found.layer, _ENGINE, threads)
    return _exact(bench_layers({"": entry}, found.plain_bits, found.primes, _RUNS))[""]


@cache
def _side_by_side(title: str) -> dict[str, float]:
    """Seconds of one of SHAPES by contestant, on one thread."""
    shape, goal = SHAPES[title], counted_goal(_N)
    layers: dict[str, Layer] = {f"b = {b}": plan_named("cirencode", shape, b, goal).layer for b in (1, 2, 8)}
    layers |= {
        _BASELINE: published_layer(shape, 1, _N),
        f"{_CHEETAH}, ours": CoefficientLayer(shape, 1, _N, "cheetah"),
        f"{_CHEETAH}, published": published_named("cheetah", shape, 1, _N),
    }
    entries = {name: Entry(layer, _ENGINE, 1) for name, layer in layers.items()}
    found = _exact(bench_layers(entries, _PLAIN_BITS, PRIMES[_N], _NETWORK_RUNS))
    return {name: result.seconds for name, result in found.items()}


@cache
def _network_seconds(network: str, b: int) -> list[float]:
    """Seconds of each of a network's layers, on one thread; layers that are alike are measured once."""
    shapes, goal = network_shapes(network), counted_goal(_N)
    layers = {
        shape: plan_named("cirencode", shape, allowed_block_size(shape, b), goal).layer
        for shape in dict.fromkeys(shapes.values())
    }
    entries = {str(shape): Entry(layer, _ENGINE, 1) for shape, layer in layers.items()}
    found = _exact(bench_layers(entries, _PLAIN_BITS, PRIMES[_N], _NETWORK_RUNS))
    return [found[str(shape)].seconds for shape in shapes.values()]


SCRIPTS = {"insecure_ensei": "python benchmarks/ensei.py --store papers/reproduce/measured.json"}
"""Name in a data file -> the script that measures it: no function of the package does."""

SECONDS: dict[str, Callable[..., Values]] = {
    "wrong_outputs": ensei.wrong_outputs,
    "request_speedup": ensei.request_speedup,
    "untrained": untrained_network,
    "layer_latency": layer_latency,
    "link_latency": link_latency,
    "layer_setup": layer_setup,
    "depthwise_speedups": depthwise_speedups,
    "ckks_client": ckks.client_costs,
    "block_size_speedups": block_size_speedups,
    "group_latency": group_latency,
    "leveled_latency": leveled_latency,
    "leveled_steps": leveled_steps,
}
"""Name in a data file -> what measures it."""
