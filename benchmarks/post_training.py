"""Accuracy, seconds and bytes of one trained network with circulant weights and no training: dense, uniform, searched.

For each block size the network is compressed by the least-squares start, rounded to 8 bits and compiled. Client and
server are two processes with gRPC on loopback in between; preparation and an image take turns (benchmarks/prepared.py).
Searched plans have the latency of the block size everywhere, and are the best of all by the search's score. Each row is
kept in --out as soon as it is measured, and the same command goes on where it ended.

python benchmarks/post_training.py checkpoints/dense/mobilenetv2_cifar10.safetensors --data cifar10 --root /images
"""

import argparse
import copy
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from common import add_data, load
from prepared import figures, measured
from torch import nn

import privcirnet as pc
from benchmarks.bench.results import markdown
from privcirnet.artifact.records import read_profile, write_json, write_text
from privcirnet.cli.console import progress_bar
from privcirnet.data import ImageData
from privcirnet.data.dataset import some_images
from privcirnet.passes.convert import uniform_sizes
from privcirnet.report.plots import plt, save
from privcirnet.train.accuracy import accuracy
from privcirnet.train.stages import load_checkpoint

IMAGES, ROUNDED = 1024, 512
"""Training images of the start, without labels; and of sensitivities, the rounding and the bounds."""
Row = dict[str, Any]


def plans(dense: nn.Module, data: ImageData, given: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, int]]]:
    """Yield (name, b, block sizes) of each network to compare; searched ones are kept in a file."""
    for b in given.blocks:
        yield ("uniform" if b > 1 else "dense"), b, uniform_sizes(dense, b)
    for b in given.searched:
        kept = given.out / f"plan-{b}.json"
        if not kept.is_file():
            images, labels = data.sample(IMAGES)
            profile = read_profile(given.profile)
            plan = pc.search(dense, (data.real(images), labels), budget=f"b{b}", profile=profile, samples=ROUNDED)
            write_json(kept, plan.block_sizes)
        yield "searched", b, json.loads(kept.read_text())


def compressed(dense: nn.Module, data: ImageData, sizes: dict[str, int], folder: Path, profile: Path) -> Row:
    """Return a network's accuracy and the seconds of its start; write its program."""
    model, images, started = copy.deepcopy(dense), some_images(data, IMAGES), time.perf_counter()
    if set(sizes.values()) != {1}:
        pc.circulant_(model, sizes, images=images)
    row: Row = {"start_s": time.perf_counter() - started, "top1": accuracy(model, data)}
    rounded = pc.quantize(pc.fuse(model), images[:ROUNDED])
    program = pc.compile(rounded, images[:ROUNDED], profile=read_profile(profile), progress=False)
    program.save(folder)
    return row | {"top1_8_bits": accuracy(rounded, data)}


def table(rows: list[Row]) -> str:
    """Return the table in Markdown."""
    lines = list[dict[str, str]]()
    for row in rows:
        ahead, online = (figures(row)[phase] for phase in ("preparation", "online"))
        cells = {"block sizes": row["kind"], "b": str(row["block_size"]), "start s": f"{row['start_s']:.0f}"}
        cells |= {"top-1 %": f"{row['top1']:.2f}", "with 8 bits %": f"{row['top1_8_bits']:.2f}"}
        for name, one in {"ahead": ahead, "image": online}.items():
            cells |= {f"{name}: s": f"{one['seconds']:.3f}", f"{name}: MB": f"{one['bytes'] / 1e6:.2f}"}
        lines.append(cells)
    return markdown(lines)


def picture(rows: list[Row], path: Path) -> None:
    """Draw the accuracy over the seconds and over the bytes of both phases together."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True)
    for ax, name, scale, unit in zip(axes, ("seconds", "bytes"), (1.0, 1e6), ("seconds", "MB"), strict=True):
        for kind, marker in {"uniform": "o", "searched": "^"}.items():
            shown = [row for row in rows if row["kind"] in {kind, "dense"}]
            costs = [sum(figures(row)[phase][name] for phase in ("preparation", "online")) / scale for row in shown]
            if len(shown) > 1:
                ax.plot(costs, [row["top1_8_bits"] for row in shown], marker=marker, label=kind)
            for cost, row in zip(costs, shown, strict=True):
                label = "dense" if row["kind"] == "dense" else f"b = {row['block_size']}"
                ax.annotate(label, (cost, row["top1_8_bits"]), (6, -10), textcoords="offset points", fontsize=8)
        ax.set(xlabel=f"{unit} of an image, preparation included", xlim=(0, None))
    axes[0].set(ylabel="top-1, 8 bits, no training (%)")
    axes[0].legend(loc="lower right")
    save(figure, path)


def main() -> None:
    """Measure what is missing; write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path, help="of a dense network")
    add_data(parser)
    parser.add_argument("--blocks", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--searched", type=int, nargs="*", default=[2, 4, 8], help="latencies of searched plans")
    parser.add_argument("--profile", type=Path, required=True, help="profile.json of search.py")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("outputs/post_training"))
    parser.set_defaults(pinned=False)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = load(given)
    dense, rows = load_checkpoint(given.checkpoint, data).model.eval(), list[Row]()
    with progress_bar("post-training", len(given.blocks) + len(given.searched)) as advance:
        for kind, b, sizes in plans(dense, data, given):
            kept = given.out / f"{kind}-{b}.json"
            row = json.loads(kept.read_text()) if kept.is_file() else {}
            if not row:
                row = {"kind": kind, "block_size": b}
                row |= compressed(dense, data, sizes, given.out / "programs" / kept.stem, given.profile)
                write_json(kept, row)
            measured(kept, row, given.out / "programs" / kept.stem, given, together=1)
            assert not row["wrong"], row["wrong"]
            rows.append(row)
            advance(f"{kind}, b = {b}")
    write_text(given.out / "table.md", table(rows))
    picture(rows, given.out / "post_training.png")
    print(table(rows))


if __name__ == "__main__":
    main()
