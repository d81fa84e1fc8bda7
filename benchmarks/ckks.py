"""Seconds, bytes and precision of CKKS operations, in processor seconds of this process.

python benchmarks/ckks.py --n 32768 --levels 14
"""

import argparse
import resource
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

from privcirnet.he.ckks import hoisting
from privcirnet.he.ckks.client import CkksClient
from privcirnet.he.ckks.linear_map import LinearMap
from privcirnet.he.ckks.parameters import choose
from privcirnet.he.ckks.server import CkksServer

T = TypeVar("T")


def main() -> None:
    """Print a line for each operation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=32768, help="ring degree")
    parser.add_argument("--levels", type=int, default=14)
    parser.add_argument("--scale", type=int, default=40, help="log2 of the scale")
    parser.add_argument("--diagonals", type=int, default=16, help="of the linear map")
    given = parser.parse_args()
    parameters = choose(given.n, given.levels, given.scale)
    digits, special = len(parameters.digits(given.levels)), len(parameters.special_primes)
    print(f"{parameters}: log2 QP = {parameters.log_q}, {digits} digits, {special} special primes")
    phases = np.exp(2j * np.pi * np.random.default_rng(0).random((given.diagonals + 1, parameters.slots)))
    x, linear = phases[0], LinearMap(dict(enumerate(phases[1:])))
    client, server = CkksClient(parameters), CkksServer(parameters)
    names = server.context.elements(linear.steps)
    message = timed("keys, each", lambda: client.evaluation_keys(names), len(names) + 1)
    sent = len(message) / (len(names) + 1)
    print(f"a key: {parameters.key_bytes / 1e6:.1f} MB, {sent / 1e6:.1f} MB on the wire")
    keys = server.load_keys(message, names)
    fresh = server.receive(timed("encrypt", lambda: client.encrypt(x)))
    server.multiply(fresh, fresh, keys)  # loads what is compiled
    hoisting.encode(server.context, linear, fresh.level)
    product = timed("multiply", lambda: server.multiply(fresh, fresh, keys))
    timed("rotate", lambda: server.rotate(fresh, linear.babies[-1], keys).residues)
    name = f"map, {linear.products} diagonals, {linear.rotations} rotations"
    mapped = timed(name, lambda: hoisting.apply(server, fresh, linear, keys))
    for name, found, want in (("multiply", product, x * x), ("map", mapped, linear(x))):
        error = np.abs(client.decrypt(server.reply(found)) - want).max()
        print(f"{name}: {-np.log2(error):.1f} bits right in every slot")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB")


def timed(name: str, work: Callable[[], T], count: int = 1) -> T:
    """Return what some work returns, and print the processor seconds that it took.

    Args:
        name: of the work.
        work: to do.
        count: of equal parts that it has.
    """
    start = time.process_time()
    found = work()
    print(f"{name}: {(time.process_time() - start) / count:.3f} s")
    return found


if __name__ == "__main__":
    main()
