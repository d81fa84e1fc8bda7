"""Estimated gain from running two linear layers in a row, MobileNetV2's project and the next expand, in one round.

python benchmarks/fusion.py outputs/export/program outputs/infer/images.npz --profile outputs/export/profile.json

In one round the second product meets a ciphertext, so nothing is truncated in between: values and the plain modulus
grow, the noise of two products adds up, and the whole program needs a longer modulus. Everything that helps fusion is
granted to it: all of a round's encryptions, bytes and waiting are saved, and the noise grows no more than it must.
"""

import argparse
import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from privcirnet.artifact import read_profile, read_program
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.params.noise import MIN_NOISE_BUDGET
from privcirnet.he.params.parameters import MAX_PLAIN_BITS, ParameterSet
from privcirnet.he.params.security import MAX_LOG_Q
from privcirnet.he.params.sizes import ciphertext_bytes
from privcirnet.he.planning import fit
from privcirnet.he.planning.noise_budget import budget
from privcirnet.he.planning.profile import LINKS, Link, Profile
from privcirnet.he.program import truncation
from privcirnet.he.program.interpreter import interpret
from privcirnet.he.program.operations import Add, Input, Linear, Truncate
from privcirnet.he.program.program import Node, Program
from privcirnet.he.ring.sampling import FLOODING_BITS

_PRIME_BITS = 60


class Pair(NamedTuple):
    """Two layers with a truncation by so many bits, and perhaps a residual sum, in between."""

    first: Node
    second: Node
    bits: int


def pairs(program: Program) -> Iterator[Pair]:
    """Return layers that read another layer's output through a truncation and a sum only; pixels keep their slots."""
    nodes = {node.name: node for node in program.nodes}
    for second, layer in program.linear_nodes:
        if (layer.shape.kernel, layer.shape.stride) != (1, 1):
            continue
        source = nodes[second.inputs[0]]
        before = [nodes[name] for name in source.inputs] if isinstance(source.operation, Add) else [source]
        for node in before:
            if isinstance(node.operation, Truncate) and isinstance(nodes[node.inputs[0]].operation, Linear):
                yield Pair(nodes[node.inputs[0]], second, node.operation.bits)
                break


def mean_sizes(program: Program, file: Path, count: int) -> dict[str, np.ndarray]:
    """Return the mean |y| of every value of every node over some images of infer.py."""
    source = program.nodes[0]
    assert isinstance(source.operation, Input)
    pictures = np.load(file)["images"][:count].astype(np.int64) // (255 // source.operation.high)
    channels, height, width = source.shape
    images = pictures.reshape(-1, height, width, channels).transpose(0, 3, 1, 2)
    found = [interpret(program, image) for image in images]
    return {name: np.mean([np.abs(values[name]) for values in found], axis=0) for name in found[0]}


def plain_bits_fused(program: Program, sizes: dict[str, np.ndarray], fused: list[Pair], failure_bits: float) -> int:
    """Return the bits of t for the same probability of a wrong truncation, with those pairs in one round."""
    grown = {pair.second.name: sizes[pair.second.name] * 2.0**pair.bits for pair in fused}
    dropped = {pair.first.name: np.zeros(0) - 1 for pair in fused}
    return math.ceil(math.log2(truncation.wrapping_masks(program.nodes, {**sizes, **grown, **dropped})) + failure_bits)


def set_for(n: int, plain_bits: int, noise: int) -> ParameterSet:
    """Return the shortest modulus that has room for two products."""
    second = plain_bits + math.ceil(0.5 * math.log2(n))
    data = plain_bits + noise + second + FLOODING_BITS + 2 + MIN_NOISE_BUDGET
    return ParameterSet(n, (_PRIME_BITS,) * (math.ceil(data / _PRIME_BITS) + 1))


def saved(pair: Pair, profile: Profile, link: Link) -> float:
    """Return the most seconds that an omitted round saves: a reply, a request, their bytes, one round trip."""
    first, second, s = _layer(pair.first), _layer(pair.second), profile.seconds
    up, down = ciphertext_bytes(profile.ring_degree, profile.coefficient_bits, MAX_PLAIN_BITS)
    inside = first.ciphertexts_out * (s["reply"] + s["decrypt"]) + second.ciphertexts_in * (s["encrypt"] + s["receive"])
    return inside + (first.ciphertexts_out * down + second.ciphertexts_in * up) / link.bandwidth + link.round_trip


def _layer(node: Node) -> Layer:
    assert isinstance(node.operation, Linear)
    return node.operation.layer


def main() -> None:
    """Print the program's requirements with all pairs fused, and its predicted seconds with and without."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path)
    parser.add_argument("pictures", type=Path, help="images.npz of infer.py")
    parser.add_argument("--profile", type=Path, required=True)
    parser.add_argument("--images", type=int, default=2)
    given = parser.parse_args()
    program, _ = read_program(given.program)
    profile, own = read_profile(given.profile), program.parameters
    sizes, found = mean_sizes(program, given.pictures, given.images), list(pairs(program))
    failure = own.plain_bits - math.log2(truncation.wrapping_masks(program.nodes, sizes))
    wanted = plain_bits_fused(program, sizes, found, failure)
    print(
        f"{len(found)} pairs of {len(program.linear_nodes)} layers; t of {own.plain_bits} bits, fused {wanted}", end=""
    )
    print(f" (at most {MAX_PLAIN_BITS} can be), a wrong image with probability 2^-{failure:.1f}")
    noise = budget([layer for _, layer in program.linear_nodes], own).noise
    long = set_for(own.ring_degree, min(wanted, MAX_PLAIN_BITS), noise + min(wanted, MAX_PLAIN_BITS) - own.plain_bits)
    print(f"modulus: {own.log_q} bits, fused {long.log_q} of {MAX_LOG_Q[own.ring_degree]} at n = {own.ring_degree}")
    for name, link in LINKS.items():
        longer = fit.scaled(profile, long)
        now = fit.predicted_seconds(program.nodes, profile, link)
        fused = fit.predicted_seconds(program.nodes, longer, link) - sum(saved(p, longer, link) for p in found)
        print(f"{name}: {now:.2f} s, fused at best {fused:.2f} s")


if __name__ == "__main__":
    main()
