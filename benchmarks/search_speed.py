"""Duration of a search: Fisher information, latency tables of the reference networks, the integer program.

Images are random: what is measured does not depend on them.

python benchmarks/search_speed.py --samples 2048
"""

import argparse
import random
import time
from pathlib import Path

import torch

from benchmarks.bench.networks import NETWORKS, network_shapes
from privcirnet.artifact.records import read_profile, write_json
from privcirnet.blocksize_search.assignment import uniform_latency
from privcirnet.blocksize_search.curvature import diagonal_fisher
from privcirnet.blocksize_search.latency import figure_table
from privcirnet.blocksize_search.solve import solve
from privcirnet.cli.console import progress_bar, show
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.profile import COUNTED
from privcirnet.train.network import create, weighted_layers

SIZES = (1, 2, 4, 8, 16, 32)


def fisher_seconds(name: str, samples: int) -> float:
    """Time the diagonal Fisher information of every layer of an untrained network."""
    model = create(name, 10, (3, 32, 32)).eval()
    batches = ((torch.randn(64, 3, 32, 32), torch.randint(10, (64,))) for _ in range(-(-samples // 64)))
    started = time.perf_counter()
    with progress_bar("Fisher information", samples) as advance:
        diagonal_fisher(model, batches, list(weighted_layers(model)), samples, progress=lambda n: advance(to=n))
    return time.perf_counter() - started


def program_seconds(layers: int, seed: int) -> float:
    """Time the integer program of random sensitivities and latencies."""
    chance = random.Random(seed)
    names = [f"layer{i}" for i in range(layers)]
    omegas = {n: {b: (b - 1) * 10 ** chance.uniform(-5, 0) for b in SIZES} for n in names}
    seconds = {n: {b: chance.uniform(0.5, 1.5) / b for b in SIZES} for n in names}
    return solve(omegas, seconds, uniform_latency(seconds, 4)).seconds


def main() -> None:
    """Print and write the seconds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mobilenetv2_cifar")
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--profile", type=Path, help="of operation times; without it the papers' units")
    parser.add_argument("--out", type=Path, default=Path("outputs/search_speed"))
    given = parser.parse_args()
    profile = read_profile(given.profile) if given.profile else COUNTED
    found: dict[str, float] = {
        "program of 60 layers, worst of 20": max(program_seconds(60, seed) for seed in range(20))
    }
    for name in NETWORKS:
        started = time.perf_counter()
        figure_table(network_shapes(name), SIZES, Objective(profile, LINKS["local"]))
        found[f"latency table of {name}"] = time.perf_counter() - started
    found["all latency tables"] = sum(seconds for name, seconds in found.items() if name.startswith("latency"))
    found[f"Fisher information of {given.model}, {given.samples} images"] = fisher_seconds(given.model, given.samples)
    write_json(given.out / "summary.json", found)
    show("seconds", {name: f"{seconds:.2f}" for name, seconds in found.items()})


if __name__ == "__main__":
    main()
