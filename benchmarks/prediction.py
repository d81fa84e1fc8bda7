"""Predictive power of Omega: sensitivities of a trained network against measured changes of the loss, by layer.

Every layer alone is projected to every block size, and the loss on held-out images is measured: of the weight alone,
and as fine-tuning starts, with the batch norm behind it shared by blocks and all statistics measured anew. How well
each kind of sensitivity ranks these changes is Spearman's rank correlation, over all and within each block size.

python benchmarks/prediction.py outputs/train --data cifar10 --root /images
"""

import argparse
from pathlib import Path

from common import add_data, load

from privcirnet.artifact.records import write_json
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.nn.functional.circulant import admissible_block_sizes, damped
from privcirnet.report import plots
from privcirnet.train import sensitivities, stages
from privcirnet.train.network import weighted_layers
from privcirnet.train.sensitivities import loss_rises, rank_correlation

KINDS = {
    "Fisher": ("fisher", 1.0),
    "Fisher, undamped projection": ("fisher", 0.0),
    "squared batch gradient": ("batch_gradient", 1.0),
    "weight error": ("weights", 0.0),
}
"""Name -> kind and damping of `sensitivities.measure`."""
REAL = {"weight": "weight alone", "start": "start of fine-tuning"}


def main() -> None:
    """Print the correlations and write everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory or checkpoint of a dense network")
    add_data(parser)
    parser.add_argument("--blocks", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--samples", type=int, default=512, help="training images for the sensitivities")
    parser.add_argument("--images", type=int, default=2000, help="held-out images for the loss")
    parser.add_argument("--out", type=Path, default=Path("outputs/prediction"))
    given = parser.parse_args()
    data = load(given)
    dense = stages.load_network(given.run, data)
    admitted = {
        n: admissible_block_sizes(m.weight.shape, tuple(given.blocks)) for n, m in weighted_layers(dense).items()
    }
    sizes = {name: found for name, found in admitted.items() if found}
    tables = {
        name: sensitivities.measure(dense, data, sizes, [kind], given.samples, damping)[kind].values
        for name, (kind, damping) in KINDS.items()
    }
    fisher = stages.fisher_information(dense, data, list(sizes), given.samples)
    importance = {name: damped(values, 1.0) for name, values in fisher.items()}
    with progress_bar("projections", sum(map(len, sizes.values()))) as advance:
        rows = loss_rises(dense, data, sizes, importance, given.images, progress=advance)
    for row in rows:
        row |= {name: table[row["layer"]][row["b"]] for name, table in tables.items()}
    groups = {"all": rows} | {f"b = {b}": [row for row in rows if row["b"] == b] for b in given.blocks}
    found = [
        {"sensitivity": kind, "loss": meaning}
        | {g: rank_correlation([r[kind] for r in part], [r[real] for r in part]) for g, part in groups.items() if part}
        for real, meaning in REAL.items()
        for kind in KINDS
    ]
    write_json(given.out / "summary.json", {"correlations": found, "rows": rows})
    plots.predicted_against_real(given.out / "prediction.png", rows, ("Fisher", "weight error"), "weight")
    table = [{key: value if isinstance(value, str) else f"{value:.2f}" for key, value in row.items()} for row in found]
    show_rows(f"{given.run}: rank correlation with the rise of the loss", table)


if __name__ == "__main__":
    main()
