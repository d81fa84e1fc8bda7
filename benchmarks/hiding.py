"""What hiding a reply costs: made with the reply, and made ahead. In turns, on one thread, in microseconds.

The first table is of one reply, the second of whole images without preparation, for which the server had time before.

python benchmarks/hiding.py outputs/export/program --images 10
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

import numpy as np
from phases import noise

from privcirnet.artifact import read_program
from privcirnet.cli.console import show_rows
from privcirnet.he.circuits.bfv.interactive.kernel import KernelServer
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import run
from privcirnet.he.ring import sampling
from privcirnet.he.schemes.bfv.client import KernelClient
from privcirnet.he.schemes.bfv.kernels import reply
from privcirnet.he.schemes.bfv.parameters import choose
from privcirnet.he.system import threads


def one_reply(runs: int, n: int = 8192) -> dict[str, str]:
    """Return a row: microseconds of a reply and its mask, without what was made ahead and with it."""
    parameters = choose({1}, 46, n)
    server, client = KernelServer(parameters), KernelClient(parameters)
    keys = server.load_keys(client.public_keys([]), [])
    slots = sampling.uniform((1, n), parameters.plain_modulus)
    message, form = client.encrypt_all(slots), server._form  # pyright: ignore[reportPrivateUsage]
    found: dict[str, list[float]] = {"mask": [], "reply": [], "mask ahead": [], "reply ahead": []}

    def timed(name: str, function: Callable[[], object]) -> None:
        started = perf_counter()
        function()
        found[name].append(1e6 * (perf_counter() - started))

    for _ in range(runs + 1):
        while server.stock(keys).make(1):
            pass
        hidden, values = server.stock(keys).hiding(), server.receive_all(message, None)[0].residues
        timed("mask ahead", lambda: server.stock(keys).masks(1))
        timed("mask", lambda: server.stock(keys).masks(1))
        one, other = values.copy(), values.copy()
        timed("reply", lambda one=one: reply.reply(one, keys.public, slots[0], form))
        timed(
            "reply ahead",
            lambda other=other, hidden=hidden: reply.reply(other, keys.public, slots[0], form, hidden=hidden),
        )
    medians = {name: median(times[1:]) for name, times in found.items()}
    totals = (medians["mask"] + medians["reply"], medians["mask ahead"] + medians["reply ahead"])
    row = {f"{name}, us": f"{value:.0f}" for name, value in medians.items()}
    return row | {"both, us": f"{totals[0]:.0f}", "both ahead, us": f"{totals[1]:.0f}"}


def images(folder: Path, count: int) -> dict[str, str]:
    """Return a row: milliseconds of a whole image, without what was made ahead and with it."""
    program, spectra = read_program(folder)
    server = Server(program, "kernel", spectra)
    client = Client(server.greeting())
    session, image = server.session(client.keys()), noise(program)
    found: dict[str, list[float]] = {"image": [], "image ahead": []}
    for _ in range(count + 1):
        for name, times in found.items():
            while name == "image ahead" and session.make_ahead():
                pass
            started = perf_counter()
            run(client, session, image)
            times.append(1e3 * (perf_counter() - started))
    ratio = median(np.array(found["image ahead"][1:]) / np.array(found["image"][1:]))
    row = {f"{name}, ms": f"{median(times[1:]):.1f}" for name, times in found.items()}
    return {"program": str(folder), "replies": str(server.replies), **row, "ahead / now": f"{ratio:.3f}"}


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", type=Path, nargs="*", help="folders of export.py")
    parser.add_argument("--images", type=int, default=10, help="of each kind, after one that warms up")
    given = parser.parse_args()
    with threads.using(1):
        show_rows("hiding of a reply", [one_reply(100)])
    if given.programs:
        show_rows("images", [images(folder, given.images) for folder in given.programs])


if __name__ == "__main__":
    main()
