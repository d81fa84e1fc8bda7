"""Failures of truncation on shares, in an image (docs/mathematics.md, "Truncation").

A value y is truncated on its two shares. Their masks are uniform, which hides y perfectly. The result is wrong only if
the shares wrap around t, with probability at most (|y| + 1) / t. These add up over all truncated values of an image.
"""

import math
from collections.abc import Iterable

import numpy as np

from privcirnet.he.program.bounds import Magnitudes
from privcirnet.he.program.exact import exact_steps
from privcirnet.he.program.local import Truncate
from privcirnet.he.program.operation import Node
from privcirnet.he.program.program import Program


def wrap_probability(program: Program, sizes: Magnitudes) -> float:
    """Return a bound on the probability that an image's inference has a wrong truncation.

    Args:
        sizes: sizes of its values by node. The largest ones make the bound hold for every image, mean ones for the
            mean over images like those that were seen.
    """
    return wrapping_masks(program.nodes, sizes) / program.parameters.plain_modulus


def truncation_facts(program: Program, sizes: Magnitudes) -> dict[str, object]:
    """Return the probability that truncation on shares is wrong for an image, as plain data.

    Args:
        sizes: sizes of its values by node.

    Returns:
        "failure_per_image_log2", which is None where no truncation can fail; "unnoticed_per_image_log2": about how
        likely an image fails and its result passes for a right one.
    """
    never = dict.fromkeys(("failure_per_image_log2", "unnoticed_per_image_log2"))
    if exact_steps(program.nodes):
        return {"exact": True, **never}
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
