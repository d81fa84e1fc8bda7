"""What a BenchConfig asks for: the layer, the goal of its layouts, the competitors, and their runs."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.bench.config import BenchConfig
from benchmarks.bench.engines import engine_runs, run_engines
from benchmarks.bench.memory import network_memory
from benchmarks.bench.online import online_runs, run_online
from benchmarks.bench.results import LayerResults
from benchmarks.bench.runs import BenchRun, Competitor, network_runs, run_networks, run_suite, suite_runs
from privcirnet.he.bfv.weight_cache import WeightCache
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.runs.profiles import find_profile
from privcirnet.runs.progress import ProgressBar, silent

LayersOf = Callable[[str, Objective], Mapping[str, Layer]]
"""(name of a layout, goal) -> layers by name."""


def competitors(
    config: BenchConfig, wanted: Objective, layers: LayersOf, bar: ProgressBar = silent
) -> dict[str, Competitor]:
    """Return the layout, and another layout or the same on another engine.

    Returns:
        competitors by the name of their layout or, for another engine, of the engine.
    """
    found = {config.layout: Competitor(layers(config.layout, wanted), config.engine, wanted.profile)}
    if config.against:
        found[config.against] = Competitor(layers(config.against, wanted), config.engine, wanted.profile)
    if config.compare:
        own = goal(config, config.compare, bar)
        found[config.compare] = Competitor(layers(config.layout, own), config.compare, own.profile)
    return found


def run(config: BenchConfig, entered: Mapping[str, Competitor], bar: ProgressBar = silent) -> dict[str, LayerResults]:
    """Return the results of each competitor's layers; nothing if they are only counted.

    Args:
        bar: advanced at each run.
    """
    if config.engine == "count":
        return {}
    with bar(config.network or config.layer, network_runs(entered, config.repetitions)) as advance:
        return run_networks(entered, bench_run(config), advance)


def memory(config: BenchConfig, competitor: Competitor, bar: ProgressBar = silent) -> dict[str, float]:
    """Return the memory that a server of all layers takes, see :func:`network_memory`.

    Args:
        bar: advanced twice for each layer.
    """
    cache = WeightCache.of(config.weights_gb)
    with bar(f"{config.network}: memory", 2 * len(competitor.layers)) as advance:
        return network_memory(competitor.layers, competitor.engine, bench_run(config), cache, advance)


def suite(
    config: BenchConfig, wanted: Objective, bar: ProgressBar = silent
) -> tuple[str, list[dict[str, Any]], dict[str, float]]:
    """Return a suite's (name of the files, rows, this machine's peaks if the rows are to be held against them)."""
    if config.suite == "engines":
        goals = {engine: goal(config, engine, bar) for engine in ("kernel", "tenseal")}
        with bar("runs", engine_runs(config.repetitions)) as advance:
            return "engines", *run_engines(config.layout, goals, bench_run(config), advance)
    sizes = tuple(config.block_sizes)
    with bar("runs", suite_runs(sizes, config.repetitions)) as advance:
        return "encodings", run_suite(wanted, config.engine, bench_run(config), sizes, advance), {}


def online(config: BenchConfig, bar: ProgressBar = silent) -> list[dict[str, Any]]:
    """Return a row for each network and block size, then for each pass of the online phase, see :func:`run_online`."""
    with bar("rows", online_runs(config.block_sizes)) as advance:
        return run_online(config.block_sizes, bench_run(config), advance)


def bootstrapping(config: BenchConfig, bar: ProgressBar = silent) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the figures of bootstrapping, see :func:`run_bootstrapping`, and the same in words."""
    from benchmarks.bench.bootstrapping import bootstrapping_facts, bootstrapping_runs, run_bootstrapping

    with bar("runs", bootstrapping_runs(config.repetitions)) as advance:
        found = run_bootstrapping(config.repetitions, advance)
    return found, bootstrapping_facts(found)


def draw(path: Path, rows: list[dict[str, Any]], machine: dict[str, float], title: str) -> None:
    """Draw a suite's picture; ``path``: of the file, whose suffix says the format."""
    from privcirnet.report import plots

    if machine:
        plots.roofline(path, rows, machine, title)
    else:
        plots.grouped_bars(path, rows, title)


def goal(config: BenchConfig, engine: str, bar: ProgressBar = silent) -> Objective:
    """Return what layouts for an engine are chosen by.

    Args:
        engine: of the server. One that hides nothing is planned for as he.engine says.
    """
    measured = engine if engine in ("kernel", "tenseal") else config.he.engine
    profile = find_profile(config.he, measured, bar, table=config.security_table)
    return Objective(replace(profile, plain_bits=config.plain_bits), LINKS[config.he.link])


def bench_run(config: BenchConfig) -> BenchRun:
    """Return how to run."""
    return BenchRun(config.plain_bits, config.repetitions, tuple(config.he.coefficient_bits), config.security_table)


def shape(config: BenchConfig) -> LinearShape:
    """Return the shape of the one layer that is asked for."""
    if config.layer == "gemm":
        return LinearShape.gemm(*config.dims)
    height, width, channels, maps, kernel = config.dims
    return LinearShape(height, width, channels, maps, kernel, config.stride, (kernel - 1) // 2, config.groups)
