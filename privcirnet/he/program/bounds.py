"""Proofs of bounds on every intermediate value of a program, by interval arithmetic on the integer weights.

Each value of each node gets its own interval, position by position. A linear layer maps [low, high] to
[W+ low + W- high, W+ high + W- low] + bias, with W+ and W- the positive and negative parts. A square maps it to its
exact range, a product of two values to the sum of its terms' exact ranges, and a truncation to the range of its two
possible results, because the protocol rounds up or down at random (docs/mathematics.md, "Truncation"). Every input
image in the declared range obeys these bounds; nothing is estimated from data.

Squares in a row defeat this: each doubles the bits by which a bound exceeds what really occurs, so that beyond four or
five of them no modulus carries it. Then :func:`measured` takes the ranges seen on images, with a margin. That is no
proof: an image whose values go beyond is answered wrongly. Secrecy does not depend on it as long as masks are uniform.

Truncation on shares fails by chance (docs/mathematics.md, "Truncation"). A value y is truncated on its two shares,
whose masks are uniform, which hides y perfectly. The result is wrong only if the shares wrap around t, with probability
at most (|y| + 1) / t. These add up over all truncated values of an image (:func:`wrap_probability`).
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.layers.integer import Values, convolve, dense_weight, sum_pool
from privcirnet.he.layers.layer import Layer
from privcirnet.he.program.arithmetic import MatMul, Scale, Truncate
from privcirnet.he.program.exact import exact_steps
from privcirnet.he.program.operation import BoundedFunction, Domain, Interval, Node, Weights, spread
from privcirnet.he.program.program import Network, Program

Reals = npt.NDArray[np.floating[Any]]
Magnitudes = Mapping[str, Values | Reals]
"""Sizes |y| of each node's values, at most or in the mean."""

MAX_BOUND_BITS = 59
"""Bounds over this are refused: no plain modulus of 60 bits carries them."""


def prove(network: Network | Program) -> dict[str, Interval]:
    """Return intervals that hold for every image in the declared range.

    Returns:
        for each node by name (low, high), int64 of the node's shape.

    Raises:
        DoesNotFit: a bound is over 2^:data:`MAX_BOUND_BITS`.
    """
    return Intervals().values(network.nodes, network.weights)


def completed(network: Network, bounds: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return intervals of all nodes: the known ones, and those that follow from them, all proved.

    Raises:
        DoesNotFit: a bound is over 2^:data:`MAX_BOUND_BITS`.
    """
    domain, intervals = Intervals(), dict[str, Interval]()
    for node in network.nodes:
        inputs = [intervals[name] for name in node.inputs]
        intervals[node.name] = (
            bounds[node.name] if node.name in bounds else domain.visit(node, inputs, network.weights.get(node.name))
        )
    return intervals


@dataclass(frozen=True)
class ObservedRange:
    """The real values of one node on images, each (C, H, W) or flat.

    Attributes:
        low: the least.
    """

    low: Reals
    high: Reals
    size: Reals


def measured(nodes: Iterable[Node], observed: Mapping[str, ObservedRange], margin_bits: int) -> dict[str, Interval]:
    """Return intervals from ranges observed on images: (low, high) by node name, int64 of the node's shape.

    Args:
        margin_bits: values of other images may exceed these 2^margin_bits times.

    Raises:
        DoesNotFit: an interval is over 2^:data:`MAX_BOUND_BITS`.
    """
    intervals: dict[str, Interval] = {}
    for node in nodes:
        ends = _seen(node, observed).low, _seen(node, observed).high
        low, high = (np.asarray(end, dtype=np.float64).reshape(node.shape) for end in ends)
        scale = 2.0 ** (margin_bits - node.log_step)
        low, high = np.floor(np.minimum(low, 0) * scale) - 1, np.ceil(np.maximum(high, 0) * scale) + 1
        _check_bits(node, max(-low.min(), high.max()), "seen on images")
        intervals[node.name] = low.astype(np.int64), high.astype(np.int64)
    return intervals


def largest_sizes(intervals: Mapping[str, Interval]) -> dict[str, Values]:
    """Return the largest |y| of every value of every node."""
    return {name: np.maximum(np.abs(low), np.abs(high)) for name, (low, high) in intervals.items()}


def mean_sizes(nodes: Iterable[Node], observed: Mapping[str, ObservedRange]) -> dict[str, Reals]:
    """Return the mean |y| of every value of every node, on the images that were seen.

    Args:
        observed: real values by node name; the result is in units of the node's step.
    """
    return {node.name: _seen(node, observed).size.reshape(node.shape) * 2.0**-node.log_step for node in nodes}


def real_name(node: Node) -> str:
    """Return the name under which a network has a node's real values: there a power of two is no node."""
    return node.inputs[0] if isinstance(node.operation, Scale) else node.name


def _seen(node: Node, observed: Mapping[str, ObservedRange]) -> ObservedRange:
    return observed[real_name(node)]


def largest(interval: Interval) -> int:
    """Return the largest absolute value of an interval; ``interval``: (low, high) of one node."""
    low, high = interval
    return max(abs(int(low.min())), abs(int(high.max())))


def value_bits(interval: Interval) -> int:
    """Return the least k with |value| < 2^k; ``interval``: (low, high) of one node."""
    return largest(interval).bit_length()


def check_modulus(program: Program, intervals: dict[str, Interval]) -> None:
    """Raise unless every value stays under t / 2."""
    t = program.parameters.plain_modulus
    for name, interval in intervals.items():
        if 2 * largest(interval) >= t:
            raise RuleError(
                "every value must stay under t / 2",
                got=f"{name} reaches 2^{math.log2(largest(interval)):.1f}, t has {t.bit_length()} bits",
                remedy="use a larger plain modulus or fewer bits for weights and activations",
            )


class Intervals(Domain[Interval]):
    """Bounds on every value, (low, high) of the node's shape; refused before int64 arithmetic could overflow."""

    name, remedy = "a program with proved bounds", "define what the operation does with intervals"

    def image(self, low: int, high: int) -> Interval:
        shape = self.node.shape if self.node else ()
        return np.full(shape, low, dtype=np.int64), np.full(shape, high, dtype=np.int64)

    def move(self, places: Callable[..., np.ndarray], *values: Interval) -> Interval:
        return places(*(low for low, _ in values)), places(*(high for _, high in values))

    def add(self, x: Interval, y: Interval) -> Interval:
        self._check(2.0 * max(largest(x), largest(y)))
        return x[0] + y[0], x[1] + y[1]

    def times(self, x: Interval, factor: int) -> Interval:
        self._check(abs(float(factor)) * largest(x))
        low, high = x if factor >= 0 else x[::-1]
        return low * factor, high * factor

    def pool(self, x: Interval, window: tuple[int, int]) -> Interval:
        self._check(float(largest(x)) * math.prod(window))
        return sum_pool(x[0], window), sum_pool(x[1], window)

    def plus(self, x: Interval, constants: np.ndarray) -> Interval:
        self._check(largest(x) + _most(constants))
        return x[0] + constants, x[1] + constants

    def truncate(self, x: Interval, bits: int) -> Interval:
        """Return the protocol rounds up or down."""
        return x[0] >> bits, -(-x[1] >> bits)

    def within(self, x: Interval, low: int, high: int) -> Interval:
        return x[0].clip(low, high), x[1].clip(low, high)

    def linear(self, layer: Layer, x: Interval, weights: Weights) -> Interval:
        norms = np.abs(weights.rows).sum(axis=(1, 2, 3), dtype=np.float64)
        self._check(largest(x) * float(norms.max()) + _most(weights.bias))
        (low, high), shape = x, layer.shape
        dense = dense_weight(weights.rows, shape, layer.block_size)
        positive, negative, bias = np.maximum(dense, 0), np.minimum(dense, 0), spread(weights.bias)
        lower = convolve(low, positive, shape) + convolve(high, negative, shape)
        return lower + bias, convolve(high, positive, shape) + convolve(low, negative, shape) + bias

    def square(self, x: Interval) -> Interval:
        self._check(float(largest(x)) ** 2)
        low, high = x
        ends = low * low, high * high
        return np.where((low < 0) & (high > 0), 0, np.minimum(*ends)), np.maximum(*ends)

    def product(self, operation: MatMul, x: Interval, y: Interval, weights: Weights) -> Interval:
        shape = operation.left.shape
        terms = shape.in_channels // shape.groups
        self._check(terms * float(largest(x)) * float(largest(y)) + _most(weights.bias))
        (low, high), bias = _product(operation, x, y), spread(weights.bias)
        return low + bias, high + bias

    def function(self, operation: BoundedFunction, x: Interval) -> Interval:
        return operation.interval(*x)

    def _check(self, after: float) -> None:
        """Raise if what comes next could overflow."""
        if self.node is not None:
            _check_bits(self.node, after, "proved")


def _most(constants: np.ndarray) -> float:
    return float(np.abs(constants).max(initial=0))


def _product(product: MatMul, left: Interval, right: Interval) -> Interval:
    """Return the sum of the terms' ranges; each is that of the four products of ends."""
    shape, groups = product.left.shape.output_shape, product.groups
    # A left end has the shape (groups, 1, k, A), a right one (groups, B, k, 1).
    left_ends = [end.reshape(groups, 1, -1, end.shape[1]) for end in left]
    right_ends = [end.reshape(groups, -1, end.shape[1], 1).swapaxes(1, 2) for end in right]
    low, high = (np.zeros((groups, shape[0] // groups, shape[1]), dtype=np.int64) for _ in range(2))
    for term in range(left_ends[0].shape[2]):
        ends = [x[:, :, term] * y[:, :, term] for x in left_ends for y in right_ends]
        low, high = low + np.minimum.reduce(ends), high + np.maximum.reduce(ends)
    return low.reshape(shape), high.reshape(shape)


def _check_bits(node: Node, value: float, how: str) -> None:
    if value >= 2.0**MAX_BOUND_BITS:
        proved = "use fewer bits or fewer squares in a row; he.bounds=measured takes the ranges seen on images"
        measured = (
            "use fewer bits, or train with recipe.outlier_penalty; he.margin_bits=0 leaves no room beyond what was seen"
        )
        raise DoesNotFit(
            f"every value must stay under 2^{MAX_BOUND_BITS}, {how}",
            got=f"{node.name} may reach 2^{math.log2(value):.1f}",
            remedy=proved if how == "proved" else measured,
        )


def wrap_probability(program: Program, sizes: Magnitudes) -> float:
    """Return a bound on the probability that an image's inference has a wrong truncation.

    Args:
        sizes: sizes of its values by node. The largest ones make the bound hold for every image, mean ones for the
            mean over images like those that were seen.
    """
    return wrapping_masks(program.nodes, sizes) / program.parameters.plain_modulus


def truncation_facts(program: Program, sizes: Magnitudes) -> dict[str, float]:
    """Return the probability that truncation on shares is wrong for an image, as plain data; {} for exact truncation.

    Args:
        sizes: sizes of its values by node.

    Returns:
        "failure_per_image_log2"; "unnoticed_per_image_log2": about how likely an image fails and its result passes
        for a right one.
    """
    if exact_steps(program.nodes):
        return {}
    failure = math.log2(max(wrap_probability(program, sizes), 2.0**-200))
    return {"failure_per_image_log2": failure, "unnoticed_per_image_log2": failure - _spare_bits(program)}


def _spare_bits(program: Program) -> int:
    """Return the bits of t beyond those of right results and their sign; a wrong result's are anything."""
    return program.parameters.plain_bits - program.output_bits - 1 if program.output_bits else 0


def wrapping_masks(nodes: Iterable[Node], sizes: Magnitudes) -> float:
    """Return the number of masks that wrap, out of t for each value, added over all truncated values.

    Returns:
        the sum of |y| + 1.
    """
    truncated = (node.inputs[0] for node in nodes if isinstance(node.operation, Truncate))
    return sum(float((sizes[name] + 1).sum(dtype=np.float64)) for name in truncated)
