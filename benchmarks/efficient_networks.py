"""Networks of depthwise layers under encryption: counts, bytes and predicted seconds, before and after.

python benchmarks/efficient_networks.py --profile outputs/export/profile.json [--block-size 8] [--plain-bits 54]

*before*: chosen as if t had 60 bits. *after*: chosen by t's own bits. Every layer and activation of the network counts,
activations as squares. Figures beside them: Falcon 2023, table IV (GB in all, with its protocols for ReLU; its strides
for small images and its EfficientNet-lite are not printed; these are timm's). --rings lists what a set (n, q) for each
layer would save at most.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from math import inf, prod
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from benchmarks.bench.networks import allowed_block_size
from privcirnet.artifact.records import read_profile
from privcirnet.blocksize_search.latency import layer_shapes
from privcirnet.he.bfv.noise import MIN_NOISE_BUDGET
from privcirnet.he.bfv.parameters import MAX_PLAIN_BITS, ParameterSet, choose, ciphertext_bytes, reply_bits
from privcirnet.he.layers import subring
from privcirnet.he.layers.layer import Layer, layer_bytes
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import linear_cost, square_cost
from privcirnet.he.planning.network_links import LINKS, NetworkLink
from privcirnet.he.planning.parameter_choice import SETS, budget
from privcirnet.he.planning.plan_program import planned_layer, scaled
from privcirnet.he.planning.profile import Profile
from privcirnet.models.registry import register_with_timm

NETWORKS = {
    "mobilenetv2_cifar": (32, 10, 0.46),
    "mobilenetv2_tiny": (64, 200, 0.54),
    "efficientnet_lite0": (64, 200, 0.45),
    "resnet18_cifar": (32, 10, None),
}
"""Name -> image size, classes, GB of Falcon 2023's table IV for it."""


class Network(NamedTuple):
    """Layers by name with their block sizes, and the values of each activation."""

    layers: dict[str, tuple[LinearShape, int]]
    squares: list[int]


def network_of(name: str, block_size: int) -> Network:
    """Return what a network asks for; stem and classifier stay dense."""
    size, classes, _ = NETWORKS[name]
    register_with_timm()
    model, image = timm.create_model(name, num_classes=classes).eval(), torch.zeros(1, 3, size, size)
    shapes, squares = layer_shapes(model, image), list[int]()

    def seen(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        squares.append(prod(output.shape[1:]))

    for module in model.modules():
        if isinstance(module, nn.ReLU | nn.ReLU6) or type(module).__name__ in ("Aespa", "Activation"):
            module.register_forward_hook(seen)
    with torch.no_grad():
        model(image)
    first, *_, last = shapes
    dense = {first, last}
    sizes = {n: 1 if n in dense or s.groups > 1 else allowed_block_size(s, block_size) for n, s in shapes.items()}
    return Network({n: (shape, sizes[n]) for n, shape in shapes.items()}, squares)


class Plan(NamedTuple):
    """A network's layers at one set."""

    set: ParameterSet
    layers: list[Layer]
    seconds: float


def planned(network: Network, profile: Profile, link: NetworkLink) -> Plan:
    """Return the fastest layers at a profile's set, with squares in the seconds."""
    layers = [planned_layer(shape, b, profile, link) for shape, b in network.layers.values()]
    seconds = sum(linear_cost(layer, profile, link).total for layer in layers)
    seconds += sum(square_cost(values, profile, link).total for values in network.squares)
    return Plan(profile.parameter_set, layers, seconds)


def carries(plan: Plan, plain_bits: int) -> bool:
    """Return whether every layer has its noise budget with a t of so many bits."""
    n, bits = plan.set.ring_degree, plan.set.coefficient_bits
    return budget(plan.layers, choose({1}, plain_bits, n, bits)).left >= MIN_NOISE_BUDGET


def best(network: Network, profile: Profile, link: NetworkLink, sets: tuple[ParameterSet, ...], bits: int) -> Plan:
    """Return the fastest plan among the sets that carry the profile's t, chosen as if t had so many bits."""
    free = replace(profile, plain_bits=bits)
    plans = [planned(network, scaled(free, s), link) for s in sets]
    plans = [plan for plan in plans if carries(plan, profile.plain_bits)]
    chosen = min(plans, key=lambda plan: plan.seconds)
    return planned(network, scaled(profile, chosen.set), link)


def megabytes(plan: Plan, network: Network, plain_bits: int) -> float:
    """Return the bytes of an image both ways, in 10^6."""
    n, bits = plan.set.ring_degree, plan.set.coefficient_bits
    up, _ = ciphertext_bytes(n, bits, plain_bits)
    total = float(sum(sum(layer_bytes(layer, bits, plain_bits)) for layer in plan.layers))
    for size in (size for values in network.squares for size in subring.sizes(values, n)):
        total += size / n * up + reply_bits(bits, plain_bits).octets(n, size)
    return total / 1e6


def rows(names: list[str], profile: Profile, block_size: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each network and link."""
    for name in names:
        network = network_of(name, block_size)
        for link in LINKS.values():
            before = best(network, profile, link, SETS, MAX_PLAIN_BITS)
            after = best(network, profile, link, SETS, profile.plain_bits)
            row: dict[str, Any] = {"network": name, "link": next(k for k, v in LINKS.items() if v is link)}
            for title, plan in (("before", before), ("after", after)):
                counts = (sum(getattr(layer, c) for layer in plan.layers) for c in ("rotations", "pmults"))
                row |= dict(zip((f"{title} HE-Rot", f"{title} HE-Pmult"), counts, strict=True))
                row |= {f"{title} set": str(plan.set), f"{title} MB": megabytes(plan, network, profile.plain_bits)}
                row |= {f"{title} s": plan.seconds}
            yield row | {"saved %": 100 * (1 - after.seconds / before.seconds), "paper GB": NETWORKS[name][2]}


def rings(names: list[str], profile: Profile, block_size: int) -> Iterator[dict[str, Any]]:
    """Yield seconds with one set for all of a network, with one for each of two rings, and with any for each layer."""
    for name in names:
        network = network_of(name, block_size)
        for link in ("local", "wan"):
            priced = {s: list(_prices(network, scaled(profile, s), LINKS[link])) for s in SETS}
            pairs = [(a, b) for a in priced for b in priced if a.ring_degree < b.ring_degree]
            row: dict[str, Any] = {"network": name, "link": link, "one set s": min(map(sum, priced.values()))}
            row |= {"two rings s": min(sum(map(min, priced[a], priced[b])) for a, b in pairs)}
            yield row | {"any s": sum(map(min, zip(*priced.values(), strict=True)))}


def _prices(network: Network, profile: Profile, link: NetworkLink) -> Iterator[float]:
    """Seconds of each layer and square; infinite where the set does not carry the profile's t."""
    for shape, b in network.layers.values():
        layer = planned_layer(shape, b, profile, link)
        fits = carries(Plan(profile.parameter_set, [layer], 0.0), profile.plain_bits)
        yield linear_cost(layer, profile, link).total if fits else inf
    yield from (square_cost(values, profile, link).total for values in network.squares)


def main() -> None:
    """Print a table, and write it as JSON if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", type=Path, required=True, help="profile.json of search.py or export.py")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--block-size", type=int, default=8)
    parser.add_argument("--plain-bits", type=int, default=54, help="bits of t")
    parser.add_argument("--rings", action="store_true")
    parser.add_argument("--json", type=Path, help="file to write")
    given = parser.parse_args()
    profile = replace(read_profile(given.profile), plain_bits=given.plain_bits)
    done = list[dict[str, Any]]()
    for row in (rings if given.rings else rows)(given.networks, profile, given.block_size):
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
        if not done:
            print(" | ".join(row))
        print(" | ".join(cells), flush=True)
        done.append(row)
    if given.json:
        given.json.write_text(json.dumps(done, indent=1))


if __name__ == "__main__":
    main()
