"""Residues as a few signed digits whose sums of products with weights are exact in float64."""

from collections.abc import Callable
from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Integers

EXACT_BITS = 53
"""Integers of up to 2^53 in absolute value are exact in float64, in whatever order they are added."""


@dataclass(frozen=True)
class Split:
    """The split of a residue x, between -t/2 and t/2, into digits: x is the sum of x_l 2^(width l).

    All digits but the last are at most 2^(width - 1) in absolute value, and the last is by at most one more.

    Attributes:
        width: bits of all digits but the last.
    """

    t: int
    width: int
    count: int

    def power(self, digit: int) -> int:
        """Return the weight of a digit, mod t."""
        return pow(2, self.width * digit, self.t)

    def cut(self, rest: Integers, digit: int) -> tuple[Integers, Integers]:
        """Return a digit and the rest for those above it.

        Args:
            rest: rest of residues between -t/2 and t/2 after the digits below it.
        """
        half = 1 << (self.width - 1)
        low = rest if digit == self.count - 1 else ((rest + half) & (2 * half - 1)) - half
        return low, (rest - low) >> self.width


def split(t: int, weight_sum: int) -> Split:
    """Return the split into the fewest digits that is exact.

    >>> split((1 << 60) - 93, 127 * 512 * 9)
    Split(t=1152921504606846883, width=30, count=2)
    """
    fewest = _fewest(t, lambda digit, _: digit * weight_sum)
    if fewest is None:
        raise RuleError(
            "absolute weights of an output must add up to less than 2^51",
            got=f"{weight_sum.bit_length()} bits",
            remedy="quantize to fewer bits",
        )
    return fewest


def split_both(t: int, terms: int) -> Split:
    """Return the split into the fewest digits with which products of residues and residues are exact.

    Args:
        terms: products that make one sum. Those of all pairs of digits with the same power are added up too.

    >>> split_both((1 << 60) - 93, 64)
    Split(t=1152921504606846883, width=20, count=3)
    """
    fewest = _fewest(t, lambda digit, count: count * terms * digit**2)
    if fewest is None:
        raise ValueError("sums of so many products are exact with no number of digits")
    return fewest


def _fewest(t: int, largest: Callable[[int, int], int]) -> Split | None:
    """Return the fewest digits whose sums are exact: ``largest`` of (the largest digit, how many there are)."""
    bits = t.bit_length()
    for count in range(1, bits):
        width = -(-bits // count)
        if largest((1 << (width - 1)) + 1, count) <= 1 << EXACT_BITS:
            return Split(t, width, count)
    return None
