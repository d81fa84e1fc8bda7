"""MobileNetV2's project and the next expand: apart, as one layer with composed weights, or two products in one round.

python benchmarks/composed.py --profile outputs/export/profile.json [--block-size 8] [--checkpoint FILE]
python benchmarks/composed.py --profile outputs/export/profile.json --programs outputs/composed
python benchmarks/composed.py --run outputs/composed/apart outputs/composed/composed

Predicted seconds, bytes and seconds with a prepared image of every pair, at the set that is fastest for the network as
it is. Composed: W2 W1 is circulant again where both have the same b; pairs with different b are left out. Two products:
both layers at a modulus with room for a second product, less what that saves at most. A value between them is not
truncated, so t grows; y1 = W1 x + r needs r encrypted where y1 was, and its reply where the next residual reads it.
--checkpoint takes block sizes of a trained network, and prints which layers to give to quant.composed. --programs
writes two programs with random weights, apart and composed where it pays. --run runs programs encrypted, in turns, both
parties in one process, every value of a first image compared; processor seconds, which suffer least from other work.
"""

import argparse
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import NamedTuple

from efficient_networks import Network, best, network_of
from phases import noise
from untrained import program_of

from privcirnet.artifact.program import read_program
from privcirnet.artifact.records import read_checkpoint, read_profile
from privcirnet.blocksize_search.latency import CostPrediction, composed_shape, figures_of_layer
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, ParameterSet, choose, ciphertext_bytes
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.parameter_choice import SETS, budget
from privcirnet.he.planning.plan_program import planned_layer, scaled
from privcirnet.he.planning.profile import Profile
from privcirnet.he.protocol.parties.client import Client
from privcirnet.he.protocol.parties.server import Server
from privcirnet.he.protocol.parties.session import Traffic, prepare, run
from privcirnet.he.ring.sampling import FLOODING_BITS
from privcirnet.he.rlwe.parameters import MAX_LOG_Q
from privcirnet.models import mobilenetv2
from privcirnet.passes.compose import Pair, pairs
from privcirnet.passes.fuse import fuse
from privcirnet.runs import interactive

_NETWORK = "mobilenetv2_cifar"
_PRIME_BITS, _TRUNCATED_BITS = 60, 8
"""Of q's primes, and what a truncation between two products would have taken."""


class Ways(NamedTuple):
    """A pair's predictions: two layers, one, and the seconds of two products in one round."""

    pair: Pair
    b: int
    apart: CostPrediction
    composed: CostPrediction
    fused: float

    @property
    def pays(self) -> bool:
        """Whether one layer is predicted to be faster."""
        return self.composed.seconds < self.apart.seconds


def figures(shape: LinearShape, b: int, profile: Profile, link: NetworkLink) -> CostPrediction:
    """Return the predictions for a layer's best plan."""
    return figures_of_layer(planned_layer(shape, b, profile, link), profile, link)


def longer(profile: Profile, layers: Sequence[Layer], plain_bits: int) -> Profile:
    """Return the profile at the shortest modulus with room for a second product behind these layers."""
    n, bits = profile.ring_degree, profile.coefficient_bits
    plain = min(plain_bits + _TRUNCATED_BITS, MAX_PLAIN_BITS)
    first = budget(layers, choose({1}, plain_bits, n, bits)).noise + plain - plain_bits
    data = plain + first + plain + math.ceil(math.log2(n) / 2) + FLOODING_BITS + 2 + MIN_NOISE_BUDGET
    wanted = (_PRIME_BITS,) * (math.ceil(data / _PRIME_BITS) + 1)
    degree = next(size for size in sorted(MAX_LOG_Q) if size >= n and sum(wanted) <= MAX_LOG_Q[size])
    return scaled(replace(profile, plain_bits=plain), ParameterSet(degree, wanted))


def two_products(pair: Pair, shapes: dict[str, LinearShape], b: int, profile: Profile, link: NetworkLink) -> float:
    """Return the least seconds of both products in one round: of both layers, less the messages that go."""
    one, two = (planned_layer(shapes[name], b, profile, link) for name in (pair.first, pair.second))
    s, (up, down) = profile.seconds, ciphertext_bytes(profile.ring_degree, profile.coefficient_bits, profile.plain_bits)
    both = sum(figures_of_layer(layer, profile, link).seconds for layer in (one, two)) - link.round_trip
    if not pair.kept:
        both -= one.ciphertexts_out * (s["reply"] + s["decrypt"] + down / link.bandwidth)
    if not pair.residual:
        both -= two.ciphertexts_in * (s["encrypt"] + s["receive"] + up / link.bandwidth)
    return both


def ways(network: Network, found: list[Pair], profile: Profile, long: Profile, link: NetworkLink) -> Iterator[Ways]:
    """Yield the predictions for every pair whose layers have one block size."""
    shapes = {name: shape for name, (shape, _) in network.layers.items()}
    for pair in found:
        (b, other) = (network.layers[name][1] for name in (pair.first, pair.second))
        if b != other:
            continue
        apart = figures(shapes[pair.first], b, profile, link) + figures(shapes[pair.second], b, profile, link)
        composed = figures(composed_shape(pair, shapes), b, profile, link)
        yield Ways(pair, b, apart, composed, two_products(pair, shapes, b, long, link))


def report(name: str, network: Network, found: list[Pair], profile: Profile, plain_bits: int) -> None:
    """Print a table for one link."""
    link = LINKS[name]
    whole = best(network, profile, link, SETS, plain_bits)
    at = scaled(profile, whole.set)
    long = longer(at, whole.layers, plain_bits)
    rows = list(ways(network, found, at, long, link))
    print(f"{name}, {whole.set}: network {whole.seconds:.2f} s; {len(rows)} of {len(found)} pairs have one block size")
    print(f"two products: {long.parameter_set}, t of {long.plain_bits} bits")
    print(
        "second layer | b | kind | s apart | composed | two products | MB apart | composed | online ms apart | composed"
    )
    for row in rows:
        kind = ", ".join(["residual"] * row.pair.residual + ["y1 kept"] * row.pair.kept)
        seconds = f"{row.apart.seconds:.4f} | {row.composed.seconds:.4f} | {row.fused:.4f}"
        sent = f"{row.apart.sent / 1e6:.2f} | {row.composed.sent / 1e6:.2f}"
        online = f"{1e3 * row.apart.online:.2f} | {1e3 * row.composed.online:.2f}"
        print(f"{row.pair.second} | {row.b} | {kind} | {seconds} | {sent} | {online} {'*' if row.pays else ''}")
    taken = [row.composed if row.pays else row.apart for row in rows]
    apart, composed = (
        sum((row.apart for row in rows), CostPrediction()),
        sum((row.composed for row in rows), CostPrediction()),
    )
    best_ways = sum(taken, CostPrediction())
    fused, mixed = sum(row.fused for row in rows), sum(min(row.fused, row.apart.seconds) for row in rows)
    print(
        f"all: apart {apart.seconds:.2f} s, composed {composed.seconds:.2f} s, where it pays {best_ways.seconds:.2f} s;"
    )
    print(f"  two products {fused:.2f} s, where they pay {mixed:.2f} s")
    print(f"  MB {apart.sent / 1e6:.1f}, {composed.sent / 1e6:.1f}, {best_ways.sent / 1e6:.1f}")
    print(f"  online ms {1e3 * apart.online:.1f}, {1e3 * composed.online:.1f}, {1e3 * best_ways.online:.1f}")
    print(f"  quant.composed=[{','.join(row.pair.second for row in rows if row.pays)}]\n", flush=True)


class Runner:
    """Both parties of a stored program, in this process.

    Args:
        folder: of the program.
    """

    def __init__(self, folder: Path) -> None:
        self.program, spectra = read_program(folder)
        server = Server(self.program, "kernel", spectra)
        self.client = Client(server.greeting(), "kernel")
        self.session = server.session(self.client.keys())
        self.image = noise(self.program)
        self.run()
        wrong = interactive.wrong_nodes(
            self.program, interactive.reconstruct(self.program, self.client.shares, self.session.shares)
        )
        assert not wrong, wrong
        self.found: dict[str, list[tuple[float, float, int]]] = {}

    def run(self) -> list[Traffic]:
        """Run the image."""
        return run(self.client, self.session, self.image)[1]

    def turn(self) -> None:
        """Prepare the image, and run it."""
        phases = {"preparation": lambda: prepare(self.client, self.session, 1), "online": self.run}
        for name, phase in phases.items():
            started = time.process_time()
            traffic = phase()
            seconds, size = time.process_time() - started, sum(each.up + each.down for each in traffic)
            self.found.setdefault(name, []).append((seconds, size, len(traffic)))


def encrypted(folders: Sequence[Path], turns: int) -> None:
    """Run programs in turns, after one that warms up, and print medians."""
    runners = {folder: Runner(folder) for folder in folders}
    for _ in range(turns + 1):
        for runner in runners.values():
            runner.turn()
    print("program | layers | phase | processor s | MB | rounds")
    for folder, runner in runners.items():
        for phase, found in runner.found.items():
            seconds, size, rounds = (median(column) for column in zip(*found[1:], strict=True))
            print(
                f"{folder} | {len(runner.program.linear_nodes)} | {phase} | {seconds:.3f} | {size / 1e6:.2f} | {rounds}"
            )


def main() -> None:
    """Print a table for each link, write programs, or run some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, help="profile.json of search.py or export.py")
    parser.add_argument("--run", nargs="+", type=Path, help="folders of programs")
    parser.add_argument("--turns", type=int, default=5, help="of --run")
    parser.add_argument("--block-size", type=int, default=8)
    parser.add_argument("--checkpoint", type=Path, help="of a trained network, whose block sizes are taken")
    parser.add_argument("--plain-bits", type=int, default=54, help="bits of t")
    parser.add_argument("--links", nargs="+", default=["local", "lan", "wan"], choices=LINKS)
    parser.add_argument("--programs", type=Path, help="folder for two programs with random weights")
    given = parser.parse_args()
    if given.run:
        encrypted(given.run, given.turns)
        return
    if given.programs:
        for name, composed in (("apart", False), ("composed", True)):
            program_of(_NETWORK, given.block_size, given.programs / name, str(given.profile), composed)
        return
    network = network_of(_NETWORK, given.block_size)
    if given.checkpoint:
        trained = read_checkpoint(given.checkpoint).block_sizes
        network = Network({n: (s, trained.get(n, 1)) for n, (s, _) in network.layers.items()}, network.squares)
    profile = replace(read_profile(given.profile), plain_bits=given.plain_bits)
    found = pairs(fuse(mobilenetv2.mobilenetv2_cifar().eval()))
    for name in given.links:
        report(name, network, found, profile, given.plain_bits)


if __name__ == "__main__":
    main()
