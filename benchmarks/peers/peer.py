"""A virtual environment for each peer, and one form for their results.

Nothing here but the standard library: it is imported in every environment.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import venv
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass
class Result:
    """The costs of a peer.

    Attributes:
        network: "tutorial" or "resnet18".
        peer: name of the peer.
        version: of its package.
        activation: what it evaluates where the network has its activation.
        interactive: whether the client takes part during the inference.
        parameters: in words.
        seconds: for an image, once everything is set up: the median, from the client's request to its logits.
        seconds_first: for the first image, set-up left out; None where nothing was run before.
        seconds_all: of every image.
        cpu_seconds: of all processors and parties together, for an image: the median. Others' work hardly changes it.
        bytes_image: both ways, for an image.
        bytes_once: keys and the like.
        peak_bytes: party -> most memory that it ever had.
        images: that were run.
        same_class: of them, those with the float network's class.
        correct: of them, those with the right class.
        largest_error: of any logit against the float network.
        notes: whatever else a reader should know.
        before: what was done before each image, ``seconds`` and ``bytes``; None for nothing.
        machine: processor, cores, load when the run ended.
    """

    network: str
    peer: str
    version: str
    activation: str
    interactive: bool
    parameters: str
    seconds: float
    seconds_first: float | None
    seconds_all: list[float]
    cpu_seconds: float
    bytes_image: int | None
    bytes_once: int | None
    peak_bytes: dict[str, int]
    images: int
    same_class: int
    correct: int
    largest_error: float
    notes: str = ""
    before: dict[str, float] | None = None
    machine: dict[str, object] = field(default_factory=dict)


@dataclass
class Timed:
    """What a peer did for images, one after the other.

    Attributes:
        outputs: logits of each image.
        seconds: of each.
        cpu: processor seconds of each.
    """

    outputs: list[list[float]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def facts(self, clear: Sequence[Sequence[float]], labels: Sequence[int]) -> dict[str, Any]:
        """Return the attributes of a result that follow from what was done.

        Args:
            clear: logits of the float network.
            labels: classes.
        """
        classes, wanted = ([_largest(row) for row in rows] for rows in (self.outputs, clear))
        return {
            "seconds": statistics.median(self.seconds[1:] or self.seconds),
            "seconds_first": self.seconds[0],
            "seconds_all": self.seconds,
            "cpu_seconds": statistics.median(self.cpu[1:] or self.cpu),
            "images": len(classes),
            "same_class": sum(a == b for a, b in zip(classes, wanted, strict=True)),
            "correct": sum(a == int(b) for a, b in zip(classes, labels, strict=True)),
            "largest_error": max(
                abs(float(a) - float(b))
                for found, known in zip(self.outputs, clear, strict=True)
                for a, b in zip(found, known, strict=True)
            ),
        }


def timed(images: Iterable[Any], logits: Callable[[Any], Sequence[float]]) -> Timed:
    """Run images one after the other, from the request to the logits.

    Args:
        images: of any kind.
        logits: what a peer makes of one, in this process.
    """
    done = Timed()
    for image in images:
        started, worked = time.perf_counter(), time.process_time()
        found = [float(value) for value in logits(image)]
        done.seconds.append(time.perf_counter() - started)
        done.cpu.append(time.process_time() - worked)
        done.outputs.append(found)
    return done


def _largest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=lambda place: values[place])


def machine() -> dict[str, object]:
    """Return the machine's processor, its cores and its load."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {"processor": names[0] if names else "unknown", "cores": os.cpu_count(), "load": os.getloadavg()[0]}


def peak_bytes(process: int | str = "self") -> int:
    """Return the peak memory of a process, VmHWM."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


def add_out(parser: argparse.ArgumentParser, name: str) -> None:
    """Add the argument for the result's path."""
    default = HERE / "results" / f"{name}.json"
    parser.add_argument("--out", type=Path, default=default, help="JSON of the result (default: %(default)s)")


def write(path: Path, result: Result) -> None:
    """Write a result, and print it in a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result.machine = machine()
    path.write_text(json.dumps(asdict(result), indent=1) + "\n")
    moved = "-" if result.bytes_image is None else f"{result.bytes_image / 1e6:.2f} MB"
    print(f"{result.peer} {result.version}: {result.seconds:.4f} s, {moved}, {result.same_class} of {result.images}")


def inside(packages: list[str], folder: Path, python: str) -> None:
    """Continue in a virtual environment that has these packages, which is created if it is missing.

    Args:
        packages: as pip takes them.
        folder: of the environment.
        python: interpreter that it is made with.
    """
    wanted = folder / "bin" / "python"
    if Path(sys.prefix).resolve() == folder.resolve():
        return
    mark = folder / "installed"
    try:
        if not mark.is_file() or mark.read_text() != " ".join(packages):
            subprocess.run([python, "-m", venv.__name__, str(folder)], check=True)
            subprocess.run([str(wanted), "-m", "pip", "install", "-q", *packages], check=True)
            mark.write_text(" ".join(packages))
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"error: {' '.join(packages)} cannot be installed with {python}, see above", file=sys.stderr)
        raise SystemExit(2) from problem
    os.execv(wanted, [str(wanted), *sys.argv])
