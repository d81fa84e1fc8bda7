"""Layers under encryption: counts, bytes, seconds, and the exact results checked. `python bench.py --help`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcirnet.artifact import write_json
from privcirnet.cli import console, script, show, show_rows
from privcirnet.comparison import asked, engines, facts, runs
from privcirnet.config import BenchConfig
from privcirnet.he import threads
from privcirnet.he.layers import Layer
from privcirnet.he.planner import Goal
from privcirnet.he.reference import network_shapes


@script(BenchConfig)
def main(config: BenchConfig) -> None:
    """One layer, a whole network, or encodings side by side; each writes summary.json."""
    threads.use(config.threads)
    goal = asked.goal(config, config.engine)
    run = bench_suite if config.suite else bench_network if config.network else bench_layer
    summary = {"stage": "bench", **run(config, goal), "config": asdict(config)}
    write_json(Path(config.out) / "summary.json", summary)


def bench_layer(config: BenchConfig, goal: Goal) -> dict[str, Any]:
    """One layer in one encoding."""
    shape = asked.shape(config)
    if config.explain:
        choice = runs.explained(config.plan, config.encoding, shape, config.block_size, goal)
        console.print(choice.explain(), soft_wrap=True)

    def layers(plan: str, goal: Goal) -> dict[str, Layer]:
        return {"": runs.plan_layer(plan, config.encoding, shape, config.block_size, goal)}

    rivals = asked.rivals(config, goal, layers)
    each = asked.run(config, rivals)
    found = {
        rival: each[rival][""] if each else facts.described(entered.layers[""], goal.profile)
        for rival, entered in rivals.items()
    }
    summary = {"layer": config.layer, "dims": list(config.dims), "plan": config.plan, **found[config.plan]}
    summary |= {"encoding": config.encoding, "engine": config.engine}
    if config.compare:
        summary |= {"compared": found[config.compare]}
    show(
        f"bench: {config.layer} {config.dims}, b = {config.block_size}, {config.encoding}, plan {config.plan}",
        facts.layer_facts(summary) | {"saved": _saved(config)},
    )
    return summary


def bench_network(config: BenchConfig, goal: Goal) -> dict[str, Any]:
    """All layers of a reference network, under one plan or two in turns."""
    shapes, b = network_shapes(config.network), config.block_size

    def layers(plan: str, goal: Goal) -> dict[str, Layer]:
        return runs.network_layers(shapes, plan, config.encoding, b, goal)

    rivals = asked.rivals(config, goal, layers)
    each = asked.run(config, rivals)
    found = {name: facts.network_summary(rival.layers, rival.profile, each.get(name)) for name, rival in rivals.items()}
    for name, summary in found.items():
        show(f"bench: {config.network}, b = {b}, {name}", facts.network_facts(summary, rivals[name].profile))
    result = {"network": config.network, "plan": config.plan, "block_size": b, "engine": config.engine}
    result |= found[config.plan]
    if config.weights_gb:
        result |= {"memory": asked.memory(config, rivals[config.plan])}
        show("memory", {name: f"{size / 1e9:.2f} GB" for name, size in result["memory"].items()})
    for other in filter(None, (config.against, config.compare)):
        result |= facts.against(result, "against" if config.against else "compared", found[other])
        show("compared", facts.against_facts(result))
    show("written", {"summary": _saved(config)})
    return result


def bench_suite(config: BenchConfig, goal: Goal) -> dict[str, Any]:
    """Encodings or engines side by side, with a table and a picture."""
    name, rows, machine = asked.suite(config, goal)
    table = engines.engine_table(rows) if machine else facts.suite_table(rows)
    show_rows(f"bench: {name} side by side, medians", table)
    picture, text = Path(config.out) / f"{name}.png", Path(config.out) / f"{name}.md"
    asked.draw(picture, rows, machine, f"{config.suite}, n = {goal.profile.ring_degree}")
    text.write_text(facts.markdown(table) + engines.peaks(machine))
    show("saved", {"picture": picture, "table": text, "figures": _saved(config)})
    return {"suite": config.suite, "rows": rows, "machine": machine}


def _saved(config: BenchConfig) -> Path:
    return Path(config.out) / "summary.json"


if __name__ == "__main__":
    main()
