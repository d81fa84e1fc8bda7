"""Prepared inferences in a row: each equal to the integer network, memory and stores flat, as a verdict in JSON.

python benchmarks/endurance.py outputs/export/program --images 200

Client and server are two processes. --count inferences are prepared at a time and used up; the client's is in a
folder. Before that, the preparation is timed one inference at a time and --count at a time, in turns.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

from phases import audited, noise

from privcirnet.artifact.program import read_program
from privcirnet.artifact.records import write_json
from privcirnet.cli.console import progress_bar
from privcirnet.he.layers.integer import Values
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.offline.store import PreparedWork
from privcirnet.he.protocol.parties.session import prepare
from privcirnet.he.system.process import peak_bytes
from privcirnet.runs.answers import answers
from privcirnet.runs.parties import ServerProcess, ServerTask, start_server
from privcirnet.service.client import ServiceClient

_GROWTH = 0.05
"""Of memory after a third of the images, which warm up, that counts as flat."""

Sample = dict[str, int]


def preparations(
    remote: ServiceClient, process: ServerProcess, image: Values, counts: list[int], turns: int
) -> dict[int, dict[str, float]]:
    """Return the median seconds and the bytes of an inference's preparation, by how many are prepared at a time."""
    found: dict[int, list[tuple[float, float]]] = {count: [] for count in counts}
    for _ in range(turns + 1):
        for count, measured in found.items():
            started = time.perf_counter()
            traffic = prepare(remote.client, remote, count)
            seconds = time.perf_counter() - started
            measured.append((seconds / count, sum(one.up + one.down for one in traffic) / count))
            for _ in range(count):
                (answer,) = answers(remote.client, remote, [image])
                process.report()
                assert answer.prepared
    return {
        count: {"seconds_per_image": median(s for s, _ in measured[1:]), "bytes_per_image": measured[-1][1]}
        for count, measured in found.items()
    }


def in_a_row(
    program: Program, remote: ServiceClient, process: ServerProcess, given: argparse.Namespace, folder: Path
) -> dict[str, Any]:
    """Return how many of the images were prepared and right, and the samples of memory and of the client's folder."""
    samples, right, prepared = list[Sample](), 0, 0
    with progress_bar("in a row", given.images) as advance:
        for number in range(given.images):
            if not remote.prepared:
                prepare(remote.client, remote, min(given.count, given.images - number))
            right += not audited(program, remote, process, noise(program, number))
            prepared += not remote.client.waited
            files = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
            one = {"image": number, "client_bytes": peak_bytes(), "server_bytes": peak_bytes(process.number)}
            samples.append(one | {"files": len(files), "store_bytes": sum(files), "left": remote.prepared})
            advance(to=number + 1)
    return {"images": given.images, "prepared": prepared, "equal": right, "samples": samples}


def growth(samples: list[Sample], what: str) -> float:
    """Return by how much an amount grew after a third of the images, relative to what it was then."""
    first = samples[len(samples) // 3][what]
    return (samples[-1][what] - first) / max(first, 1)


def emptied(samples: list[Sample]) -> list[int]:
    """Return the bytes of the client's folder whenever nothing was left in it."""
    return [one["store_bytes"] for one in samples if not one["left"]]


def verdict(found: dict[str, Any]) -> dict[str, bool]:
    """Return what holds."""
    samples, images = found["samples"], found["images"]
    empty = emptied(samples)
    return {
        "all_prepared": found["prepared"] == images,
        "all_equal": found["equal"] == images,
        "client_memory_flat": growth(samples, "client_bytes") <= _GROWTH,
        "server_memory_flat": growth(samples, "server_bytes") <= _GROWTH,
        "store_flat": bool(empty) and max(empty) == min(empty),
    }


def main() -> None:
    """Run them and print the verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="folder of export.py")
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--count", type=int, default=8, help="inferences to prepare at a time")
    parser.add_argument("--turns", type=int, default=10, help="of timed preparations")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--out", type=Path, default=Path("outputs/endurance"))
    given = parser.parse_args()
    program, spectra = read_program(given.program)
    task = ServerTask(program, spectra, given.engine)
    with tempfile.TemporaryDirectory() as name, start_server(task) as process:
        prepared_work = PreparedWork(Path(name) / "prepared")
        with ServiceClient(process.address, given.engine, prepared_work=prepared_work) as remote:
            timed = preparations(remote, process, noise(program), [1, given.count], given.turns)
            found = in_a_row(program, remote, process, given, Path(name))
        prepared_work.close()
    facts = {"program": str(given.program), "preparation": timed, "verdict": verdict(found)}
    samples = found.pop("samples")
    facts |= found | {what: samples[-1][what] for what in ("client_bytes", "server_bytes", "store_bytes", "files")}
    write_json(given.out / "summary.json", facts | {"samples": samples})
    print(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
