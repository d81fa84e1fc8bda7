"""Does Omega predict? Sensitivities of a trained network against what the loss really does, layer by layer.

Every layer alone is projected to every block size, and the loss on held-out images is measured: of the weight alone,
and as fine-tuning starts, with the batch norm behind it shared by blocks and all statistics measured anew. How well
each kind of sensitivity ranks these changes is Spearman's rank correlation, over all and within each block size.

python benchmarks/prediction.py outputs/train --data cifar10 --root /images
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from privcirnet import plots
from privcirnet.artifact import write_json
from privcirnet.cli import progress_bar, show_rows
from privcirnet.config import DataConfig
from privcirnet.data import ImageData, load_for
from privcirnet.functional.circulant import admissible_block_sizes, expand, project
from privcirnet.functional.sensitivity import damped
from privcirnet.nn.convert import circulant_
from privcirnet.training import sensitivities, stages
from privcirnet.training.loop import predict
from privcirnet.training.network import weighted_layers

KINDS = {
    "Fisher": ("fisher", 1.0),
    "Fisher, undamped projection": ("fisher", 0.0),
    "squared batch gradient": ("batch_gradient", 1.0),
    "weight error": ("weights", 0.0),
}
"""Name -> kind and damping of `sensitivities.measure`."""
REAL = {"weight": "weight alone", "start": "start of fine-tuning"}


def loss(model: nn.Module, data: ImageData, images: int) -> float:
    """Mean cross-entropy on held-out images, nats."""
    real, labels = data.held_out(images)
    return nn.functional.cross_entropy(predict(model, data, real), labels).item()


def ranks(values: list[float]) -> np.ndarray:
    """Places in order."""
    return np.argsort(np.argsort(values)).astype(float)


def correlation(rows: list[dict[str, Any]], kind: str, real: str) -> float:
    """Spearman's rank correlation."""
    return float(np.corrcoef(ranks([r[kind] for r in rows]), ranks([r[real] for r in rows]))[0, 1])


def changed(dense: nn.Module, data: ImageData, name: str, b: int, fisher: Tensor, images: int) -> dict[str, float]:
    """The loss when one layer is projected."""
    importance = damped(fisher, 1.0)
    alone, start = copy.deepcopy(dense), copy.deepcopy(dense)
    with torch.no_grad():
        weight = weighted_layers(alone)[name].weight
        weight.copy_(expand(project(weight.double(), b, importance), b))
    circulant_(start, {name: b}, {name: importance})
    stages.measure_statistics_(start, data)
    return {"weight": loss(alone, data, images), "start": loss(start, data, images)}


def main() -> None:
    """Print the correlations and write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory or checkpoint of a dense network")
    parser.add_argument("--data", default="cifar10", help="as data.name of train.py")
    parser.add_argument("--root", default="data", help="as data.root of train.py")
    parser.add_argument("--cache", default="auto", help="as data.cache of train.py")
    parser.add_argument("--blocks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--samples", type=int, default=512, help="training images for the sensitivities")
    parser.add_argument("--images", type=int, default=2000, help="held-out images for the loss")
    parser.add_argument("--out", type=Path, default=Path("outputs/prediction"))
    given = parser.parse_args()
    data = load_for(DataConfig(name=given.data, root=given.root, cache=given.cache), lambda done, total: None)
    dense = stages.load_network(given.run, data)
    sizes = {n: admissible_block_sizes(m.weight.shape, tuple(given.blocks)) for n, m in weighted_layers(dense).items()}
    tables = {
        k: sensitivities.measure(dense, data, sizes, *v[:1], given.samples, v[1]).values for k, v in KINDS.items()
    }
    fisher = stages.fisher_information(dense, data, [n for n, found in sizes.items() if found], given.samples)
    before = loss(dense, data, given.images)
    rows: list[dict[str, Any]] = []
    cases = [(name, b) for name, found in sizes.items() for b in found]
    with progress_bar("projections", len(cases)) as advance:
        for name, b in cases:
            real = changed(dense, data, name, b, fisher[name], given.images)
            more = {key: value - before for key, value in real.items()}
            rows.append({"layer": name, "b": b, **more, **{kind: tables[kind][name][b] for kind in KINDS}})
            advance(f"{name}, b = {b}")
    groups = {"all": rows} | {f"b = {b}": [r for r in rows if r["b"] == b] for b in given.blocks}
    found = [
        {"sensitivity": kind, "loss": REAL[real]}
        | {g: round(correlation(part, kind, real), 3) for g, part in groups.items()}
        for kind in KINDS
        for real in REAL
    ]
    write_json(given.out / "summary.json", {"loss": before, "correlations": found, "rows": rows})
    plots.predicted_against_real(given.out / "prediction.png", rows, ("Fisher", "weight error"), "weight")
    show_rows(f"{given.run}: rank correlation with the loss", [{k: str(v) for k, v in row.items()} for row in found])


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
