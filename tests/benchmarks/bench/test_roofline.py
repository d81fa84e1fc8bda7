"""The least work of a layer, which is read from its circuit, counted again from its plans."""

import math

import pytest

from benchmarks.bench.roofline import BUTTERFLY, Work, layer_work
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.planning import planner

N, L = 256, 3
SHAPES = [
    (LinearShape(4, 4, 8, 8, 3, 1, 1), 2),
    (LinearShape.gemm(4, 24, 12), 2),
    (LinearShape.gemm(65, 6, 12), 1),
    (LinearShape(4, 4, 6, 12, 3, 1, 1, groups=3), 2),
]
LAYERS = [layer for case in SHAPES for layer in planner.candidate_layers(*case, N)][::5]


def counted(layer: Layer) -> Work:
    """From the plans: which inputs are rotated, which sums."""
    rotated, hoisted, babies, parts = layer.ciphertexts_in, 0, 0, layer.ciphertexts_out
    if isinstance(layer, SpectralLayer):
        plans = [placed.plan for placed in layer.placed]
        rotated, parts = sum(len(plan.rotated) for plan in plans), sum(len(plan.parts) for plan in plans)
        hoisted = sum(len({source for source, _ in plan.baby_rotations}) for plan in plans)
        babies = sum(len(plan.baby_rotations) for plan in plans)
    switches = layer.rotations
    extended = switches > babies
    transforms = layer.ciphertexts_in * (1 + 2 * L) + hoisted * L * L
    transforms += babies * 2 * (1 + L) + (switches - babies) * L * (L + 1)
    transforms += layer.ciphertexts_out * (1 + L + 2 * (L + extended))
    pmults, key = sum(map(len, layer.circuit.sums)), 2 * L * (L + 1) * N
    words = pmults * L * N + switches * key + 4 * L * N * (rotated + parts)
    butterflies = transforms * N // 2 * int(math.log2(N))
    return Work(words, BUTTERFLY * butterflies + 4 * (2 * L * N * pmults + switches * key))


@pytest.mark.parametrize("layer", LAYERS)
def test_work_is_what_the_plans_say(layer: Layer) -> None:
    assert layer_work(layer, L) == counted(layer)


def test_seconds() -> None:
    assert Work(10, 30).seconds(5.0, 60.0) == (2.0, 0.5)
