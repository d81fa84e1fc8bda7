"""Which activations to keep: accuracy over predicted cost, of a trained network with its own activations.

For each budget the search says which activations stay, exact by two-party computation, and what the others become. The
network is then fine-tuned briefly, distilled from the original, and its cost is what `check` predicts. Besides, all of
them become AESPA, with exact and with random truncation. Layers stay dense, so that only activations differ.

python benchmarks/kept_activations.py outputs/train --data cifar10 --root /images --profile outputs/search/profile.json
"""

import argparse
import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import add_data, load, tuning
from torch import Tensor, nn
from torch.nn.functional import kl_div

from privcirnet.artifact.records import read_profile, write_json
from privcirnet.blocksize_search.activations import KINDS, replacement_errors
from privcirnet.blocksize_search.assignment import latency_range
from privcirnet.blocksize_search.solve import solve
from privcirnet.cli.console import progress_bar, show_rows
from privcirnet.config import HEConfig, SearchRunConfig
from privcirnet.data import ImageData
from privcirnet.he.planning.profile import Profile
from privcirnet.passes.fuse import fuse
from privcirnet.passes.quantize import quantize
from privcirnet.passes.surgery import polynomial_
from privcirnet.report.plots import plt, save
from privcirnet.runs.check import forecast
from privcirnet.runs.search import SearchResult, search_in
from privcirnet.train import stages
from privcirnet.train.accuracy import accuracy
from privcirnet.train.loop import fit
from privcirnet.train.recalibration import recalibrate_
from privcirnet.train.sensitivities import rank_correlation

EXACT = HEConfig(truncation="exact", nonlinear="exact")
RANDOM = HEConfig(truncation="random", nonlinear="refused")


def tuned(
    dense: nn.Module, data: ImageData, chosen: Mapping[str, str], given: argparse.Namespace
) -> tuple[nn.Module, dict[str, float]]:
    """Return a network with some activations replaced and fine-tuned; its top-1, also with 8 bits, not trained then."""
    torch.manual_seed(0)
    model = copy.deepcopy(dense)
    polynomial_(model, data.real(data.train_images[:2]), chosen)
    recalibrate_(model, data)
    history = fit(model, data.part(given.images), tuning(given.epochs, given.learning_rate), 0, dense)
    small = quantize(fuse(model), data.real(data.sample(512)[0]), data.log_step)
    return model, {"top1": history[-1]["top1"], "top1 8 bits": accuracy(small, data)}


@torch.no_grad()
def rank_of(dense: nn.Module, data: ImageData, found: SearchResult) -> float:
    """Return the rank correlation of Omega with how far predictions really diverge, of each replacement alone."""
    options = {name: [b for b in found.figures[name] if b] for name in found.activations}
    errors = replacement_errors(dense, data.sampled(256, 64), options)
    images = data.real(data.sample(512)[0])
    before, predicted, real = dense(images).log_softmax(1), list[float](), list[float]()

    def replaced(_: nn.Module, x: tuple[Tensor], y: Tensor, of: Tensor) -> Tensor:
        return y - (of[:, 0] + of[:, 1] * x[0] + of[:, 2] * x[0].square() + of[:, 3] * y)

    for name, b, error in ((n, b, e) for n in options for b, e in zip(options[n], errors[n], strict=True)):
        hook = partial(replaced, of=error.float()[:, :, None, None])
        with dense.get_submodule(name).register_forward_hook(hook):
            after = dense(images).log_softmax(1)
        predicted.append(found.measured.values[name][b])
        real.append(kl_div(after, before, log_target=True, reduction="batchmean").item())
    return rank_correlation(predicted, real)


def costs(model: nn.Module, data: ImageData, he: HEConfig, profile: Profile) -> dict[str, float]:
    """Return what an image is predicted to take, ahead and with the image."""
    found = forecast(fuse(model), data.shape, he, profile, 1)
    ahead = {"preparation s": found.seconds - found.online, "preparation MB": (found.sent - found.online_sent) / 1e6}
    return ahead | {"online s": found.online, "MB": found.online_sent / 1e6, "rounds": found.online_rounds}


def draw(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw top-1 over what an image takes before it comes, and when it comes."""
    figure, panels = plt.subplots(1, 2, figsize=(9.2, 4.2), sharey=True, layout="constrained")
    for axes, what, label in zip(panels, ("preparation s", "MB"), ("preparation, s", "online, MB"), strict=True):
        searched = [row for row in rows if row["name"].endswith("%")]
        axes.plot([row[what] for row in searched], [row["top1"] for row in searched], "o-", label="searched")
        for row in searched:
            axes.annotate(str(row["own"]), (row[what], row["top1"]), xytext=(5, 5), textcoords="offset points")
        for row in rows[len(searched) :]:
            axes.plot(row[what], row["top1"], "s", label=row["name"])
        axes.set_xlabel(f"{label}, predicted")
        axes.margins(0.08)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("top-1, % (numbers: activations kept)")
    panels[0].legend(loc="lower right")
    save(figure, path)


def main() -> None:
    """Print the table, write it and draw it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="run directory or checkpoint of a network with its own activations")
    parser.add_argument("--profile", type=Path, required=True, help="of operation times, as search.py writes it")
    add_data(parser)
    parser.add_argument("--kinds", nargs="+", default=["aespa", "identity"], help="what activations may become")
    parser.add_argument("--shares", type=float, nargs="+", default=[1, 0.75, 0.5, 0.25, 0], help="of what can be saved")
    parser.add_argument("--samples", type=int, default=512, help="training images for the sensitivities")
    parser.add_argument("--images", type=int, default=10000, help="training images to fine-tune on")
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--learning-rate", type=float, default=2e-3)
    parser.add_argument("--tests", type=int, default=10000, help="held-out images")
    parser.add_argument("--out", type=Path, default=Path("outputs/kept_activations"))
    given = parser.parse_args()
    data = load(given)
    images, labels = data.held_out(given.tests)
    data = replace(data, test_images=images, test_labels=labels)
    dense = stages.load_network(given.run, data)
    profile = read_profile(given.profile)
    settings = {"block_sizes": [1], "activations": given.kinds, "samples": given.samples, "sweep": 0, "he": EXACT}
    found = search_in(dense, data, SearchRunConfig(**settings), profile, progress_bar)
    print(f"rank correlation of Omega with divergences: {rank_of(dense, data, found):.2f}")
    least, most = latency_range(found.latency)[0], found.uniform[1].latency
    plans = {
        f"{share:.0%}": solve(found.measured.values, found.latency, least + share * (most - least))
        for share in given.shares
    }
    become = {name: replace(found, solution=plan).activations for name, plan in plans.items()}
    become["AESPA"] = dict.fromkeys(found.activations, "aespa")
    rows: list[dict[str, Any]] = []
    with progress_bar("networks", len(become)) as advance:
        for name, chosen in become.items():
            model, right = tuned(dense, data, chosen, given)
            about = {"own": [*chosen.values()].count("own"), **right, "activations": chosen}
            ways = {"": EXACT} if name != "AESPA" else {", exact": EXACT, ", random truncation": RANDOM}
            rows += [{"name": name + way, **about, **costs(model, data, he, profile)} for way, he in ways.items()]
            options = {name: {KINDS[b]: asdict(f) for b, f in found.figures[name].items()} for name in chosen}
            omegas = {name: {KINDS[b]: x for b, x in found.measured.values[name].items()} for name in chosen}
            write_json(given.out / "summary.json", {"rows": rows, "prices": options, "sensitivity": omegas})
            advance(f"{name}: {about['top1']:.2f} %")
    draw(given.out / "kept_activations.png", rows)
    facts = [*rows[0].keys() - {"name", "activations"}]
    table = [{"name": row["name"]} | {k: f"{row[k]:.4g}" for k in row if k in facts} for row in rows]
    show_rows(f"{given.run}: {given.images} images, {given.epochs} epochs", table)


if __name__ == "__main__":
    main()
