"""Layers under encryption: counts, bytes, seconds, and the exact results checked. `python bench.py --help`."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from privcirnet import comparison as compare
from privcirnet.artifact import write_json
from privcirnet.cli import console, find_profile, progress_bar, script, show, show_rows
from privcirnet.config import BenchConfig
from privcirnet.he.cost import LINKS, Profile
from privcirnet.he.planner import Goal
from privcirnet.he.reference import network_shapes
from privcirnet.he.shape import LinearShape


@script(BenchConfig)
def main(config: BenchConfig) -> None:
    """One layer, a whole network, or encodings side by side; each writes summary.json."""
    profile = find_profile(config.he)
    run = bench_suite if config.suite else bench_network if config.network else bench_layer
    summary = {"stage": "bench", **run(config, profile, Goal(profile, LINKS[config.he.link])), "config": asdict(config)}
    write_json(Path(config.out) / "summary.json", summary)


def bench_layer(config: BenchConfig, profile: Profile, goal: Goal) -> dict[str, Any]:
    """One layer in one encoding."""
    shape = _shape(config)
    if config.explain:
        choice = compare.explained(config.plan, config.encoding, shape, config.block_size, goal)
        console.print(choice.explain(), soft_wrap=True)
    layer = compare.plan_layer(config.plan, config.encoding, shape, config.block_size, goal)
    found = compare.described(layer, profile) | {"encoding": config.encoding, "engine": config.engine}
    facts = {"operations": f"{found['rotations']} HE-Rot, {found['pmults']} HE-Pmult"}
    if config.engine != "count":
        with progress_bar(f"{config.layer} {config.dims}", config.repetitions + 1) as advance:
            measured = compare.run_networks({"": {"": layer}}, profile, _contest(config), advance)[""][""]
        found |= measured | {"encoding": config.encoding}
        seconds = ", ".join(f"{part} {1e3 * s:.1f} ms" for part, s in measured["seconds"].items())
        error = found["max_abs_error"]
        facts |= {"bytes": f"{found['bytes_up']:,} up, {found['bytes_down']:,} down", "seconds": seconds}
        facts |= {"error": f"{error} (exact)" if error == 0 else error}
    facts |= {"ciphertexts": f"{found['ciphertexts_up']} up, {found['ciphertexts_down']} down", "saved": _saved(config)}
    show(f"bench: {config.layer} {config.dims}, b = {config.block_size}, {config.encoding}, plan {config.plan}", facts)
    return {"layer": config.layer, "dims": list(config.dims), "plan": config.plan, **found}


def bench_network(config: BenchConfig, profile: Profile, goal: Goal) -> dict[str, Any]:
    """All layers of a reference network, under one plan or two in turns."""
    shapes, b, names = network_shapes(config.network), config.block_size, filter(None, (config.plan, config.against))
    plans = {plan: compare.network_layers(shapes, plan, config.encoding, b, goal) for plan in names}
    each: dict[str, compare.Found] = {}
    if config.engine != "count":
        with progress_bar(config.network, compare.network_runs(plans, config.repetitions)) as advance:
            each = compare.run_networks(plans, profile, _contest(config), advance)
    found = {plan: compare.network_summary(layers, profile, each.get(plan)) for plan, layers in plans.items()}
    for plan, summary in found.items():
        show(f"bench: {config.network}, b = {b}, plan {plan}", compare.network_facts(summary, profile))
    result = {"network": config.network, "plan": config.plan, "block_size": b, "engine": config.engine}
    result |= found[config.plan]
    if config.against:
        result |= {"against": found[config.against], "saved": compare.savings(result, found[config.against])}
        show("saved", {name: f"{100 * share:.1f} %" for name, share in result["saved"].items()})
    show("written", {"summary": _saved(config)})
    return result


def bench_suite(config: BenchConfig, profile: Profile, goal: Goal) -> dict[str, Any]:
    """Encodings side by side, with a table and a picture."""
    from privcirnet.plots import grouped_bars

    with progress_bar("runs", compare.suite_runs(config.block_sizes, config.repetitions)) as advance:
        rows = compare.run_suite(goal, _contest(config), tuple(config.block_sizes), advance)
    show_rows("bench: encodings side by side, medians", compare.suite_table(rows))
    out = Path(config.out)
    grouped_bars(out / "encodings.png", rows, f"One layer, {config.engine}, n = {profile.ring_degree}, plan best")
    (out / "encodings.md").write_text(compare.suite_markdown(rows))
    show("saved", {"picture": out / "encodings.png", "table": out / "encodings.md", "figures": _saved(config)})
    return {"suite": config.suite, "rows": rows}


def _contest(config: BenchConfig) -> compare.Contest:
    return compare.Contest(config.engine, config.plain_bits, config.repetitions)


def _shape(config: BenchConfig) -> LinearShape:
    if config.layer == "gemm":
        return LinearShape.gemm(*config.dims)
    height, width, channels, maps, kernel = config.dims
    return LinearShape(height, width, channels, maps, kernel, config.stride, (kernel - 1) // 2, config.groups)


def _saved(config: BenchConfig) -> Path:
    return Path(config.out) / "summary.json"


if __name__ == "__main__":
    main()
