"""What a linear layer costs in the frameworks that PrivCirNet is compared with, as formulas of its dimensions.

PrivCirNet, Table 4, prints for each framework an order of growth and, for one GEMM and one convolution, numbers. The
formulas here are those orders with what they leave out: how maps are padded, and what is rounded up. Where no formula
gives a printed number, the formula stays what the framework's own paper describes, and the row says how far it is off.

Letters: P positions of a map with its padding (d1 of a GEMM), C and K channels, R kernel size, n ring degree. A SIMD
framework puts c = n / next_pow2(P) maps in a ciphertext, a coefficient framework floor(n / P).

| framework | HE-Pmult | HE-Rot | ciphertexts |
|---|---|---|---|
| CrypTFlow2 | R^2 C K / c | C/c + K/c + K + (R^2 - 1) C/c | C/c + K/c |
| Cheetah | ceil(C / floor(n/P)) K | 0 | ceil(C / floor(n/P)) + K |
| Iron | ceil(C R^2 / w) ceil(K / w), w = floor(sqrt(n/P)) | 0 | ceil(C R^2 / w) + ceil(K / w) |
| BumbleBee | as Cheetah | 2 K | C/c + K/c |

Source: Xu et al., PrivCirNet (NeurIPS 2024), Table 4; Rathee et al., CrypTFlow2 (CCS 2020); Huang et al., Cheetah
(USENIX Security 2022), section 3; Hao et al., Iron (NeurIPS 2022), section 3; Lu et al., BumbleBee (NDSS 2025). The
published plans of Bolt, NeuJeans and PrivCirNet are layers that run: :func:`layouts.named.published_layer`.
"""

from collections.abc import Callable
from math import isqrt
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layout import next_power_of_two


class Counts(NamedTuple):
    """What a framework does for one layer."""

    pmults: int
    rotations: int
    ciphertexts: int


def counts_of(framework: str, shape: LinearShape, ring_degree: int) -> Counts:
    """Return what a framework does for a layer.

    Args:
        framework: of :data:`FRAMEWORKS`.
        shape: dimensions of the layer; stride 1, one channel group.

    Raises:
        RuleError: an unknown framework, or a layer that the formulas do not describe.
    """
    if framework not in FRAMEWORKS:
        known = ", ".join(FRAMEWORKS)
        raise RuleError("the framework must be a known one", got=repr(framework), remedy=f"use one of {known}")
    padded = _positions(shape)
    if shape.stride > 1 or shape.groups > 1 or next_power_of_two(padded) > ring_degree:
        got = f"stride {shape.stride}, {shape.groups} groups, {padded} positions"
        raise RuleError(
            "a formula is for stride 1, one group and maps that fit a ciphertext", got=got, remedy="plan the layer"
        )
    return FRAMEWORKS[framework](shape, ring_degree)


def _positions(shape: LinearShape) -> int:
    """P."""
    return (shape.height + 2 * shape.padding) * (shape.width + 2 * shape.padding)


def _dense(shape: LinearShape, n: int) -> tuple[int, int, int]:
    """(maps of a ciphertext, ciphertexts up, ciphertexts down) of a SIMD framework."""
    maps = n // next_power_of_two(_positions(shape))
    return maps, -(-shape.in_channels // maps), -(-shape.out_channels // maps)


def _cryptflow2(shape: LinearShape, n: int) -> Counts:
    maps, up, down = _dense(shape, n)
    taps = shape.kernel**2
    rotations = up + down + shape.out_channels + (taps - 1) * up
    return Counts(taps * shape.in_channels * shape.out_channels // maps, rotations, up + down)


def _cheetah(shape: LinearShape, n: int) -> Counts:
    up = -(-shape.in_channels // (n // _positions(shape)))
    return Counts(up * shape.out_channels, 0, up + shape.out_channels)


def _iron(shape: LinearShape, n: int) -> Counts:
    side = isqrt(n // _positions(shape))
    up, down = -(-shape.in_channels * shape.kernel**2 // side), -(-shape.out_channels // side)
    return Counts(up * down, 0, up + down)


def _bumblebee(shape: LinearShape, n: int) -> Counts:
    _, up, down = _dense(shape, n)
    return Counts(_cheetah(shape, n).pmults, 2 * shape.out_channels, up + down)


FRAMEWORKS: dict[str, Callable[[LinearShape, int], Counts]] = {
    "CrypTFlow2": _cryptflow2,
    "Cheetah": _cheetah,
    "Iron": _iron,
    "BumbleBee": _bumblebee,
}
"""Name of a framework -> its formulas."""
