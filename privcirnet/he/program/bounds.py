"""Proved bounds on every intermediate value of a program, by interval arithmetic on the integer weights.

Each value of each node gets its own interval, position by position: a linear layer maps [low, high] to
[W+ low + W- high, W+ high + W- low] + bias (W+ and W- the positive and negative parts), a square to its exact range, a
product of two values to the sum of its terms' exact ranges, a truncation to the range of its two possible results (the
protocol rounds up or down at random, he.md section 3).
Every input image in the declared range obeys them; nothing is estimated from data.

Squares in a row defeat this: each doubles the bits by which a bound exceeds what really occurs, so that beyond four or
five of them no modulus carries it. Then :func:`measured` takes the ranges seen on images, with a margin. That is no
proof: an image whose values go beyond is answered wrongly. Secrecy does not depend on it as long as masks are uniform.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.encodings.integer import Values, convolve, expand_rows, sum_pool
from privcirnet.he.program import nonpolynomial
from privcirnet.he.program.interpreter import spread
from privcirnet.he.program.operations import (
    Add,
    ClientAided,
    Input,
    Linear,
    Operation,
    Product,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.program.program import Node, Program, Weights
from privcirnet.he.program.rearrangement import Tokens, rearrange

Interval = tuple[Values, Values]
Reals = npt.NDArray[np.floating[Any]]
Sizes = Mapping[str, Values | Reals]
"""Of each node's values: how large |y| is, at most or in the mean."""
MAX_BOUND_BITS = 59
"""Bounds over this are refused: no plain modulus of 60 bits carries them."""


def prove(program: Program) -> dict[str, Interval]:
    """Intervals of every node by name.

    Raises:
        DoesNotFit: a bound is over 2^:data:`MAX_BOUND_BITS`.
    """
    return prove_nodes(program.nodes, program.weights)


def prove_nodes(nodes: Iterable[Node], weights: Mapping[str, Weights]) -> dict[str, Interval]:
    """:func:`prove` before there are parameters: bounds do not depend on them."""
    intervals: dict[str, Interval] = {}
    for node in nodes:
        arguments = [intervals[name] for name in node.inputs]
        _check_growth(node, arguments, weights.get(node.name))
        intervals[node.name] = _propagate(node, arguments, weights.get(node.name))
    return intervals


@dataclass(frozen=True)
class ObservedRange:
    """The real values of one node on images, each (C, H, W) or flat.

    Attributes:
        low: the least.
        high: the largest.
        size: the mean of their absolute values.
    """

    low: Reals
    high: Reals
    size: Reals


def measured(nodes: Iterable[Node], seen: Mapping[str, ObservedRange], margin_bits: int) -> dict[str, Interval]:
    """Intervals from what was seen on images.

    Args:
        nodes: of the program.
        seen: by node name.
        margin_bits: values of other images may exceed these 2^margin_bits times.

    Raises:
        DoesNotFit: an interval is over 2^:data:`MAX_BOUND_BITS`.
    """
    intervals: dict[str, Interval] = {}
    for node in nodes:
        ends = seen[node.name].low, seen[node.name].high
        low, high = (np.asarray(end, dtype=np.float64).reshape(node.shape) for end in ends)
        scale = 2.0 ** (margin_bits - node.log_step)
        low, high = np.floor(np.minimum(low, 0) * scale) - 1, np.ceil(np.maximum(high, 0) * scale) + 1
        _check_bits(node, max(-low.min(), high.max()), "seen on images")
        intervals[node.name] = low.astype(np.int64), high.astype(np.int64)
    return intervals


def largest_sizes(intervals: Mapping[str, Interval]) -> dict[str, Values]:
    """The largest |y| of every value of every node."""
    return {name: np.maximum(np.abs(low), np.abs(high)) for name, (low, high) in intervals.items()}


def mean_sizes(nodes: Iterable[Node], seen: Mapping[str, ObservedRange]) -> dict[str, Reals]:
    """The mean |y| of every value of every node, on the images that were seen."""
    return {node.name: seen[node.name].size.reshape(node.shape) * 2.0**-node.log_step for node in nodes}


def largest(interval: Interval) -> int:
    """Largest absolute value of an interval."""
    low, high = interval
    return max(abs(int(low.min())), abs(int(high.max())))


def value_bits(interval: Interval) -> int:
    """K with |value| < 2^k."""
    return largest(interval).bit_length()


def check_modulus(program: Program, intervals: dict[str, Interval]) -> None:
    """Raise unless every value stays under t / 2.

    Raises:
        RuleError: naming the first node that does not.
    """
    t = program.parameters.plain_modulus
    for name, interval in intervals.items():
        if 2 * largest(interval) >= t:
            raise RuleError(
                "every value must stay under t / 2",
                got=f"{name} reaches 2^{math.log2(largest(interval)):.1f}, t has {t.bit_length()} bits",
                remedy="use a larger plain modulus or fewer bits for weights and activations",
            )


def wrap_probability(program: Program, sizes: Sizes) -> float:
    """Bound on the probability that an image's inference has a wrong truncation, masks uniform.

    A truncation on shares is wrong only if the shares wrap, with probability at most (|y| + 1) / t for a uniform mask
    (he.md section 3); the sum over all truncated values of all nodes is this number. With the largest sizes it holds
    for every image, with mean ones for the mean over images like those that were seen.
    """
    return wrapping_masks(program.nodes, sizes) / program.parameters.plain_modulus


def truncation_facts(program: Program, intervals: dict[str, Interval], sizes: Sizes) -> dict[str, object]:
    """How wrong or how revealing truncation on shares can be, for an image, as plain data."""
    if program.masks == "bounded":
        hidden = f"statistical, 2^-{hiding_bits(program, intervals):.1f} an image"
        return {"masks": "bounded", "hiding": hidden, "failure_per_image_log2": None}
    failure = math.log2(max(wrap_probability(program, sizes), 2.0**-200))
    return {"masks": "uniform", "hiding": "perfect", "failure_per_image_log2": failure}


def wrapping_masks(nodes: Iterable[Node], sizes: Sizes) -> float:
    """Sum of |y| + 1 over all truncated values: uniform masks that wrap, of t for each value."""
    truncated = (node.inputs[0] for node in nodes if isinstance(node.operation, Truncate))
    return sum(float((sizes[name] + 1).sum(dtype=np.float64)) for name in truncated)


def hiding_bits(program: Program, intervals: dict[str, Interval]) -> float:
    """-log2 of the statistical distance from perfect hiding over all truncated values, masks bounded."""
    return distance_bits(truncated_bounds(program.nodes, intervals), program.parameters.plain_modulus)


def truncated_bounds(nodes: Iterable[Node], intervals: Mapping[str, Interval]) -> tuple[tuple[int, int], ...]:
    """(number of values, their bound) of each truncation."""
    return tuple(
        (math.prod(node.shape), largest(intervals[node.inputs[0]]))
        for node in nodes
        if isinstance(node.operation, Truncate)
    )


def distance_bits(truncated: Iterable[tuple[int, int]], t: int) -> float:
    """-log2 of the distance for :func:`truncated_bounds`; -inf if t has no room for a mask.

    Each truncated value with |y| < B costs 2 B / (t - 2 B).
    """
    distance = 0.0
    for count, bound in truncated:
        if t <= 2 * bound:
            return -math.inf
        distance += count * 2 * bound / (t - 2 * bound)
    return math.inf if distance == 0 else -math.log2(distance)


def _propagate(node: Node, arguments: list[Interval], weights: Weights | None) -> Interval:
    match node.operation:
        case Input(low, high):
            return np.full(node.shape, low, dtype=np.int64), np.full(node.shape, high, dtype=np.int64)
        case Linear() | Product() | Tokens():
            assert weights is not None
            low, high = _propagate_weights(node.operation, arguments, weights)
            return low + spread(weights.bias), high + spread(weights.bias)
        case Truncate(bits):
            low, high = arguments[0]
            return low >> bits, -(-high >> bits)
        case Square():
            low, high = arguments[0]
            ends = low * low, high * high
            crosses_zero = (low < 0) & (high > 0)
            return np.where(crosses_zero, 0, np.minimum(*ends)), np.maximum(*ends)
        case ClientAided(function, log_step, bits):
            return nonpolynomial.ends(function, *arguments[0], log_step, log_step + bits)
        case _:
            return _local(node.operation, [a[0] for a in arguments]), _local(node.operation, [a[1] for a in arguments])


def _propagate_weights(operation: Linear | Product | Tokens, arguments: list[Interval], weights: Weights) -> Interval:
    """Before the bias."""
    low, high = arguments[0]
    match operation:
        case Linear(layer):
            dense, shape = expand_rows(weights.rows, layer.block_size), layer.shape
            positive, negative = np.maximum(dense, 0), np.minimum(dense, 0)
            lower = convolve(low, positive, shape) + convolve(high, negative, shape)
            return lower, convolve(high, positive, shape) + convolve(low, negative, shape)
        case Product():
            return _product(operation, arguments[0], arguments[1])
        case Tokens():
            return rearrange(operation, low), rearrange(operation, high)


def _product(product: Product, left: Interval, right: Interval) -> Interval:
    """Each term's range is that of the four products of ends; terms are added one after the other."""
    shape, groups = product.left.shape.output_shape, product.groups
    # A left end has the shape (groups, 1, k, A), a right one (groups, B, k, 1).
    ones = [end.reshape(groups, 1, -1, end.shape[1]) for end in left]
    others = [end.reshape(groups, -1, end.shape[1], 1).swapaxes(1, 2) for end in right]
    low, high = (np.zeros((groups, shape[0] // groups, shape[1]), dtype=np.int64) for _ in range(2))
    for term in range(ones[0].shape[2]):
        ends = [one[:, :, term] * other[:, :, term] for one in ones for other in others]
        low, high = low + np.minimum.reduce(ends), high + np.maximum.reduce(ends)
    return low.reshape(shape), high.reshape(shape)


def _local(operation: Operation, arguments: list[np.ndarray]) -> np.ndarray:
    """Operations that are increasing: they map ends to ends."""
    match operation:
        case Add():
            return arguments[0] + arguments[1]
        case SumPool(kernel):
            return sum_pool(arguments[0], kernel)
        case Input() | Linear() | Truncate() | Square() | Product() | ClientAided():
            raise AssertionError(operation)
        case _:
            return rearrange(operation, arguments[0])


def _check_growth(node: Node, arguments: list[Interval], weights: Weights | None) -> None:
    """Raise before int64 arithmetic could overflow."""
    if not arguments:
        return
    before = max(largest(interval) for interval in arguments)
    match node.operation:
        case Linear():
            assert weights is not None
            norms = np.abs(weights.rows).sum(axis=(1, 2, 3), dtype=np.float64)
            after = before * float(norms.max()) + float(np.abs(weights.bias).max(initial=0))
        case Square():
            after = float(before) ** 2
        case SumPool(kernel):
            after = float(before) * kernel**2
        case Product(layer):
            assert weights is not None
            sizes = [float(largest(interval)) for interval in arguments]
            terms = layer.shape.in_channels // layer.shape.groups
            after = terms * sizes[0] * sizes[1] + float(np.abs(weights.bias).max(initial=0))
        case Tokens():
            assert weights is not None
            after = before + float(np.abs(weights.bias).max(initial=0))
        case Add():
            after = 2.0 * before
        case _:
            after = float(before)
    _check_bits(node, after, "proved")


def _check_bits(node: Node, value: float, how: str) -> None:
    if value >= 2.0**MAX_BOUND_BITS:
        proved = "use fewer bits or fewer squares in a row; he.bounds=measured takes the ranges seen on images"
        measured = "use fewer bits, or train with recipe.tails; he.margin_bits=0 leaves no room beyond what was seen"
        raise DoesNotFit(
            f"every value must stay under 2^{MAX_BOUND_BITS}, {how}",
            got=f"{node.name} may reach 2^{math.log2(value):.1f}",
            remedy=proved if how == "proved" else measured,
        )
