"""Layers and networks side by side: layouts by name, and runs in turns.

Layouts: "paper" is what the papers count (every sum under encryption, least HE-Rot + 0.135 HE-Pmult), "best" has the
least predicted time. `python -m papers.bench` has what they publish, too.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.bench.layers import Entry, LayerBenchmark, bench_layers, speedup
from benchmarks.bench.networks import allowed_block_size
from benchmarks.bench.results import LayerResults, described, measured
from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.planner import LAYOUTS, plan_named
from privcirnet.he.planning.profile import Profile
from privcirnet.he.rlwe.parameters import TABLE

SHAPES = {
    "MobileNetV2 8x8 64-384": LinearShape(8, 8, 64, 384),
    "MobileNetV2 4x4 960-160": LinearShape(4, 4, 960, 160),
    "ViT 256 tokens 192-576": LinearShape.gemm(256, 192, 576),
    "ViT 64 tokens 256-512": LinearShape.gemm(64, 256, 512),
    "ResNet-18 16x16 128-128 3x3": LinearShape(16, 16, 128, 128, 3, 1, 1),
    "ResNet-18 8x8 256-256 3x3": LinearShape(8, 8, 256, 256, 3, 1, 1),
    "ResNet-18 4x4 512-512 3x3": LinearShape(4, 4, 512, 512, 3, 1, 1),
}
"""Layers of the kind that PrivCirNet's figure 7 and table 5 compare encodings on."""


BASELINES: dict[str, str] = {}
"""Label -> encoding of what is compared at b = 1 beside Bolt and NeuJeans; `python -m papers.bench` has Cheetah."""


@dataclass(frozen=True)
class BenchRun:
    """How to run a comparison.

    Attributes:
        plain_bits: bits of t.
        repetitions: timed runs of each layer.
        coefficient_bits: bits of the primes of q.
        table: that their security is judged by.
    """

    plain_bits: int
    repetitions: int
    coefficient_bits: tuple[int, ...] = DEFAULT_COEFFICIENT_BITS
    table: str = TABLE


@dataclass(frozen=True)
class Competitor:
    """A network in one layout on one engine.

    Attributes:
        layers: by name.
    """

    layers: Mapping[str, Layer]
    engine: str
    profile: Profile


def plan_layer(layout: str, encoding: str, shape: LinearShape, block_size: int, goal: Objective) -> Layer:
    """Return a layer by name of layout and encoding.

    Args:
        layout: of :data:`planning.planner.LAYOUTS`.
        encoding: see :data:`planning.planner.NAMES`.
        goal: what "best" is chosen by; "paper" takes its ring degree only.

    Raises:
        RuleError: an unknown encoding, or no such layout of this layer.
    """
    return LAYOUTS[layout](encoding, shape, block_size, goal).layer


def network_layers(
    shapes: Mapping[str, LinearShape], layout: str, encoding: str, block_size: int, goal: Objective
) -> dict[str, Layer]:
    """Return the layers of a network at the largest block size that each allows.

    Args:
        block_size: the largest b; layers that it does not divide take a half, a quarter ... of it.
    """
    sizes = {name: allowed_block_size(shape, block_size) for name, shape in shapes.items()}
    return {name: plan_layer(layout, encoding, shape, sizes[name], goal) for name, shape in shapes.items()}


def run_networks(
    competitors: Mapping[str, Competitor], bench_run: BenchRun, progress: Callable[[], object]
) -> dict[str, LayerResults]:
    """Run every different layer of all competitors, in turns; layers that are alike share the result.

    Returns:
        the results of each one's layers; "speedup" is how many times as long the last competitor's server took.

    Raises:
        RuleError: parameters that do not exist, or too little noise budget.
    """
    alike = _alike(competitors)
    results = {
        group: _run(dict(zip(competitors, group, strict=True)), bench_run, progress)
        for group in dict.fromkeys(alike.values())
    }
    return {
        competitor: {
            name: {**described(layer, entered.profile), **measured(results[alike[name]][competitor])}
            | {"speedup": speedup(results[alike[name]][competitor], results[alike[name]][list(competitors)[-1]])}
            for name, layer in entered.layers.items()
        }
        for competitor, entered in competitors.items()
    }


def network_runs(competitors: Mapping[str, Competitor], repetitions: int) -> int:
    """Return the number of runs of :func:`run_networks`."""
    return len(set(_alike(competitors).values())) * len(competitors) * (repetitions + int(repetitions > 1))


def _alike(competitors: Mapping[str, Competitor]) -> dict[str, tuple[Entry, ...]]:
    """For each name of a layer what the competitors run; the same for layers that are alike."""
    names = next(iter(competitors.values())).layers
    return {
        name: tuple(Entry(competitor.layers[name], competitor.engine) for competitor in competitors.values())
        for name in names
    }


def run_suite(
    goal: Objective, engine: str, bench_run: BenchRun, block_sizes: tuple[int, ...], progress: Callable[[], object]
) -> list[dict[str, Any]]:
    """Run encodings side by side on :data:`SHAPES`, each at every block size in its best layout; runs take turns.

    Returns:
        a row for each layer and encoding; "speedup" is over the first encoding of the layer, all parts together.

    Raises:
        RuleError: parameters that do not exist, or too little noise budget.
    """
    rows: list[dict[str, Any]] = []
    for title, shape in SHAPES.items():
        layers = {
            name: plan_named(encoding, shape, b, goal).layer for name, encoding, b in contestants(shape, block_sizes)
        }
        results = _run({name: Entry(layer, engine) for name, layer in layers.items()}, bench_run, progress)
        baseline = next(iter(results.values())).seconds
        rows += [
            {"layer": title, "name": name, **described(layer, goal.profile), **measured(results[name])}
            | {"speedup": baseline / results[name].seconds}
            for name, layer in layers.items()
        ]
    return rows


def suite_runs(block_sizes: Sequence[int], repetitions: int) -> int:
    """Return the number of runs of :func:`run_suite`."""
    contests = sum(len(contestants(shape, tuple(block_sizes))) for shape in SHAPES.values())
    return contests * (repetitions + int(repetitions > 1))


def contestants(shape: LinearShape, block_sizes: tuple[int, ...]) -> list[tuple[str, str, int]]:
    """Return what is compared on a layer, (label, encoding, block size): the papers' encodings, then CirEncode.

    Args:
        block_sizes: of CirEncode; 1 is left out.
    """
    dense = "bolt" if shape.kernel == 1 else "neujeans"
    others = {"Bolt, NeuJeans": dense, **BASELINES}
    return [(f"{label} (b = 1)", encoding, 1) for label, encoding in others.items()] + [
        (f"PrivCirNet b = {b}", "cirencode", b) for b in block_sizes if b > 1
    ]


def _run(
    entries: Mapping[str, Entry], bench_run: BenchRun, progress: Callable[[], object]
) -> dict[str, LayerBenchmark]:
    return bench_layers(
        entries, bench_run.plain_bits, bench_run.coefficient_bits, bench_run.repetitions, progress, bench_run.table
    )
