"""Predicted against measured latency of searched plans, run encrypted layer by layer.

Every different layer of the plans runs alone, client and server in this process, weights encoded before; a plan's
latency is the sum of its layers' medians. Every result is checked against direct integer arithmetic.

python benchmarks/latency.py outputs/train outputs/search --data cifar10 --root /images
"""

import argparse
from pathlib import Path
from typing import Any

from common import add_data, load

from benchmarks.bench.layers import LayerBenchmark, bench_layer
from privcirnet.artifact.records import read_plan, read_profile, write_json
from privcirnet.blocksize_search.latency import layer_shapes
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.train import stages


def chosen(folder: Path, count: int) -> list[Path]:
    """Return plans of a search, evenly spread over its budgets, the slowest first, with its own plan among them."""
    files = sorted((folder / "plans").glob("*.json"), key=lambda path: -int(path.stem.removesuffix("ms")))
    places = {round(i * (len(files) - 1) / max(1, count - 2)) for i in range(count - 1)}
    return [*(files[place] for place in sorted(places)), folder / "plan.json"]


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory or checkpoint of the dense network")
    parser.add_argument("search", type=Path, help="run directory of search.py on it")
    add_data(parser)
    parser.add_argument("--plans", type=int, default=5, help="how many")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--plain-bits", type=int, default=41, help="of the plain modulus")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("outputs/latency"))
    given = parser.parse_args()
    data = load(given)
    dense = stages.load_network(given.run, data)
    shapes = layer_shapes(dense, data.real(data.train_images[:1]))
    profile, link = read_profile(given.search / "profile.json"), LINKS["local"]
    plans = {path.stem: read_plan(path) for path in chosen(given.search, given.plans)}
    layers = {
        stem: {name: cheapest_layer(shapes[name], b, profile, link) for name, b in sizes.items()}
        for stem, sizes in plans.items()
    }
    different: dict[Layer, LayerBenchmark] = dict.fromkeys(layer for row in layers.values() for layer in row.values())
    with progress_bar("layers", len(different)) as advance:
        for layer in different:
            settings = given.plain_bits, profile.coefficient_bits, given.repetitions
            different[layer] = bench_layer(layer, given.engine, *settings)
            advance(f"{layer.shape}, b = {layer.block_size}")
    rows: list[dict[str, Any]] = []
    for stem, network in layers.items():
        predicted = sum(linear_cost(layer, profile, link).total for layer in network.values())
        found = [different[layer] for layer in network.values()]
        measured = sum(result.seconds for result in found)
        facts = {"predicted_s": predicted, "measured_s": measured, "error": max(r.max_abs_error for r in found)}
        rows.append({"plan": stem, "engine": given.engine, **facts, "off": predicted / measured - 1})
    write_json(given.out / "summary.json", {"rows": rows, "block_sizes": plans})
    table = [
        {"plan": row["plan"], "engine": row["engine"]}
        | {"predicted": f"{1e3 * row['predicted_s']:.0f} ms", "measured": f"{1e3 * row['measured_s']:.0f} ms"}
        | {"off": f"{100 * row['off']:+.0f} %", "error": str(row["error"])}
        for row in rows
    ]
    show_rows(f"{given.search}: linear layers of one image", table)


if __name__ == "__main__":
    main()
