"""What a BenchConfig asks for: the layer, the goal of its plans, the rivals, and their runs."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from privcirnet.config import BenchConfig
from privcirnet.console import progress_bar
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.engines.weight_cache import Room
from privcirnet.he.planning.cost import LINKS
from privcirnet.he.planning.goal import Goal
from privcirnet.pipeline.bench.engines import engine_runs, run_engines
from privcirnet.pipeline.bench.memory import network_memory
from privcirnet.pipeline.bench.results import Found
from privcirnet.pipeline.bench.runs import Contest, Rival, network_runs, run_networks, run_suite, suite_runs
from privcirnet.pipeline.profiles import find_profile

Plan = Callable[[str, Goal], Mapping[str, Layer]]
"""Layers of a named plan for a goal."""


def rivals(config: BenchConfig, wanted: Goal, layers: Plan) -> dict[str, Rival]:
    """The plan, and another plan or the same on another engine."""
    found = {config.plan: Rival(layers(config.plan, wanted), config.engine, wanted.profile)}
    if config.against:
        found[config.against] = Rival(layers(config.against, wanted), config.engine, wanted.profile)
    if config.compare:
        own = goal(config, config.compare)
        found[config.compare] = Rival(layers(config.plan, own), config.compare, own.profile)
    return found


def run(config: BenchConfig, entered: Mapping[str, Rival]) -> dict[str, Found]:
    """What was found of each rival; nothing if they are only counted."""
    if config.engine == "count":
        return {}
    with progress_bar(config.network or config.layer, network_runs(entered, config.repetitions)) as advance:
        return run_networks(entered, contest(config), advance)


def memory(config: BenchConfig, rival: Rival) -> dict[str, float]:
    """See :func:`network_memory`."""
    room = Room.of(config.weights_gb)
    with progress_bar(f"{config.network}: memory", 2 * len(rival.layers)) as advance:
        return network_memory(rival.layers, rival.engine, contest(config), room, advance)


def suite(config: BenchConfig, wanted: Goal) -> tuple[str, list[dict[str, Any]], dict[str, float]]:
    """(name of the files, rows, this machine's peaks if the rows are to be held against them)."""
    if config.suite == "engines":
        goals = {engine: goal(config, engine) for engine in ("kernel", "tenseal")}
        with progress_bar("runs", engine_runs(config.repetitions)) as advance:
            return "engines", *run_engines(config.plan, goals, contest(config), advance)
    sizes = tuple(config.block_sizes)
    with progress_bar("runs", suite_runs(sizes, config.repetitions)) as advance:
        return "encodings", run_suite(wanted, config.engine, contest(config), sizes, advance), {}


def draw(path: Path, rows: list[dict[str, Any]], machine: dict[str, float], title: str) -> None:
    """The suite's picture."""
    from privcirnet import plots

    if machine:
        plots.roofline(path, rows, machine, title)
    else:
        plots.grouped_bars(path, rows, title)


def goal(config: BenchConfig, engine: str) -> Goal:
    """What plans for an engine are chosen by; one that hides nothing is planned for as he.engine says."""
    profile = find_profile(config.he, engine if engine in ("kernel", "tenseal") else config.he.engine)
    return Goal(profile, LINKS[config.he.link])


def contest(config: BenchConfig) -> Contest:
    """How to run."""
    return Contest(config.plain_bits, config.repetitions, tuple(config.he.coefficient_bits))


def shape(config: BenchConfig) -> LinearShape:
    """Of one layer."""
    if config.layer == "gemm":
        return LinearShape.gemm(*config.dims)
    height, width, channels, maps, kernel = config.dims
    return LinearShape(height, width, channels, maps, kernel, config.stride, (kernel - 1) // 2, config.groups)
