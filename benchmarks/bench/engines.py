"""The compiled engine against TenSEAL's, on one thread and on all, and against what the machine could do at best.

The client's encryption and decryption are timed with its transforms in clear, which both engines have in common.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.bench.layers import Entry, bench_layers, speedup
from benchmarks.bench.results import counts
from benchmarks.bench.roofline import layer_work
from benchmarks.bench.runs import BenchRun, plan_layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective
from privcirnet.he.system import threads

LAYERS = {
    "GEMM (256,192,576), b = 1": (LinearShape.gemm(256, 192, 576), 1),
    "GEMM (256,192,576), b = 8": (LinearShape.gemm(256, 192, 576), 8),
    "GEMM (512,768,3072), b = 8": (LinearShape.gemm(512, 768, 3072), 8),
    "conv (16,16,128,128,3), b = 8": (LinearShape(16, 16, 128, 128, 3, 1, 1), 8),
    "conv (32,32,64,64,3), b = 4": (LinearShape(32, 32, 64, 64, 3, 1, 1), 4),
}
"""Large layers of ViT and ResNet-18."""

CLIENT = {"encrypt": "client_encrypt", "decrypt": "client_decrypt"}
"""Name of a part of the client's work -> field of :class:`layers.Timing`."""

_BYTES = 8


def run_engines(
    layout: str, goals: Mapping[str, Objective], bench_run: BenchRun, progress: Callable[[], object]
) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """Run :data:`LAYERS` on both engines in turns.

    Args:
        layout: name of the layouts, of :data:`planning.planner.LAYOUTS`.
        goals: by engine, "kernel" and "tenseal": each engine runs the layout that suits it.

    Returns:
        (a row for each layer, this machine's peaks: words and 32-bit products a second, all threads over one).
    """
    from benchmarks.bench.roofline import products_per_second, scaling, words_per_second

    machine = {"words": words_per_second(), "products": products_per_second(), "scaling": scaling()}
    least = machine["words"], machine["products"]
    rows: list[dict[str, Any]] = []
    for title, (shape, b) in LAYERS.items():
        layers = {name: plan_layer(layout, "cirencode", shape, b, goal) for name, goal in goals.items()}
        entries = {
            "all": Entry(layers["kernel"], "kernel"),
            "one": Entry(layers["kernel"], "kernel", 1),
            "tenseal": Entry(layers["tenseal"], "tenseal"),
        }
        found = bench_layers(
            entries, bench_run.plain_bits, bench_run.coefficient_bits, bench_run.repetitions, progress, bench_run.table
        )
        work = layer_work(layers["kernel"], len(bench_run.coefficient_bits) - 1)
        seconds = {name: result.median.server for name, result in found.items()}
        client = {
            part: {name: getattr(result.median, field) for name, result in found.items()}
            | {"speedup": speedup(found["all"], found["tenseal"], field)}
            for part, field in CLIENT.items()
        }
        rows.append(
            {"layer": title, "block_size": b, **counts(layers["kernel"]), "seconds": seconds}
            | {"speedup": speedup(found["all"], found["tenseal"]), "scaling": speedup(found["all"], found["one"])}
            | {"client": client}
            | {"words": work.words, "products": work.products}
            | dict(zip(("least_memory", "least_products"), work.seconds(*least), strict=True))
            | {"max_abs_error": max(result.max_abs_error for result in found.values())}
        )
    return rows, machine


def engine_runs(repetitions: int) -> int:
    """Return the number of runs of :func:`run_engines`."""
    return 3 * len(LAYERS) * (repetitions + int(repetitions > 1))


def engine_table(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return rows in words, a column for each heading."""
    return [
        {
            "layer": row["layer"],
            "HE-Rot": f"{row['rotations']}",
            "HE-Pmult": f"{row['pmults']}",
            "TenSEAL ms": f"{1e3 * row['seconds']['tenseal']:.1f}",
            "1 thread": f"{1e3 * row['seconds']['one']:.1f}",
            f"{threads.cores()} threads": f"{1e3 * row['seconds']['all']:.1f}",
            "speed-up": f"{row['speedup']:.1f}",
            "scaling": f"{row['scaling']:.2f}",
            "memory's limit": f"{1e3 * row['least_memory']:.1f}",
            "products' limit": f"{1e3 * row['least_products']:.1f}",
            **{f"{part} ms": f"{1e3 * row['client'][part]['all']:.1f}" for part in CLIENT},
            **{f"{part} speed-up": f"{row['client'][part]['speedup']:.1f}" for part in CLIENT},
            "error": f"{row['max_abs_error']}",
        }
        for row in rows
    ]


def peaks(machine: Mapping[str, float]) -> str:
    """Return the machine's peaks in words, "" if there are none; ``machine``: from :func:`run_engines`, or empty."""
    if not machine:
        return ""
    memory, products = _BYTES * machine["words"] / 1e9, machine["products"] / 1e9
    return (
        f"\nMeasured peaks of the machine: {memory:.1f} GB/s, {products:.1f} 10^9 products of 32 bits a second; "
        f"{threads.cores()} threads make {machine['scaling']:.2f} times the products of one.\n"
    )
