"""Layers under encryption: counts, bytes, seconds, and the exact results checked. `python bench.py --help`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.bench import engines, online, requests, results, runs
from benchmarks.bench.config import BenchConfig
from benchmarks.bench.networks import network_shapes
from privcirnet.artifact.records import write_json
from privcirnet.cli.console import console, progress_bar, show, show_rows
from privcirnet.cli.settings import script
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.planner import LAYOUTS
from privcirnet.he.system import threads


@script(BenchConfig, "bench")
def main(config: BenchConfig) -> None:
    """One layer, a whole network, or encodings side by side; each writes summary.json."""
    threads.use(config.threads)
    suite = {"online": _online, "bootstrapping": _bootstrapping}.get(config.suite, _suite)
    run = suite if config.suite else _network if config.network else _layer
    found = run(config)
    summary = {"stage": "bench", **found, "config": asdict(config)}
    write_json(Path(config.out) / "summary.json", summary)


def _layer(config: BenchConfig) -> dict[str, Any]:
    """One layer in one encoding."""
    shape = requests.shape(config)
    if not config.pad:
        shape.check_divides(config.block_size)
    goal = requests.goal(config, config.engine, progress_bar)
    if config.explain:
        choice = LAYOUTS[config.layout](config.encoding, shape, config.block_size, goal)
        console.print(choice.explain(), soft_wrap=True)

    def layers(layout: str, goal: Objective) -> dict[str, Layer]:
        return {"": runs.plan_layer(layout, config.encoding, shape, config.block_size, goal)}

    competitors = requests.competitors(config, goal, layers, progress_bar)
    each = requests.run(config, competitors, progress_bar)
    found = {
        competitor: each[competitor][""] if each else results.described(entered.layers[""], goal.profile)
        for competitor, entered in competitors.items()
    }
    summary = {"layer": config.layer, "dims": list(config.dims), "plan": config.layout, **found[config.layout]}
    summary |= {"encoding": config.encoding, "engine": config.engine}
    if config.compare:
        summary |= {"compared": found[config.compare]}
    show(
        f"bench: {config.layer} {config.dims}, b = {config.block_size}, {config.encoding}, layout {config.layout}",
        results.layer_facts(summary) | {"saved": _saved(config)},
    )
    return summary


def _network(config: BenchConfig) -> dict[str, Any]:
    """All layers of a reference network, in one layout or two in turns."""
    goal = requests.goal(config, config.engine, progress_bar)
    shapes, b = network_shapes(config.network), config.block_size

    def layers(layout: str, goal: Objective) -> dict[str, Layer]:
        return runs.network_layers(shapes, layout, config.encoding, b, goal)

    competitors = requests.competitors(config, goal, layers, progress_bar)
    each = requests.run(config, competitors, progress_bar)
    found = {
        name: results.network_summary(competitor.layers, competitor.profile, each.get(name))
        for name, competitor in competitors.items()
    }
    for name, summary in found.items():
        show(f"bench: {config.network}, b = {b}, {name}", results.network_facts(summary, competitors[name].profile))
    result = {"network": config.network, "plan": config.layout, "block_size": b, "engine": config.engine}
    result |= found[config.layout]
    if config.weights_gb:
        result |= {"memory": requests.memory(config, competitors[config.layout], progress_bar)}
        show("memory", {name: f"{size / 1e9:.2f} GB" for name, size in result["memory"].items()})
    for other in filter(None, (config.against, config.compare)):
        result |= results.against(result, "against" if config.against else "compared", found[other])
        show("compared", results.against_facts(result))
    show("written", {"summary": _saved(config)})
    return result


def _suite(config: BenchConfig) -> dict[str, Any]:
    """Encodings or engines side by side, with a table and a picture."""
    goal = requests.goal(config, config.engine, progress_bar)
    name, rows, machine = requests.suite(config, goal, progress_bar)
    table = engines.engine_table(rows) if machine else results.suite_table(rows, goal.profile)
    show_rows(f"bench: {name} side by side, medians", table)
    picture, text = Path(config.out) / f"{name}.png", Path(config.out) / f"{name}.md"
    requests.draw(picture, rows, machine, f"{config.suite}, n = {goal.profile.ring_degree}")
    text.write_text(results.markdown(table) + engines.peaks(machine))
    show("saved", {"picture": picture, "table": text, "figures": _saved(config)})
    return {"suite": config.suite, "rows": rows, "machine": machine}


def _online(config: BenchConfig) -> dict[str, Any]:
    """What is left to compute when an image comes, with a table."""
    rows = requests.online(config, progress_bar)
    table, text = online.online_table(rows), Path(config.out) / "online.md"
    show_rows("bench: the online phase, medians", table)
    text.parent.mkdir(parents=True, exist_ok=True)
    text.write_text(results.markdown(table))
    show("saved", {"table": text, "figures": _saved(config)})
    return {"suite": config.suite, "rows": rows}


def _bootstrapping(config: BenchConfig) -> dict[str, Any]:
    """Bootstrapping in CKKS."""
    found, facts = requests.bootstrapping(config, progress_bar)
    show("bench: bootstrapping at n = 65536", facts | {"saved": _saved(config)})
    return {"suite": config.suite, **found}


def _saved(config: BenchConfig) -> Path:
    return Path(config.out) / "summary.json"
