"""Requirements of a program on the plain modulus t, for any n and q.

Every value must stay under t / 2, and truncation must fail rarely enough. Both ask for a large t. Source:
docs/mathematics.md, "Truncation" and "What is always checked".
"""

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from privcirnet.he.program import bounds, truncation
from privcirnet.he.program.exact import exact_steps
from privcirnet.he.program.operation import Node


@dataclass(frozen=True)
class Requirements:
    """Requirements of a program on t, for any n and q.

    Attributes:
        wrapping: :func:`truncation.wrapping_masks`.
        failure_bits: an image has a wrong truncation with probability at most 2^-failure_bits.
        exact: number that t must be greater than for exact steps.
        multiple: number that t - 1 must be a multiple of for them.
    """

    node: str
    largest: int
    wrapping: float
    failure_bits: float
    exact: int = 0
    multiple: int = 1

    @property
    def value_bits(self) -> int:
        """Least bits of t for every value to stay under t / 2, or t / 8 where a step is exact."""
        return max(2 * self.largest + 1, self.exact + 1).bit_length()

    @property
    def truncation_bits(self) -> int:
        """Least bits of t for truncation to fail rarely enough; may be more than any t has."""
        return next(bits for bits in itertools.count(1) if self.reached((1 << bits) - 1) >= self.failure_bits)

    @property
    def plain_bits(self) -> int:
        """Least bits of t for both."""
        return max(self.value_bits, self.truncation_bits)

    @property
    def needed_by(self) -> str:
        """The requirement with the larger t."""
        if self.value_bits >= self.truncation_bits:
            return f"value bound of {self.node}"
        return "truncation failure"

    def reached(self, t: int) -> float:
        """Return -log2 of an image's failure probability."""
        return math.log2(t) - math.log2(self.wrapping) if self.wrapping else math.inf

    def satisfied(self, t: int) -> bool:
        """Return whether t is large enough."""
        return max(2 * self.largest, self.exact) < t and self.reached(t) >= self.failure_bits


def requirements(
    nodes: Iterable[Node],
    intervals: Mapping[str, bounds.Interval],
    sizes: bounds.Magnitudes,
    failure_bits: float,
) -> Requirements:
    """Return the requirements of a program on t, from the bounds and sizes of its values."""
    nodes = tuple(nodes)
    node, largest = max(((n, bounds.largest(i)) for n, i in intervals.items()), key=lambda pair: pair[1])
    steps = exact_steps(nodes)
    exact = max((step.least_modulus for step in steps), default=0), max((2 << step.bits for step in steps), default=1)
    return Requirements(node, largest, truncation.wrapping_masks(nodes, sizes), failure_bits, *exact)
