"""privcirnet on the tutorial network: a client and a server in two processes, joined by a pipe.

python benchmarks/peers/ours.py outputs/export/program network.npz
"""

import argparse
import multiprocessing
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from peer import Result, add_out, write

from privcirnet.artifact import read_program
from privcirnet.comparison.memory import peak_bytes
from privcirnet.he.modular import Residues
from privcirnet.he.program import Values, interpret
from privcirnet.he.protocol import audit
from privcirnet.he.protocol.client import Client
from privcirnet.he.protocol.server import Server, Session


class Finished(NamedTuple):
    """What the client tells after an image; its shares are for the audit alone."""

    logits: Values
    seconds: float
    cpu: float
    own: dict[str, float]
    shares: dict[str, Residues]
    peak: int


def client(server: Connection, images: Values) -> None:
    """The client's process."""
    party = Client(server.recv_bytes())
    server.send_bytes(party.keys())
    for image in images:
        party.meter.seconds.clear()
        started, exchange, worked = time.perf_counter(), party.infer(image), time.process_time()
        request = next(exchange)
        try:
            while True:
                server.send_bytes(request)
                request = exchange.send(server.recv_bytes())
        except StopIteration as result:
            seconds, cpu = time.perf_counter() - started, time.process_time() - worked
            server.send(Finished(result.value, seconds, cpu, dict(party.meter.seconds), party.shares, peak_bytes()))


def serve(session: Session, connection: Connection) -> tuple[int, int]:
    """Answer an image's requests; bytes (up, down)."""
    up = down = 0
    done = False
    while not done:
        request = connection.recv_bytes()
        done = request[4:6] == b"\xff\xff"
        reply = session.handle(request)
        connection.send_bytes(reply)
        up, down = up + len(request), down + len(reply)
    return up, down


def main() -> None:
    """Measure, audit every image, write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="of export.py")
    parser.add_argument("network", type=Path, help="of network.py")
    parser.add_argument("--images", type=int, default=20)
    add_out(parser, "ours")
    given = parser.parse_args()
    program, spectra = read_program(given.program)
    with np.load(given.network) as known:
        images, labels, clear = (known[key][: given.images] for key in ("images", "labels", "logits"))
    pixels = images.astype(np.int64)
    server, context = Server(program, spectra=spectra), multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=client, args=(there, pixels))
    process.start()
    here.send_bytes(server.greeting())
    session = server.session(keys := here.recv_bytes())
    found: list[Finished] = []
    served: list[dict[str, float]] = []
    worked: list[float] = []
    traffic, wrong, step = (0, 0), 0, 2.0**program.output.log_step
    for image in pixels:
        session.meter.seconds.clear()
        began = time.process_time()
        traffic = serve(session, here)
        worked.append(time.process_time() - began)
        served.append(dict(session.meter.seconds))
        found.append(here.recv())
        wrong += bool(audit.wrong_nodes(program, audit.reconstruct(program, found[-1].shares, session.shares)))
        interpret(program, image)
    process.join()
    logits = np.stack([one.logits.reshape(-1) for one in found]) * step
    seconds = [one.seconds for one in found[1:]]
    for name in served[0]:
        parts = [statistics.median(row[name] for row in rows[1:]) for rows in ([one.own for one in found], served)]
        print(f"  {name}: client {1e3 * parts[0]:.2f} ms, server {1e3 * parts[1]:.2f} ms")
    p = program.parameters
    write(
        given.out,
        Result(
            network="tutorial",
            peer="privcirnet",
            version="this one",
            activation="square",
            interactive=True,
            parameters=f"BFV, n = {p.ring_degree}, log q = {p.log_q}, t of {p.plain_bits} bits",
            seconds=statistics.median(seconds),
            seconds_first=found[0].seconds,
            seconds_all=[one.seconds for one in found],
            cpu_seconds=statistics.median(one.cpu + cpu for one, cpu in zip(found[1:], worked[1:], strict=True)),
            bytes_image=sum(traffic),
            bytes_once=len(keys),
            peak_bytes={"client": found[-1].peak, "server": peak_bytes()},
            images=len(found),
            same_class=int((logits.argmax(1) == clear.argmax(1)).sum()),
            correct=int((logits.argmax(1) == labels).sum()),
            largest_error=float(np.abs(logits - clear).max()),
            notes=f"{len(found) - wrong} of {len(found)} images follow the integer network exactly",
        ),
    )


if __name__ == "__main__":
    main()
