"""Ciphertexts of networks' depthwise layers: those of programs at n = 8192, Cheetah's and Falcon's at n = 4096.

python -m papers.coefficients [mobilenetv2_cifar ...]
"""

import sys
from collections.abc import Iterator
from math import inf

from benchmarks.efficient_networks import NETWORKS, network_of
from papers.coefficients.layer import COEFFICIENT_ENCODINGS, CoefficientLayer
from privcirnet.cli.console import show_text
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.planner import cheapest_layer
from privcirnet.he.planning.profile import COUNTED


def ciphertexts(network: str) -> Iterator[dict[str, str]]:
    """Yield a row for each different depthwise layer of a network: ciphertexts up + down by encoding."""
    shapes = {s for s, _ in network_of(network, 1).layers.values() if s.kind == "depthwise"}
    for s in sorted(shapes, key=lambda s: (-s.height, s.in_channels, s.kernel, s.stride)):
        layers: dict[str, Layer] = {"cirencode": cheapest_layer(s, 1, COUNTED, NetworkLink(inf, 0.0))}
        layers |= {name: CoefficientLayer(s, 1, 4096, name) for name in COEFFICIENT_ENCODINGS}
        row = {"network": network, "layer": f"({s.height}, {s.in_channels}, {s.kernel}) / {s.stride}"}
        yield row | {name: f"{each.ciphertexts_in} + {each.ciphertexts_out}" for name, each in layers.items()}


if __name__ == "__main__":
    for network in sys.argv[1:] or NETWORKS:
        for row in ciphertexts(network):
            show_text(" | ".join(row.values()))
