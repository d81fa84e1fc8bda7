"""Steps that are exact on shares, by two-party computation (:mod:`mpc.floor`); they cost messages, ahead and online."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from privcirnet.he.program.bounds import Interval, largest
from privcirnet.he.program.local import MAX_SHIFT, Truncate
from privcirnet.he.program.operation import C_co, Domain, Node, Operation, Prices, Shape, V, Weights

_ONLINE_BYTES = (3, 2, 1, 4)
"""Of a value, message by message, about."""


@dataclass(frozen=True)
class ExactTruncate(Operation):
    """Division by 2^bits, rounded to the nearest integer, ties up, for every value and mask.

    Attributes:
        bits: how many, 1 to 59.
        bound: of |x| and what rounding adds, a multiple of 2^bits.
    """

    local = False
    masks = True
    needs_share = True

    bits: int
    bound: int

    @classmethod
    def kind(cls) -> str:
        return "exact_truncate"

    @property
    def least_modulus(self) -> int:
        """The plain modulus must be greater."""
        return 8 * self.bound

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.truncate(arguments[0], self.bits)

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        fits = 1 <= self.bits < MAX_SHIFT and self.bound > 0 and self.bound % (1 << self.bits) == 0
        return "" if fits else f"an exact truncation by {self.bits} bits of values under {self.bound}"

    def unfit(self, t: int) -> str:
        """Return why a plain modulus does not carry it, "" if it does."""
        if t % (2 << self.bits) != 1:
            return f"a plain modulus that is not 1 mod 2^{self.bits + 1}"
        return "" if t > self.least_modulus else f"a plain modulus of {t} where {self.least_modulus} is exceeded"

    def cost(self, prices: Prices[C_co], shape: Shape) -> C_co:
        return prices.messages(*(size * prod(shape) for size in _ONLINE_BYTES))


def exact(nodes: Iterable[Node], intervals: Mapping[str, Interval]) -> tuple[Node, ...]:
    """Return nodes whose truncations are exact.

    Args:
        intervals: of each node's values.
    """
    return tuple(
        replace(node, operation=_exact(node.operation.bits, largest(intervals[node.inputs[0]])))
        if isinstance(node.operation, Truncate)
        else node
        for node in nodes
    )


def exact_steps(nodes: Iterable[Node]) -> list[ExactTruncate]:
    """Return the exact truncations of a program's nodes."""
    return [node.operation for node in nodes if isinstance(node.operation, ExactTruncate)]


def _exact(bits: int, most: int) -> ExactTruncate:
    half, unit = 1 << bits - 1, 1 << bits
    return ExactTruncate(bits, -(-(most + half) // unit) * unit)
