"""The circuits of exact steps: digits of the doubled shares, merges of their results, and the top with the signs.

A number is read from its low part, whose carry is a result, and the bits above it, of which the highest is the sign.
The sign of a ReLU is the carry into that bit and the shares' own highest bits. A clip looks both signs up: its last two
digits end with the threshold and with the sign.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, product

from privcirnet.he.mpc.carries import DigitTable, Factors, Lift, Merge, bits_of_sums, carry, propagates
from privcirnet.he.program.exact import MOST_BEYOND, MOST_DIGIT, MOST_RANGE

Sum = tuple[Factors, ...]
"""Products that are added."""

_LEAST_DIGIT, _MOST_LIFTED = 3, 6
"""Bits of a digit, and of one whose results are lifted."""
_MERGED = 3
"""Digits that a merge takes beyond the low part: with one more its transfers double."""
_TRANSFER_BITS = 16
"""Bits of messages and tables that take as long as a transfer, about."""
_LIFTED_TRANSFERS = 3
"""Transfers that take as long as one of a number, which is kept until there is an image."""


@dataclass(frozen=True)
class Circuit:
    """The digits of an exact ReLU and the use of their results, which are numbered through all digits.

    Attributes:
        digits: digits, low before high.
        merges: merges of digits' results, whose results are numbered through all merges; first the low part's carry.
        top: merge of these to the signs.
    """

    digits: tuple[DigitTable, ...]
    merges: tuple[Merge, ...]
    top: Merge

    @cached_property
    def price(self) -> int:
        """Transfers, tables and messages of a value, in bits."""
        merges = [*self.merges, self.top]
        transfers = sum(digit.bits for digit in self.digits) + sum(len(merge.choices) for merge in merges)
        planes = sum(merge.flip_planes + merge.help_planes + merge.online_planes for merge in merges)
        return _TRANSFER_BITS * transfers + planes + sum(d.ahead_planes + d.online_planes for d in self.digits)


@lru_cache(maxsize=1024)
def cheapest_circuit(low: int, high: int, threshold: int = 0) -> Circuit:
    """Return the circuit with the least transfers and bytes.

    Args:
        low: bits of the low part; 0: there is none.
        high: bits above it, with the sign.
        threshold: number of the high part from which values are clipped; 0: they are not.
    """
    options = _clips(low, high, threshold) if threshold else _carries(low, high)
    return min(options, key=lambda circuit: circuit.price)


@dataclass(frozen=True)
class LiftedCarry:
    """The digits of a number, low before high, and the carry out of them as a number."""

    digits: tuple[DigitTable, ...]
    lift: Lift

    def price(self, width: int) -> int:
        """Return its transfers, tables and messages of a value, in bits; ``width``: bits of a number's shares."""
        tables = sum(_TRANSFER_BITS * d.bits + d.ahead_planes + d.online_planes for d in self.digits)
        return tables + (_LIFTED_TRANSFERS * _TRANSFER_BITS + width + 1) * len(self.lift.choices)


@lru_cache(maxsize=1024)
def cheapest_carry(bits: int, width: int) -> LiftedCarry:
    """Return the carry out of so many bits with the least transfers and bytes, in shares of ``width`` bits."""
    options = [_digits_of(sizes) for sizes in _widths(bits, _MOST_LIFTED)]
    lifted = (LiftedCarry(tuple(digits), Lift(_carry(carries, range(len(digits))))) for digits, carries in options)
    return min(lifted, key=lambda circuit: circuit.price(width))


def _carries(low: int, high: int) -> Iterator[Circuit]:
    for lows, highs in product(_widths(low), _widths(high - 1)):
        for merged in _merged_counts(lows, highs):
            digits, merges, into = _chained(lows, highs, merged)
            yield Circuit(tuple(digits), tuple(merges), Merge((into,)))


def _clips(low: int, high: int, threshold: int) -> Iterator[Circuit]:
    shift = (threshold & -threshold).bit_length() - 1
    size, last = (threshold - 1).bit_length() - shift, high - (threshold - 1).bit_length()
    if last > MOST_BEYOND or size > MOST_RANGE:
        raise ValueError(f"no clip at {threshold} takes {high} bits")
    for below in range(min(shift, MOST_RANGE - size) + 1):
        for lows, middles in product(_widths(low), _widths(shift - below)):
            for merged in _merged_counts(lows, middles):
                digits, merges, into = _chained(lows, middles, merged)
                tables, more, sums = _ranges(
                    threshold >> shift - below, size + below, last, _count(digits), _count(merges)
                )
                positive, change, within, changed = sums
                inside = within + tuple(s | carried for s in changed for carried in into)
                above = inside + positive + tuple(s | carried for s in change for carried in into)
                yield Circuit((*digits, *tables), (*merges, *more), Merge((inside, above)))


def _widths(bits: int, most: int = MOST_DIGIT) -> Iterator[tuple[int, ...]]:
    """Yield ways to cut bits into digits of like size, the larger ones first."""
    for count in range(-(-bits // most), -(-bits // _LEAST_DIGIT) + 1):
        yield tuple(bits // count + (i < bits % count) for i in range(count))


def _merged_counts(low: Sequence[int], high: Sequence[int]) -> range:
    """Return how many high digits the first merge may take."""
    return range(0 if low else min(1, len(high)), max(0, min(len(high), _MERGED + 1 - len(low))) + 1)


def _chained(low: Sequence[int], high: Sequence[int], merged: int) -> tuple[list[DigitTable], list[Merge], Sum]:
    """Return digits of these widths, merges of their carries, and the carry out of them all, of the merges' results.

    Args:
        merged: digits of the high part that the first merge takes.
    """
    digits, carries = _digits_of([*low, *high])
    first, count = len(low) + merged, len(digits)
    ends = [end for end in dict.fromkeys((len(low), first)) if end]
    merges = [Merge(tuple(_carry(carries, range(end)) for end in ends))] if ends else []
    parts = [range(start, min(start + _MERGED, count)) for start in range(first, count, _MERGED)]
    merges += [Merge((_carry(carries, part), (frozenset(carries[i] + 1 for i in part),))) for part in parts]
    results = [merges[0].outputs - 1, *range(merges[0].outputs, _count(merges), 2)] if merges else []
    return digits, merges, _carry(results, range(len(results)))


def _digits_of(widths: Sequence[int]) -> tuple[list[DigitTable], list[int]]:
    """Return digits of these widths with their carries and how these propagate, and the numbers of the carries."""
    digits = [DigitTable(n, (carry(n), propagates(n))[: 1 + (i > 0)]) for i, n in enumerate(widths)]
    return digits, [0, *accumulate(digit.outputs for digit in digits)]


def _carry(carries: Sequence[int], digits: range) -> Sum:
    """Return the carry out of some digits; ``carries``: numbers of their carries, each before its propagation."""
    return tuple(frozenset({carries[i], *(carries[j] + 1 for j in digits if j > i)}) for i in digits)


Ranges = tuple[Sum, Sum, Sum, Sum]
"""Of a number: not negative, how a carry into it changes that, not negative and under a threshold, and its change."""


def _ranges(
    threshold: int, bits: int, last: int, digit: int, result: int
) -> tuple[list[DigitTable], list[Merge], Ranges]:
    """Return the last digits of a clip, their merges, and the ranges as sums of the merges' results.

    Args:
        threshold: threshold of the digit before the last.
        bits: bits of that digit; 0: there is none.
        last: bits beyond it, of one digit or of two.
        digit: number of their first result.
        result: number of their merges' first result.
    """
    middle = max(0, last - MOST_DIGIT)
    tables = [_within(threshold, bits), *([_within(1, middle)] if middle else []), _sign(last - middle)]
    starts = [digit, *(digit + _count(tables[:i]) for i in range(1, len(tables)))]
    sums = _times(tables[-2], threshold if not middle else 1, starts[-2], _four(starts[-1]))
    merges, ranges = [Merge(sums)], _four(result)
    if middle:
        if tables[0].outputs:
            merges.insert(0, Merge(tuple((frozenset({digit + i}),) for i in range(tables[0].outputs))))
        ranges = _times(tables[0], threshold, result, _four(result + tables[0].outputs))
    return [table for table in tables if table.bits], merges, ranges


def _four(first: int) -> Ranges:
    """Return four results as ranges."""
    positive, change, within, changed = ((frozenset({first + i}),) for i in range(4))
    return positive, change, within, changed


def _sign(bits: int) -> DigitTable:
    """Return the table of the last digit: not negative, and zero, each with its change by a carry."""
    size = 1 << bits
    positive, zero = _with_carry(bits, lambda s: s % size < size // 2), _with_carry(bits, lambda s: s % size == 0)
    return DigitTable(bits, (*positive, *zero))


def _within(threshold: int, bits: int) -> DigitTable:
    """Return the table of a digit with a threshold: the functions that :func:`_times` multiplies by."""
    everything, table = (1 << (2 << bits) - 1) - 1, list[int]()
    for function in _factors(threshold, bits):
        if not {function, function ^ everything} & {0, *table}:
            table.append(function)
    return DigitTable(bits, tuple(table))


def _factors(threshold: int, bits: int) -> list[int]:
    """Return of a digit: its carry, under the threshold, and both at once, each followed by its change."""
    size = 1 << bits
    carried, under = _with_carry(bits, lambda s: s >= size), _with_carry(bits, lambda s: s % size < threshold)
    return [*carried, *under, *_with_carry(bits, lambda s: s >= size and s % size < threshold)]


def _times(table: DigitTable, threshold: int, first: int, ranges: Ranges) -> Ranges:
    """Return the ranges of a digit and the number above it.

    Args:
        table: result of :func:`_within`.
        threshold: its threshold.
        first: number of its first result.
        ranges: ranges of the number above.
    """
    everything = (1 << (2 << table.bits) - 1) - 1

    def product(sum_: Sum, function: int) -> Sum:
        negated = function not in (0, *table.functions)
        place = function ^ everything if negated else function
        more = tuple(s | {first + table.functions.index(place)} for s in sum_) if place else ()
        return sum_ * negated + more

    positive, change, zero, zero_change = ranges
    carried, carry_change, *under = _factors(threshold, table.bits)
    within, changed = (product(zero, under[i]) + product(zero_change, under[i + 2]) for i in (0, 1))
    return positive + product(change, carried), product(change, carry_change), within, changed


def _count(parts: Sequence[DigitTable | Merge]) -> int:
    """Return the number of results."""
    return sum(part.outputs for part in parts)


def _with_carry(bits: int, function: Callable[[int], bool]) -> tuple[int, int]:
    """Return a function of the sum of two digits, and how a carry into them changes it."""
    without, carried = (bits_of_sums(bits, lambda s, i=i: function(s + i)) for i in (0, 1))
    return without, without ^ carried
