"""What is computed exactly, on any machine: counts and bytes of planned layers, formulas, conditions on moduli."""

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.bench.networks import allowed_block_size, network_shapes
from benchmarks.bench.runs import SHAPES
from papers.ensei import moduli as ensei
from papers.layouts.baselines import counts_of
from papers.layouts.named import published_layer
from papers.reproduce import ckks
from papers.reproduce.cells import Values
from papers.reproduce.layers import LayerCase
from papers.reproduce.leveled import leveled_counts
from privcirnet.he.planning.planner import counted_goal, plan_named
from privcirnet.he.rlwe.parameters import MAX_LOG_Q

_MB = 1e6
_N = 8192


def layer_counts(**case: Any) -> Values:
    """Return the counts of a planned layer.

    Args:
        case: of :class:`LayerCase`.
    """
    pmults, rotations, up, down = LayerCase(**case).counts
    return {"HE-Pmult": pmults, "HE-Rot": rotations, "ciphertexts": up + down}


def layer_traffic(**case: Any) -> Values:
    """Return the bytes of a planned layer's messages, in MB.

    Args:
        case: of :class:`LayerCase`.
    """
    up, down = LayerCase(**case).message_bytes
    return {"traffic": (up + down) / _MB, "upload": up / _MB}


def layer_keys(**case: Any) -> Values:
    """Return the bytes of the keys that a client sends once for a layer, in MB.

    Args:
        case: of :class:`LayerCase`.
    """
    return {"keys": LayerCase(**case).public_key_bytes / _MB}


def framework_counts(framework: str, **case: Any) -> Values:
    """Return the counts of a layer in a framework that is known by its formulas.

    Args:
        framework: of :data:`layouts.baselines.FRAMEWORKS`.
        case: of :class:`LayerCase`.
    """
    counts = counts_of(framework, LayerCase(**case).shape, _N)
    return {"HE-Pmult": counts.pmults, "HE-Rot": counts.rotations, "ciphertexts": counts.ciphertexts}


def network_counts(network: str, b: int) -> Values:
    """Return the counts of a network's circulant layers, each at the largest block size up to b that it allows.

    Args:
        network: of :data:`benchmarks.bench.networks.NETWORKS`.
    """
    goal = counted_goal(_N)
    layers = [
        plan_named("cirencode", shape, allowed_block_size(shape, b), goal).layer
        for shape in network_shapes(network).values()
    ]
    rotations, pmults = sum(layer.rotations for layer in layers), sum(layer.pmults for layer in layers)
    return {"HE-Rot": rotations, "HE-Pmult": pmults, "HE-Rot + 0.135 HE-Pmult": rotations + 0.135 * pmults}


def mean_reduction(b: int) -> Values:
    """Return how many times fewer operations block size b takes than Bolt's and NeuJeans' published plans, on average.

    Over the layers of :data:`benchmarks.bench.runs.SHAPES`; of rotations the layers that still have some.
    """
    goal = counted_goal(_N)
    pairs = [
        (published_layer(shape, 1, _N), plan_named("cirencode", shape, b, goal).layer) for shape in SHAPES.values()
    ]
    rotations = [theirs.rotations / ours.rotations for theirs, ours in pairs if ours.rotations]
    pmults = [theirs.pmults / ours.pmults for theirs, ours in pairs]
    return {"HE-Rot, times fewer": statistics.mean(rotations), "HE-Pmult, times fewer": statistics.mean(pmults)}


def traffic_ratio(encoding: str, against: str, layout: str = "paper", **case: Any) -> Values:
    """Return how many times the bytes of one encoding, in our layout, another takes for a layer.

    Args:
        layout: of the other, see :class:`LayerCase`.
        case: of :class:`LayerCase`.
    """
    ours = sum(LayerCase(**case, encoding=encoding).message_bytes)
    theirs = sum(LayerCase(**case, encoding=against, layout=layout).message_bytes)
    return {"traffic, times less": theirs / ours}


def depthwise_traffic(layers: Sequence[Sequence[int]], encoding: str, against: str, n: int, layout: str) -> Values:
    """Return how many times the bytes of one encoding another takes for depthwise layers, the least and the most.

    Args:
        layers: H, C, R of each.
        layout: of the other, see :class:`LayerCase`.
    """
    ratios = [
        traffic_ratio(encoding, against, layout, conv=(h, h, c, c, r), groups=c, n=n)["traffic, times less"]
        for h, c, r in layers
    ]
    return {"traffic, least": min(ratios), "traffic, most": max(ratios)}


def transform_modulus(input_bits: int, weight_bits: int, channels: int, taps: int, n: int, length: int = 1) -> Values:
    """Return the one modulus p_N = p_A = p_E of a convolution by NTT, under the condition that is enough.

    The least prime that is 1 mod 2n and mod the transform's length, and over twice the largest output, all channels
    and signs included (:mod:`ensei.moduli` has the reasons).

    Args:
        input_bits: of unsigned inputs.
        weight_bits: of signed weights; 1 for +-1.
    """
    largest = 2**input_bits - 1, max(1, 2 ** (weight_bits - 1) - 1)
    prime = ensei.equal(ensei.Sums(channels, taps, *largest), {length}, n).ntt
    return {"p_N": prime, "p_E": prime}


def secure_modulus(n: int) -> Values:
    """Return the largest log2 q with 128-bit security."""
    return {"log q": MAX_LOG_Q[n]}


COUNTS: dict[str, Callable[..., Values]] = {
    "layer": layer_counts,
    "traffic": layer_traffic,
    "keys": layer_keys,
    "framework": framework_counts,
    "network": network_counts,
    "mean_reduction": mean_reduction,
    "traffic_ratio": traffic_ratio,
    "transform_modulus": transform_modulus,
    "secure_modulus": secure_modulus,
    "ckks": ckks.operations,
    "ckks_downsampling": ckks.downsampling,
    "ckks_imagenet": ckks.imagenet,
    "depthwise_traffic": depthwise_traffic,
    "leveled_counts": leveled_counts,
}
"""Name in a data file -> what computes it."""
