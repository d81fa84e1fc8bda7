"""What is left of an encrypted inference once its encrypted work was done ahead: seconds and bytes, in turns.

Both parties are in this process, and the image is noise. The parties take turns, so seconds are those of both together.

python benchmarks/prepared.py outputs/export/program --images 5
"""

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np

from privcirnet.artifact import read_program
from privcirnet.console import show_rows
from privcirnet.he.encodings.integer import Values
from privcirnet.he.program.operations import Input
from privcirnet.he.program.program import Program
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server
from privcirnet.he.protocol.session import Traffic, prepare, run


def image_of(program: Program) -> Values:
    """Return noise in the middle of a program's range, which measured bounds carry."""
    source = program.nodes[0]
    assert isinstance(source.operation, Input)
    low, high = source.operation.low, source.operation.high
    middle, width = (low + high) // 2, max(1, (high - low) // 8)
    return np.random.default_rng(0).integers(middle - width, middle + width, source.shape)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, nargs="+", help="folders of export.py")
    parser.add_argument("--engine", default="kernel")
    parser.add_argument("--images", type=int, default=5, help="of each kind, after one that warms up")
    parser.add_argument("--together", type=int, default=8, help="inferences to prepare at once, at most")
    given = parser.parse_args()
    rows: list[dict[str, str]] = []
    for folder in given.programs:
        program, spectra = read_program(folder)
        server = Server(program, given.engine, spectra)
        client = Client(server.greeting(), given.engine)
        session, image = server.session(client.keys()), image_of(program)
        several = min(client.together, given.together)
        phases = {"ahead": 1, f"ahead, {several} at once": several, "online": 1, "direct": 1}
        found: dict[str, list[tuple[float, list[Traffic]]]] = {phase: [] for phase in phases}
        for _ in range(given.images + 1):
            for phase, count in phases.items():
                started = perf_counter()
                ahead = phase.startswith("ahead")
                traffic = prepare(client, session, count) if ahead else run(client, session, image)[1]
                found[phase].append((perf_counter() - started, traffic))
                while phase == "online" and client.prepared:
                    run(client, session, image)
        for (phase, count), measured in zip(phases.items(), found.values(), strict=True):
            traffic = measured[-1][1]
            rows.append(
                {
                    "program": str(folder),
                    "phase": phase,
                    "seconds an image": f"{median(seconds for seconds, _ in measured[1:]) / count:.3f}",
                    "MB an image": f"{sum(t.up + t.down for t in traffic) / count / 1e6:.2f}",
                    "rounds": str(len(traffic)),
                }
            )
    show_rows("prepared", rows)


if __name__ == "__main__":
    main()
