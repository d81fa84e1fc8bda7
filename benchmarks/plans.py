"""Comparison of searched and uniform block sizes: accuracy after equal fine-tuning at equal predicted latency.

For each budget (the latency of one block size everywhere) a trained network is made circulant by the uniform plan, by
the integer program on plain weight errors (Frobenius) and by that on Fisher information (loss-aware). Each starts
alike, from the damped Fisher projection, and is fine-tuned alike, distilled from the dense network.

python benchmarks/plans.py outputs/train --data cifar10 --root /images --profile outputs/search/profile.json
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from common import add_data, load, tuning
from torch import nn

from privcirnet.artifact.records import read_profile, write_json
from privcirnet.blocksize_search.assignment import total, uniform_latency, uniform_sizes
from privcirnet.blocksize_search.latency import figure_table, layer_shapes, seconds_of
from privcirnet.blocksize_search.solve import solve
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.data import ImageData
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.train import sensitivities, stages
from privcirnet.train.accuracy import accuracy
from privcirnet.train.loop import fit
from privcirnet.train.network import weighted_layers


def tuned(dense: nn.Module, data: ImageData, sizes: dict[str, int], given: argparse.Namespace) -> dict[str, float]:
    """Return top-1 before and after fine-tuning, and the number of remaining parameters."""
    torch.manual_seed(0)
    model = copy.deepcopy(dense)
    stages.start_circulant_(model, sizes, data)
    start = accuracy(model, data)
    history = fit(model, data.part(given.images), tuning(given.epochs, given.learning_rate), given.seed, dense)
    numbers = sum(parameter.numel() for parameter in model.parameters())
    return {"top1_start": start, "top1": history[-1]["top1"], "numbers": numbers}


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory or checkpoint of a dense network")
    parser.add_argument("--profile", type=Path, required=True, help="of operation times, as search.py writes it")
    add_data(parser)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2, 4, 8], help="block sizes of uniform plans")
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32], help="to choose from")
    parser.add_argument("--samples", type=int, default=1024, help="training images for the sensitivities")
    parser.add_argument("--images", type=int, default=10000, help="training images to fine-tune on")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("outputs/plans"))
    given = parser.parse_args()
    data = load(given)
    dense = stages.load_network(given.run, data)
    shapes = layer_shapes(dense, data.real(data.train_images[:1]))
    latency = seconds_of(figure_table(shapes, given.blocks, Objective(read_profile(given.profile), LINKS["local"])))
    admitted = {name: tuple(row) for name, row in latency.items() if name in weighted_layers(dense)}
    kinds = {"Frobenius": "weights", "loss-aware": "fisher"}
    found = sensitivities.measure(dense, data, admitted, list(kinds.values()), given.samples, damping=1.0)
    omegas = {name: found[kind].values for name, kind in kinds.items()}
    rows: list[dict[str, Any]] = []
    with progress_bar("plans", 3 * len(given.budgets)) as advance:
        for b in given.budgets:
            budget = uniform_latency(latency, b)
            plans = {"uniform": uniform_sizes(latency, b)}
            plans |= {name: solve(omega, latency, budget).block_sizes for name, omega in omegas.items()}
            for name, sizes in plans.items():
                row = {"budget": f"b = {b}", "plan": name, "ms": 1e3 * total(latency, sizes), "block_sizes": sizes}
                rows.append(row | tuned(dense, data, sizes, given))
                write_json(given.out / "summary.json", {"rows": rows, "images": given.images, "epochs": given.epochs})
                advance(f"b = {b}, {name}")
    facts = ("ms", "numbers", "top1_start", "top1")
    table = [{k: row[k] for k in ("budget", "plan")} | {k: f"{row[k]:.2f}" for k in facts} for row in rows]
    show_rows(f"{given.run}: {given.images} images, {given.epochs} epochs", table)


if __name__ == "__main__":
    main()
