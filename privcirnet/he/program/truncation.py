"""How wrong, or how revealing, truncation on shares can be for an image (docs/mathematics.md, "Truncation").

A value y is truncated on its two shares. With *uniform* masks that hides y perfectly, and the result is wrong only if
the shares wrap around t, with probability at most (|y| + 1) / t. With *bounded* masks nothing ever wraps, and a value
with |y| < B costs a statistical distance of 2 B / (t - 2 B) from perfect hiding. Both add up over all truncated values
of an image.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from privcirnet.he.program.bounds import Interval, Sizes, largest
from privcirnet.he.program.exact import exact_steps
from privcirnet.he.program.local import Truncate
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program, masked_node


def wrap_probability(program: Program, sizes: Sizes) -> float:
    """Return a bound on the probability that an image's inference has a wrong truncation, masks uniform.

    Args:
        sizes: of its values by node. With the largest ones the bound holds for every image, with mean ones for the
            mean over images like those that were seen.
    """
    return wrapping_masks(program.nodes, sizes) / program.parameters.plain_modulus


def truncation_facts(program: Program, intervals: dict[str, Interval], sizes: Sizes) -> dict[str, object]:
    """Return how wrong or how revealing truncation on shares can be, for an image, as plain data.

    Args:
        intervals: of its nodes by name, for bounded masks.
        sizes: of its values by node, for uniform masks.

    Returns:
        "masks", "hiding" in words, and "failure_per_image_log2", which is None where no truncation can fail;
        "unnoticed_per_image_log2": about how likely an image fails and its result passes for a right one.
    """
    never = dict.fromkeys(("failure_per_image_log2", "unnoticed_per_image_log2"))
    if exact_steps(program.nodes):
        return {"masks": "uniform", "hiding": "perfect", "exact": True, **never}
    if program.masks == "bounded":
        hidden = f"statistical, 2^-{hiding_bits(program, intervals):.1f} an image"
        return {"masks": "bounded", "hiding": hidden, **never}
    failure = math.log2(max(wrap_probability(program, sizes), 2.0**-200))
    facts = {"failure_per_image_log2": failure, "unnoticed_per_image_log2": failure - _spare_bits(program)}
    return {"masks": "uniform", "hiding": "perfect", **facts}


def _spare_bits(program: Program) -> int:
    """Bits of t beyond those of right results and their sign; of a wrong result they are anything."""
    return program.parameters.plain_bits - program.output_bits - 1 if program.output_bits else 0


def wrapping_masks(nodes: Iterable[Node], sizes: Sizes) -> float:
    """Return the number of uniform masks that wrap, out of t for each value, added over all truncated values.

    Returns:
        the sum of |y| + 1.
    """
    truncated = (node.inputs[0] for node in nodes if isinstance(node.operation, Truncate))
    return sum(float((sizes[name] + 1).sum(dtype=np.float64)) for name in truncated)


def hiding_bits(program: Program, intervals: dict[str, Interval]) -> float:
    """Return -log2 of the statistical distance from perfect hiding over all truncated values, masks bounded."""
    return distance_bits(truncated_bounds(program.nodes, intervals), program.parameters.plain_modulus)


def truncated_bounds(nodes: Iterable[Node], intervals: Mapping[str, Interval]) -> tuple[tuple[int, int], ...]:
    """Return (number of values, bound B on them) of each truncation."""
    return tuple(
        (math.prod(node.shape), largest(intervals[node.inputs[0]]))
        for node in nodes
        if isinstance(node.operation, Truncate)
    )


def distance_bits(truncated: Iterable[tuple[int, int]], t: int) -> float:
    """Return -log2 of the statistical distance from perfect hiding, masks bounded.

    Args:
        truncated: see :func:`truncated_bounds`. Each value with |y| < B costs 2 B / (t - 2 B).
    """
    distance = 0.0
    for count, bound in truncated:
        if t <= 2 * bound:
            return -math.inf
        distance += count * 2 * bound / (t - 2 * bound)
    return math.inf if distance == 0 else -math.log2(distance)


def mask_bounds(program: Program, intervals: Mapping[str, Interval]) -> dict[str, int]:
    """Return the largest absolute value of every node whose values are truncated, or some of whose channels are."""
    known = {node.name: node for node in program.nodes}
    truncated = {node.inputs[0] for node in program.nodes if isinstance(node.operation, Truncate)}
    masked = {masked_node(known, name).name for name in truncated}
    return {name: largest(intervals[name]) for name in masked}
