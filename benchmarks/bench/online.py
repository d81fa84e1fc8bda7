"""What is left to compute when an image comes: linear layers in clear, passes over shares."""

import statistics
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.bench.networks import Shapes, allowed_block_size, network_shapes
from benchmarks.bench.runs import BenchRun
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.measure.calibrate import clear_calls, clear_seconds
from privcirnet.he.mpc.local import packing, parallel, products, squares
from privcirnet.he.mpc.local.linear import ClearLinear
from privcirnet.he.planning.cost import online_seconds
from privcirnet.he.planning.profile import COUNTED, Profile
from privcirnet.he.ring import modular, sampling
from privcirnet.he.system import threads

NETWORKS = {"MobileNetV2 (CIFAR)": "mobilenetv2_cifar", "ResNet-18 (CIFAR)": "resnet18_cifar"}
VALUES = 1 << 18
"""Of a share in the passes."""
HEADS = 4, 64, 65
"""Groups, channels of a group and tokens of the product: attention of a ViT for CIFAR."""

_LARGEST = 127
"""Weights are 8-bit."""
_Work = Callable[[], Any]


def online_shapes(network: str) -> Shapes:
    """Return a network's layers by name, with the 3 x 3 depthwise ones between those that may become circulant.

    Args:
        network: see :data:`benchmarks.bench.networks.NETWORKS`.
    """
    found: Shapes = {}
    shapes = network_shapes(network)
    for name, shape in shapes.items():
        found[name] = shape
        if name.endswith(".expand"):
            block, channels = name.removesuffix(".expand"), shape.out_channels
            stride = shape.height // shapes[f"{block}.project"].height
            size = shape.height, shape.width, channels, channels
            found[f"{block}.depthwise"] = LinearShape(*size, kernel=3, stride=stride, padding=1, groups=channels)
    return found


def run_online(block_sizes: Sequence[int], bench_run: BenchRun, progress: Callable[[], object]) -> list[dict[str, Any]]:
    """Run the layers of :data:`NETWORKS` at all block sizes, then the passes.

    Returns:
        a row for each, with the seconds of "all" threads and of "one", and of networks those that search.py predicts
        of all threads.
    """
    t = modular.largest_prime(bench_run.plain_bits, 2)
    profile = _profile(t, bench_run.repetitions)
    rows: list[dict[str, Any]] = []
    for title, network in NETWORKS.items():
        for b in block_sizes:
            rows.append(_network(title, online_shapes(network), b, t, bench_run.repetitions))
            rows[-1]["seconds_predicted"] = _predicted(online_shapes(network), b, profile)
            progress()
    for name, (values, work) in _passes(t).items():
        rows.append({"name": name, "values": values, "seconds": _timed(work, bench_run.repetitions)})
        progress()
    return rows


def _profile(t: int, repetitions: int) -> Profile:
    """The papers' units with what layers in clear take on this machine, measured now in turns.

    Args:
        repetitions: timed rounds, after one that is not.
    """
    calls = clear_calls(t)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repetitions + 1):
        for name, call in calls.items():
            started = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - started)
    found = clear_seconds({name: statistics.median(each[1:]) for name, each in times.items()})
    seconds = COUNTED.seconds | {name: max(each, 0.0) for name, each in found.items()}
    return replace(COUNTED, name="this machine, in clear", seconds=seconds)


def online_runs(block_sizes: Sequence[int]) -> int:
    """Return the number of rows of :func:`run_online`."""
    return len(NETWORKS) * len(block_sizes) + len(_passes(257))


def _network(title: str, shapes: Mapping[str, LinearShape], b: int, t: int, repetitions: int) -> dict[str, Any]:
    """All layers of a network; those that are alike are run once."""
    alike = Counter((shape, allowed_block_size(shape, b)) for shape in shapes.values())
    seconds, weights = Counter[str](), 0
    for (shape, size), count in alike.items():
        random = np.random.default_rng(0)
        rows = random.integers(-_LARGEST, _LARGEST + 1, shape.weight_shape(size))
        share, bias = sampling.uniform(shape.input_shape, t), sampling.uniform(shape.output_shape, t)
        layer = ClearLinear(shape, size, rows, t)
        found = _timed(lambda layer=layer, x=share, plus=bias: layer.apply(x, plus), repetitions)
        seconds.update({name: count * value for name, value in found.items()})
        weights += count * layer.bytes
    values = sum(int(np.prod(shape.output_shape)) for shape in shapes.values())
    own = {"network": title, "block_size": b, "name": f"{title}, b = {b}", "values": values}
    return own | {"weights_bytes": weights, "seconds": dict(seconds)}


def _predicted(shapes: Mapping[str, LinearShape], b: int, profile: Profile) -> float:
    return sum(online_seconds(shape, allowed_block_size(shape, b), profile) for shape in shapes.values())


def _passes(t: int) -> dict[str, tuple[int, _Work]]:
    """Passes over shares by name: how many values they make, and the work."""
    x, y, z = (sampling.uniform((VALUES,), t) for _ in range(3))
    groups, channels, count = HEADS
    left, right = (sampling.uniform((groups * channels, count, 1), t) for _ in range(2))
    message = packing.pack(x, t)
    return {
        "square, the client's answer": (VALUES, lambda: squares.answer(x, y, z, t)),
        "square, the server's end": (VALUES, lambda: squares.finish(x, y, z, t)),
        "difference": (VALUES, lambda: parallel.subtract(x, y, t)),
        "truncation, client": (VALUES, lambda: parallel.truncate_client(x, 12, t)),
        "packed": (VALUES, lambda: packing.pack(x, t)),
        "unpacked": (VALUES, lambda: packing.unpack(message, x.shape, t)),
        f"product of {groups} heads": (groups * count * count, lambda: products.product(left, right, groups, t)),
    }


def _timed(work: _Work, repetitions: int) -> dict[str, float]:
    """Median seconds on "all" threads and on "one", in turns."""
    runs: dict[str, list[float]] = {"all": [], "one": []}
    work()
    for _ in range(repetitions):
        for name, seconds in runs.items():
            with threads.one_thread(), threads.using(0 if name == "all" else 1):
                start = time.perf_counter()
                work()
                seconds.append(time.perf_counter() - start)
    return {name: statistics.median(seconds) for name, seconds in runs.items()}


def online_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return rows in words, a column for each heading."""
    return [
        {
            "what": row["name"],
            "values": f"{row['values']}",
            "1 thread ms": f"{1e3 * row['seconds']['one']:.2f}",
            **{f"{cores} threads ms": f"{1e3 * row['seconds']['all']:.2f}" for cores in {threads.cores()} - {1}},
            "predicted ms": f"{1e3 * row['seconds_predicted']:.2f}" if "seconds_predicted" in row else "",
            "ns a value": f"{1e9 * row['seconds']['one'] / row['values']:.2f}",
            "weights MB": f"{row['weights_bytes'] / 1e6:.1f}" if "weights_bytes" in row else "",
        }
        for row in rows
    ]
