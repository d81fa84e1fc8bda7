r"""The benchmark of encrypted inference of HomomorphicEncryption.org: all stages as processes, measured.

This takes the place of the benchmark's harness, whose stages, files and instance sizes these are, with MNIST's own test
images. The program is made first, of weights of 5 bits and pixels of 3.

python benchmarks/fhe_benchmark/run.py single --images /images
python benchmarks/fhe_benchmark/run.py batch --plan batch --images /images
"""

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from files import SIZES, Files, to_integers

from papers.falcon2020.config import Falcon2020Config
from papers.falcon2020.lower import leveled_program
from privcirnet.artifact.records import write_json
from privcirnet.cli.console import show_rows
from privcirnet.data import Files as Images
from privcirnet.data import load
from privcirnet.data.dataset import ImageData
from privcirnet.train import stages

STAGES = (
    "server_preprocess_model",
    "client_key_generation",
    "client_preprocess_input",
    "client_encode_encrypt_input",
    "server_encrypted_compute",
    "client_decrypt_decode",
    "client_postprocess",
)
_HERE = Path(__file__).parent


def main() -> None:
    """Run the stages and write what they took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("--model", default="checkpoints/leveled/mnist_mlp.safetensors", help="of mnist_mlp, trained")
    parser.add_argument("--plan", default="auto", choices=("auto", "batch"), help="batch: many images in one request")
    parser.add_argument("--images", required=True, help="folder with MNIST")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of test images")
    parser.add_argument("--root", type=Path, default=Path("outputs/fhe_benchmark"))
    given = parser.parse_args()
    files, data = Files(given.root, given.size), load("mnist", files=Images(given.images))
    shutil.rmtree(files.io, ignore_errors=True)
    _write_images(files, data, given.seed)
    config = Falcon2020Config(plan=given.plan, weight_bits=5, pixel_bits=3)
    files.write_program(leveled_program(config, stages.load_network(given.model, data), data))
    measured = {name: _run(name, files) for name in STAGES}
    summary = {"size": given.size, "images": SIZES[given.size], **_checked(files), "stages": measured, **_bytes(files)}
    server = measured["server_encrypted_compute"]
    for name, clock in (("seconds", "parts"), ("processor_seconds", "processor")):
        summary[f"{name}_inference_per_image"] = server[clock]["inference"] / SIZES[given.size]
    write_json(given.root / "measurements" / f"{given.size}.json", summary)
    show_rows(f"{given.size}: {SIZES[given.size]} images", [_row(name, stage) for name, stage in measured.items()])
    show_rows("in all", [{name: str(value) for name, value in summary.items() if name != "stages"}])


def _write_images(files: Files, data: ImageData, seed: int) -> None:
    count = SIZES[files.size]
    chosen = np.random.default_rng(seed).permutation(len(data.test_labels))[:count]
    files.pixels.parent.mkdir(parents=True, exist_ok=True)
    pixels = data.test_images.numpy()[chosen].reshape(count, -1) / data.levels
    np.savetxt(files.pixels, pixels, fmt="%.6f")
    np.savetxt(files.labels, data.test_labels.numpy()[chosen], fmt="%d")


def _run(name: str, files: Files) -> dict[str, Any]:
    """Seconds of a stage with the start of its process, and those of its parts."""
    command = [sys.executable, str(_HERE / f"{name}.py"), files.size, "--root", str(files.root)]
    started = perf_counter()
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    seconds = perf_counter() - started
    if done.returncode:
        sys.exit(f"{name}: {done.stderr}")
    parts, processor = dict[str, float](), dict[str, float]()
    for line in done.stderr.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            parts[found["part"]] = parts.get(found["part"], 0.0) + found["seconds"]
            processor[found["part"]] = processor.get(found["part"], 0.0) + found["processor"]
    return {"seconds": seconds, "parts": parts, "processor": processor}


def _checked(files: Files) -> dict[str, Any]:
    """Accuracy, and how many images have the integer network's results."""
    program, count = files.read_program(), SIZES[files.size]
    images = to_integers(np.loadtxt(files.pixels, ndmin=2), program.description)
    results = [[int(value) for value in line.split()] for line in files.results.read_text().splitlines()[:count]]
    equal = sum(list(program.exact.evaluate(image)) == row for image, row in zip(images, results, strict=True))
    right = np.loadtxt(files.labels, ndmin=1) == np.loadtxt(files.predictions, ndmin=1)
    return {"accuracy": float(right.mean()), "equal": equal}


def _bytes(files: Files) -> dict[str, int]:
    folders = {"keys": files.keys, "input": files.upload, "results": files.download}
    return {
        f"bytes_{name}": sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        for name, folder in folders.items()
    }


def _row(name: str, stage: dict[str, Any]) -> dict[str, str]:
    parts = ", ".join(f"{part} {t:.3f} s ({stage['processor'][part]:.3f})" for part, t in stage["parts"].items())
    return {"stage": name, "seconds": f"{stage['seconds']:.2f}", "of which": parts}


if __name__ == "__main__":
    main()
