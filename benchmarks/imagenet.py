"""A trained ImageNet network as it is, encrypted: seconds, bytes, rounds and memory of both parties in both phases.

python benchmarks/imagenet.py PICTURES --sizes 128 160 224 --images 20       PICTURES: a folder of JPEG files, mixed

The network is compiled with some of the pictures and classifies others. Client and server are two processes that did
not compile it, with gRPC on loopback in between; each image is prepared before it comes. Every logit must be the
quantized network's. A size's program and figures stay in --out, and the same command goes on where it ended.
"""

import argparse
import json
import multiprocessing
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

import privcirnet as pc
from benchmarks.bench.results import markdown
from privcirnet.artifact.records import write_arrays, write_json
from privcirnet.cli.console import progress_bar
from privcirnet.he.system.process import keep_freed_memory
from privcirnet.runs.compiled import read_mode
from privcirnet.runs.evaluation import evaluate
from privcirnet.runs.parties import RunOptions


def compile_program(folder: Path, name: str, size: int, pictures: list[Path], given: argparse.Namespace) -> None:
    """Write a network's program, the integers of images and the quantized network's logits of them to a folder."""
    network = pc.network(name, size=size)
    images = torch.cat([network.preprocess(path) for path in pictures[: given.calibration + given.images]])
    some, others = images[: given.calibration], images[given.calibration :]
    quantized = pc.quantize(network, some)
    program = pc.compile(quantized, some, profile=given.profile)
    with torch.no_grad():
        logits = quantized(others).flatten(1)
        same = int((network(others).argmax(1) == logits.argmax(1)).sum())
    write_arrays(folder / "images.npz", pixels=program.integers(others), logits=logits.double().numpy())
    write_json(folder / "facts.json", {"same_class": same})
    program.save(folder / "program")


def run(folder: Path, weights_gb: float) -> dict[str, Any]:
    """Return the figures of all images of a folder; call it in a process of its own."""
    keep_freed_memory()
    arrays, mode = np.load(folder / "images.npz"), read_mode(folder / "program", "interactive")
    how = RunOptions(weights_gb=weights_gb, apart=True, prepare=1, warm=True)
    evaluation = evaluate(mode, arrays["pixels"], how, bar=progress_bar)
    step = 2.0**mode.program.output.log_step
    assert np.array_equal(np.asarray(evaluation.logits).reshape(arrays["logits"].shape) * step, arrays["logits"])
    summary = evaluation.summary(None, evaluation.classes)
    online, offline = summary.phases.online, summary.phases.offline
    return {
        "images": len(arrays["pixels"]),
        "ahead: s": offline.seconds,
        "ahead: MB": offline.bytes / 1e6,
        "image: s": online.seconds,
        "image: MB": online.bytes / 1e6,
        "rounds": online.rounds,
        "keys, MB": summary.bytes_keys / 1e6,
        "server, GB": summary.memory["server"] / 1e9,
        "client, GB": summary.memory["client"] / 1e9,
    }


def main() -> None:
    """Measure each size that has no figures yet, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pictures", type=Path)
    parser.add_argument("--network", default="efficientnet_lite0")
    parser.add_argument("--sizes", type=int, nargs="+", default=[128, 160, 224])
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--calibration", type=int, default=64, help="pictures that steps and bounds are measured on")
    parser.add_argument("--weights-gb", type=float, default=3.0, help="of encoded weights that stay in memory")
    parser.add_argument("--profile", default="calibrate")
    parser.add_argument("--out", type=Path, default=Path("outputs/imagenet"))
    given = parser.parse_args()
    pictures = sorted(path for path in given.pictures.rglob("*") if path.suffix.lower() in {".jpeg", ".jpg", ".png"})
    random.Random(0).shuffle(pictures)
    rows = []
    for size in given.sizes:
        folder = given.out / f"{given.network}-{size}"
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "program").exists():
            compile_program(folder, given.network, size, pictures, given)
        if not (folder / "figures.json").is_file():
            with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
                write_json(folder / "figures.json", pool.submit(run, folder, given.weights_gb).result())
        facts = json.loads((folder / "facts.json").read_text()) | json.loads((folder / "figures.json").read_text())
        rows.append({"size": str(size)} | {name: f"{value:.4g}" for name, value in facts.items()})
    print(markdown(rows))


if __name__ == "__main__":
    main()
