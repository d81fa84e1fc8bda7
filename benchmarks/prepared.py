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
    given = parser.parse_args()
    rows: list[dict[str, str]] = []
    for folder in given.programs:
        program, spectra = read_program(folder)
        server = Server(program, given.engine, spectra)
        client = Client(server.greeting(), given.engine)
        session, image = server.session(client.keys()), image_of(program)
        found: dict[str, list[tuple[float, list[Traffic]]]] = {"ahead": [], "online": [], "direct": []}
        for _ in range(given.images + 1):
            for phase, measured in found.items():
                started = perf_counter()
                traffic = prepare(client, session) if phase == "ahead" else run(client, session, image)[1]
                measured.append((perf_counter() - started, traffic))
        for phase, measured in found.items():
            traffic = measured[-1][1]
            rows.append(
                {
                    "program": str(folder),
                    "phase": phase,
                    "seconds": f"{median(seconds for seconds, _ in measured[1:]):.3f}",
                    "MB": f"{sum(t.up + t.down for t in traffic) / 1e6:.1f}",
                    "rounds": str(len(traffic)),
                }
            )
    show_rows("prepared", rows)


if __name__ == "__main__":
    main()
