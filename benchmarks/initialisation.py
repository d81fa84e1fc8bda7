"""Loss and accuracy of a circulant network right after its start and after equal fine-tuning, for each kind of start.

A trained dense network is made circulant with one block size everywhere. The circulant weights start as those nearest
to the dense ones, where each entry counts by its Fisher information (fisher), by that and its layer's mean (damped) or
all count the same (frobenius), or at random. Then each is fine-tuned alike: same images,
order and rates, distilled from the dense network.

python benchmarks/initialisation.py outputs/train/checkpoint.safetensors --data cifar10 --root /images
"""

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from common import add_data, load, tuning
from torch import nn

from privcirnet.artifact.records import write_json
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.data import ImageData
from privcirnet.passes.convert import uniform_sizes
from privcirnet.train import stages
from privcirnet.train.accuracy import predict
from privcirnet.train.loop import fit

STARTS = {
    "least squares": {"start": "least_squares"},
    "fisher": {"start": "fisher", "damping": 0.0},
    "damped": {"start": "fisher", "damping": 1.0},
    "frobenius": {"start": "frobenius"},
    "random": {"start": "random"},
}
"""Name -> arguments of `start_circulant_`."""


def measure(model: nn.Module, data: ImageData) -> tuple[float, float]:
    """Return (loss in nats, top-1 in percent) on the held-out images."""
    logits = predict(model, data, data.test_images)
    top1 = 100 * (logits.argmax(1) == data.test_labels).float().mean().item()
    return nn.functional.cross_entropy(logits, data.test_labels).item(), top1


def run(dense: nn.Module, data: ImageData, b: int, start: str, given: argparse.Namespace) -> dict[str, Any]:
    """Return one row of the table."""
    torch.manual_seed(0)
    model = copy.deepcopy(dense)
    stages.start_circulant_(model, uniform_sizes(model, b), data, **STARTS[start])
    loss, top1 = measure(model, data)
    fit(model, data.part(given.images), tuning(given.epochs, given.learning_rate), 0, dense)
    loss_after, top1_after = measure(model, data)
    return {"b": b, "start": start, "loss": loss, "top1": top1, "loss_tuned": loss_after, "top1_tuned": top1_after}


def main() -> None:
    """Print the table and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="of a dense network")
    add_data(parser)
    parser.add_argument("--blocks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--images", type=int, default=10000, help="training images to fine-tune on")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--out", type=Path, default=Path("outputs/initialisation"))
    given = parser.parse_args()
    data = load(given)
    dense = stages.load_checkpoint(given.checkpoint, data).model
    loss, top1 = measure(dense, data)
    rows = [{"b": 1, "start": "dense", "loss": loss, "top1": top1, "loss_tuned": loss, "top1_tuned": top1}]
    cases = [(b, start) for b in given.blocks for start in STARTS]
    with progress_bar("initialisation", len(cases)) as advance:
        for b, start in cases:
            rows.append(run(dense, data, b, start, given))
            write_json(given.out / "summary.json", {"rows": rows, "images": given.images, "epochs": given.epochs})
            advance(f"b = {b}, {start}")
    facts = ("loss", "top1", "loss_tuned", "top1_tuned")
    table = [{"b": str(row["b"]), "start": row["start"]} | {key: f"{row[key]:.2f}" for key in facts} for row in rows]
    show_rows(f"{given.checkpoint}: {given.images} images, {given.epochs} epochs", table)


if __name__ == "__main__":
    main()
