"""Encrypted inference with the parties in two processes that share nothing but a pipe: seconds, bytes, rounds, memory.

python benchmarks/two_processes.py outputs/export/program outputs/infer/images.npz --images 1
"""

import argparse
import multiprocessing
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privcirnet.artifact import read_program
from privcirnet.comparison.memory import peak_bytes
from privcirnet.he.engine import ENGINES
from privcirnet.he.modular import Residues
from privcirnet.he.program import Input, Product, Program, Square, Values, interpret
from privcirnet.he.protocol import audit
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session


class Finished(NamedTuple):
    """What the client tells after an image; its shares are for the audit alone."""

    logits: Values
    seconds: float
    own_seconds: float
    peak: int
    shares: dict[str, Residues]


def client(server: Connection, engine: str, images: Values) -> None:
    """The client's process."""
    party = Client(server.recv_bytes(), engine)
    server.send_bytes(party.keys())
    for image in images:
        before, started = sum(party.meter.seconds.values()), time.perf_counter()
        exchange = party.infer(image)
        request = next(exchange)
        try:
            while True:
                server.send_bytes(request)
                request = exchange.send(server.recv_bytes())
        except StopIteration as result:
            own = sum(party.meter.seconds.values()) - before
            server.send(Finished(result.value, time.perf_counter() - started, own, peak_bytes(), party.shares))


def serve(session: Session, connection: Connection, rounds: int) -> tuple[int, int]:
    """Answer an image's requests; bytes (up, down)."""
    up = down = 0
    for _ in range(rounds):
        request = connection.recv_bytes()
        reply = session.handle(request)
        connection.send_bytes(reply)
        up, down = up + len(request), down + len(reply)
    return up, down


def integers(program: Program, file: Path, count: int) -> Values:
    """Images of infer.py's images.npz as the program takes them, (N, C, H, W)."""
    source = program.nodes[0]
    assert isinstance(source.operation, Input)
    pictures = np.load(file)["images"][:count].astype(np.int64) // (255 // source.operation.high)
    channels, height, width = source.shape
    return np.ascontiguousarray(pictures.reshape(-1, height, width, channels).transpose(0, 3, 1, 2))


def report(program: Program, session: Session, found: Finished, image: Values) -> str:
    """Whether all of an image is right: every step by both parties' shares, and how far off truncations took it."""
    wrong = audit.wrong_nodes(program, audit.reconstruct(program, found.shares, session.shares))
    nearest, step = interpret(program, image)[program.output.name], 2.0**program.output.log_step
    off = step * np.abs(nearest.reshape(-1) - found.logits.reshape(-1)).max()
    classes = f"class {found.logits.argmax()}, the integer network's {nearest.argmax()}"
    return f"wrong nodes: {wrong}; {classes}; logits at most {off:.4f} apart of {step * np.abs(nearest).max():.4f}"


def main() -> None:
    """Print what every image took, and whether all of it is right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("pictures", type=Path, help="images.npz of infer.py")
    parser.add_argument("--images", type=int, default=1)
    parser.add_argument("--engine", default="kernel", choices=ENGINES)
    given = parser.parse_args()
    program, spectra = read_program(given.program)
    images = integers(program, given.pictures, given.images)
    kinds = {node.name: "square" for node in program.nodes if isinstance(node.operation, Square)}
    kinds |= {node.name: "product" for node in program.nodes if isinstance(node.operation, Product)}
    kinds |= {node.name: layer.shape.kind for node, layer in program.linear_nodes}
    started, context = time.perf_counter(), multiprocessing.get_context("spawn")
    server = Server(program, given.engine, spectra)
    here, there = context.Pipe()
    process = context.Process(target=client, args=(there, given.engine, images))
    process.start()
    here.send_bytes(server.greeting())
    session = server.session(keys := here.recv_bytes())
    setup = time.perf_counter() - started
    print(f"set up in {setup:.1f} s, keys {len(keys) / 1e6:.2f} MB, {len(kinds)} rounds an image")
    for number, image in enumerate(images):
        session.meter.seconds.clear()
        up, down = serve(session, here, len(kinds) + 1)
        most, spent = peak_bytes(), Counter[str]()
        for name, seconds in session.meter.seconds.items():
            spent[kinds[name]] += seconds
        found: Finished = here.recv()
        by_kind = ", ".join(f"{kind} {seconds:.3f}" for kind, seconds in spent.items())
        print(f"image {number}: {found.seconds:.2f} s, {up / 1e6:.2f} MB up, {down / 1e6:.2f} MB down")
        print(f"  client {found.own_seconds:.2f} s, server {spent.total():.2f} s ({by_kind})")
        print(f"  peak memory: client {found.peak / 1e6:.0f} MB, server {most / 1e6:.0f} MB")
        print(f"  {report(program, session, found, image)}")
    process.join()


if __name__ == "__main__":
    main()
