"""Functions of few bits, exact on shares: an exact truncation to an index, then a look-up (:mod:`mpc.lookup`)."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, Self

import numpy as np

from privcirnet.errors import DoesNotFit
from privcirnet.he.layers.integer import Values, round_shift
from privcirnet.he.program.exact import MOST_BITS, ExactStep
from privcirnet.he.program.operation import Domain, Interval, Node, V, Weights
from privcirnet.he.program.scalar_functions import ends, function_named, real_values

LEAST_INDEX_BITS, MOST_INDEX_BITS = 4, 12
"""Bits of an index."""
MOST_UNCLIPPED_BITS = 9
"""Most bits of an index that is not clipped: bytes ahead double with each bit, and with 10 exceed those of clips."""
_LARGEST = 2.0**40
"""Bound that every entry is under."""


@dataclass(frozen=True, kw_only=True)
class ExactTable(ExactStep):
    """y = round(f(q 2^log_step_in) 2^-log_step_out), ties up, of q = round(x / 2^bits), clipped to [low, high].

    Attributes:
        bits: number of bits that go before, 0 or more.
        function: name of f (:func:`function_named`).
        log_step_in: log2 of the index's step, real value = q x 2^log_step_in.
        log_step_out: log2 of the result's step.
        low: least q that is told from others.
        high: the largest.
        digest: digest of the entries (:func:`digest_of`): both parties must find the same ones.
        index_bits: bits of the look-up's index; 0: not known yet.
        first: least number that is looked up.
        clips: ends at which q is clipped, as it may be more numbers than a table has entries: 1 below, 2 above, too.
    """

    kind: ClassVar[str] = "exact_table"

    title = "exact table"

    function: str
    log_step_in: int
    log_step_out: int
    low: int
    high: int
    digest: int
    index_bits: int = 0
    first: int = 0
    clips: int = 0

    @property
    def rectifies(self) -> bool:
        return self.clips > 0

    @property
    def top(self) -> int:
        return (1 << self.index_bits) - 1 if self.clips == 2 else 0

    @property
    def modulus(self) -> int:
        return 1 << self.index_bits

    @property
    def best_divisor(self) -> int:
        return max(super().best_divisor, self.modulus << self.bits + 1)

    @property
    def entries(self) -> Values:
        """The results of low to high."""
        return np.array(_entries(self.function, self.log_step_in, self.log_step_out, self.low, self.high))

    @property
    def table(self) -> tuple[int, ...]:
        """The results of all indices, from the first on."""
        places = np.arange(self.first, self.first + (1 << self.index_bits)).clip(self.low, self.high)
        return tuple(self.entries[places - self.low].tolist())

    def values(self, x: Values) -> Values:
        """Return its values."""
        return self.entries[self._index(x) - self.low]

    def interval(self, low: Values, high: Values) -> Interval:
        """Return the least and the largest value on [low, high], position by position."""
        return ends(self.function, self._index(low), self._index(high), self.log_step_in, self.log_step_out)

    def _index(self, x: Values) -> Values:
        return round_shift(x, self.bits).clip(self.low, self.high)

    def apply(self, on: Domain[V], arguments: Sequence[V], weights: Weights | None) -> V:
        return on.function(self, arguments[0])

    def bounded(self, low: int, high: int) -> Self:
        """Return it for values of this range, with the shortest index, or clipped."""
        first, last = (int(round_shift(np.array(end), self.bits)) for end in (low, high))
        first = first >> (start := max(0, (last - first).bit_length() - 3)) << start  # three bits of it are public
        bits = (last - first).bit_length()
        if bits > MOST_UNCLIPPED_BITS:
            bits, first = (self.high - self.low).bit_length(), self.low
            start = self.low << self.bits
            clips = 1 + (last - self.low >> max(LEAST_INDEX_BITS, bits) > 0)
            table = super(ExactTable, replace(self, clips=clips)).bounded(low - start, high - start)
        else:
            table = super().bounded(low, high)
        return replace(table, first=first, index_bits=max(LEAST_INDEX_BITS, bits))

    def problem(self, node: Node, sources: Sequence[Node]) -> str:
        steps = self.log_step_in == sources[0].log_step + self.bits and self.log_step_out == node.log_step
        fits = steps and 0 <= self.bits <= MOST_BITS and 0 <= self.clips <= 2 and self.bound_fits
        fits = fits and self.index_bits in (0, *range(LEAST_INDEX_BITS, MOST_INDEX_BITS + 1))
        if not fits or not 0 <= self.high - self.low < 1 << MOST_INDEX_BITS or not function_named(self.function):
            return f"an exact table of {self.function} at step 2^{self.log_step_in}, by {self.bits} bits"
        try:
            digest = digest_of(self.entries)
        except DoesNotFit as error:
            return str(error)
        return "" if digest == self.digest else f"an exact table whose entries of {self.function} differ from these"

    def unfit(self, t: int) -> str:
        """Return why a plain modulus does not carry it, "" if it does."""
        if not self.index_bits:
            return f"an {self.title} of values without a bound"
        spread = int(self.entries.max() - self.entries.min())
        return super().unfit(t) or (
            f"a plain modulus of {t} for entries that differ by {spread}" if spread >= t else ""
        )


def tabulated(function: str, bits: int, log_step: int, log_step_out: int, low: int, high: int) -> ExactTable:
    """Return a table of a function; arguments as of :class:`ExactTable`.

    Raises:
        DoesNotFit: the function has no value somewhere, or one that is too large.
    """
    digest = digest_of(np.array(_entries(function, log_step, log_step_out, low, high)))
    return ExactTable(
        bits, function=function, log_step_in=log_step, log_step_out=log_step_out, low=low, high=high, digest=digest
    )


def digest_of(entries: Values) -> int:
    """Return 60 bits of SHA-256: machines whose functions round otherwise must not look up in different tables."""
    return int.from_bytes(hashlib.sha256(entries.astype("<i8").tobytes()).digest()[:8], "little") >> 4


@lru_cache(maxsize=64)
def _entries(function: str, log_step: int, log_step_out: int, low: int, high: int) -> tuple[int, ...]:
    with np.errstate(all="ignore"):
        entries = np.floor(real_values(function, np.arange(low, high + 1), log_step, log_step_out) + 0.5)
    if not (abs(entries) < _LARGEST).all():
        rule, remedy = (
            "a table's entries must be under 2^40",
            "take a range where the function is small, or a coarser step",
        )
        raise DoesNotFit(rule, got=f"{function} of {low} to {high} steps of 2^{log_step}", remedy=remedy)
    return tuple(entries.astype(np.int64).tolist())
