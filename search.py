"""Choose a block size for every layer under a latency budget. `python search.py --help`."""

import time
from dataclasses import asdict
from pathlib import Path

from privcirnet import distributed
from privcirnet.artifact import write_json, write_plan
from privcirnet.cli import counting, find_profile, progress_bar, script, show
from privcirnet.config import SearchConfig
from privcirnet.data import load_for
from privcirnet.functional.sensitivity import sensitivity
from privcirnet.he.cost import LINKS
from privcirnet.search.latency import latency_table, layer_shapes
from privcirnet.search.solve import solve, uniform_latency
from privcirnet.training import stages
from privcirnet.training.network import weighted_layers


@script(SearchConfig)
@distributed.joined()
def main(config: SearchConfig) -> None:
    """Sensitivity and latency of every layer and block size, then the integer program."""
    started, out = time.perf_counter(), Path(config.out)
    with counting("Decoding images") as progress, distributed.first_goes_first():
        data = load_for(config.data, progress)
    model = stages.load_network(config.init, data)
    profile, link = distributed.from_first(lambda: find_profile(config.he)), LINKS[config.he.link]
    latency = latency_table(layer_shapes(model, data.real(data.train_images[:1])), config.block_sizes, profile, link)
    budget = config.budget or uniform_latency(latency, config.uniform)

    with progress_bar("Fisher information", config.samples) as advance:
        fisher = stages.fisher_information(model, data, list(latency), config.samples, lambda n: advance(to=n))
    if distributed.rank() > 0:
        return
    layers = weighted_layers(model)
    omega = {
        name: {b: sensitivity(layers[name].weight.detach(), fisher[name], b).item() for b in latency[name]}
        for name in latency
    }
    solution = solve(omega, latency, budget)

    uniform_seconds = {b: uniform_latency(latency, b) for b in config.block_sizes}
    write_json(out / "profile.json", profile.to_dict())
    write_plan(
        out / "plan.json",
        solution.block_sizes,
        budget_seconds=budget,
        predicted_seconds=solution.latency,
        sensitivity=solution.sensitivity,
        profile=profile.to_dict(),
    )
    summary = {
        "stage": "search",
        "budget_seconds": budget,
        "predicted_seconds": solution.latency,
        "uniform_seconds": uniform_seconds,
        "status": solution.status,
        "block_sizes": solution.block_sizes,
        "sensitivity": omega,
        "total_sensitivity": solution.sensitivity,
        "latency": latency,
        "plan": str(out / "plan.json"),
        "profile": str(out / "profile.json"),
        "seconds": time.perf_counter() - started,
        "config": asdict(config),
    }
    write_json(out / "summary.json", summary)
    show(
        "search: block sizes",
        {
            **solution.block_sizes,
            "predicted": f"{1e3 * solution.latency:.1f} ms of a budget of {1e3 * budget:.1f} ms ({solution.status})",
            "uniform": ", ".join(f"b = {b}: {1e3 * s:.1f} ms" for b, s in uniform_seconds.items()),
            "saved": out / "plan.json",
        },
    )


if __name__ == "__main__":
    main()
