"""Exact floor(x / 2^f), or ReLU or clip and floor, of values in shares mod t: comparisons in two round trips.

Let t = 1 mod 2^(f + 1), Y = 2 x mod t, U and V twice the shares mod t, U = 2^(f + 1) U1 + U0 and V alike, u0 and v0 the
lowest bits. Then, with the carry c = [U0 + V0 >= 2^(f + 1)] and the wrap w = [U + V >= t],

    floor(Y / 2^(f + 1)) = U1 + V1 + c - t1 w,    t1 = floor(t / 2^(f + 1)),    x >= 0 where u0 + v0 + w is even:

U + V - 2^(f + 1) t1 w is Y + w, and the 1 that w adds to an even Y crosses no multiple of 2^(f + 1). See
docs/mathematics.md, "Exact floor and sign".

*Floor alone.* x + B is under t / 4 for a bound B on |x|, so U or V above t / 2 tells w: only the low bits are compared.

*ReLU.* w = [U1 + 1 > K] or ([U1 + 1 = K] and c) with K = t1 - V1, compared by digits of the high parts. The output is
p Z, p = [x >= 0]: Z = U1 + V1 + c - t1 w, where w = u0 + v0 mod 2 as p = 1. Where nothing is rounded, f = 0, Z is x
itself, and low and high parts of any widths tell w.

*Clip at a most M.* h = [x >= T] with T = M 2^f is the sign of x - T, whose shares are U and V - 2 T, or V - 2 T + t - 1
where V < 2 T: its wrap is compared as w is. These differ from V by a multiple of a power of two that divides 2 T and
t - 1, so digits below it, and the carry, serve both. The output is (p + h) Z + M h.

The client's share is known before the image, as is the share w that it chooses of the result. So its digits go into
tables ahead (:mod:`mpc.comparison`), and online four messages pass: the server's digits, the low and high results, the
top, and the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise

from privcirnet.he.mpc.comparison import ComparisonMerge, DigitComparison

_MOST = 5
"""Bits of a digit: its table has 2^bits entries."""
_CUT = 11
"""Low bits where they need not be those that are rounded: three digits of t of 24 to 32 bits, and the fewest."""


@dataclass(frozen=True)
class ExactFloor:
    """The public shape of an exact floor of some values.

    Attributes:
        t: modulus of the shares, odd, 1 mod 2^(f + 1), under 2^61.
        f: bits that go.
        m: modulus of the results, t or a power of two.
        bound: B of |x| for the floor alone, a multiple of 2^f, 8 B < t; 0 for ReLU, where |x| <= (t - 3) / 2.
        most: M of a clip, under m, where |x - M 2^f| <= (t - 3) / 2, too; 0: a ReLU has none.
    """

    t: int
    f: int
    m: int
    bound: int = 0
    most: int = 0

    def __post_init__(self) -> None:
        """Check what exactness needs."""
        if self.t % (2 << self.f) != 1:
            raise ValueError(f"t must be 1 mod 2^{self.f + 1}, is {self.t}")
        if self.bound % (1 << self.f) or 8 * self.bound >= self.t:
            raise ValueError(f"the bound must be a multiple of 2^{self.f} under t / 8, is {self.bound}")
        if self.most and (self.bound or not 0 < self.most < min(self.m, self.t >> self.f + 1)):
            raise ValueError(f"a ReLU must clip under its modulus and t / 2, not at {self.most}")

    @property
    def relu(self) -> bool:
        """True if negative values become zero."""
        return not self.bound

    @property
    def clips(self) -> bool:
        """True if large values become the most."""
        return self.most > 0

    @property
    def unrounded(self) -> bool:
        """True if values between stay as they are."""
        return self.relu and not self.f and self.m == self.t

    @property
    def _common(self) -> int:
        """Low bits in which the server's numbers of all comparisons agree."""
        differ = self.t - 1 | self.most << self.f + 1
        return (differ & -differ).bit_length() - 1

    @property
    def cut(self) -> int:
        """Bits of the low parts."""
        return min(_CUT, self._common) if self.unrounded else self.f + 1

    @property
    def t1(self) -> int:
        """Number t without its low bits."""
        return self.t >> self.cut

    @cached_property
    def low(self) -> list[DigitComparison]:
        """Digits of the low parts, the lowest first."""
        return [DigitComparison(bits, equal=i > 0) for i, bits in enumerate(_widths(self.cut, 3))]

    @cached_property
    def shared(self) -> list[DigitComparison]:
        """The lowest digit of the high parts, where both comparisons of a clip read it."""
        return [DigitComparison(bits, equal=True) for bits in _widths(self._shared_bits, 1)]

    @property
    def _shared_bits(self) -> int:
        return min(_MOST, self._common - self.cut) if self.clips else 0

    @cached_property
    def high(self) -> list[DigitComparison]:
        """The other digits of the high parts of a ReLU, which a clip compares twice; with the shared one four."""
        bits = (self.t1 + 1).bit_length() - self._shared_bits if self.relu else 0
        count = 3 if self.clips and bits <= 3 * _MOST else 6
        return [DigitComparison(bits, equal=True) for bits in _widths(bits, count)]

    @property
    def digits(self) -> list[DigitComparison]:
        """All digits, low before high."""
        return self.low + self.shared + self.high * (1 + self.clips)

    @cached_property
    def _parts(self) -> list[list[tuple[int, ...]]]:
        """Digits that are merged, merge by merge: the low ones, and in halves the high ones of each comparison."""
        shared, high = len(self.low), len(self.low) + len(self.shared)
        starts = range(high, len(self.digits), max(1, len(self.high)))
        chains = [(*range(shared, high), *range(start, start + len(self.high))) for start in starts]
        halves = [chain[: len(chain) // 2] for chain in chains], [chain[len(chain) // 2 :] for chain in chains]
        return [[tuple(range(shared))], *([*dict.fromkeys(half)] for half in halves if any(half))]

    @cached_property
    def groups(self) -> list[list[int]]:
        """Digits that each merge reads."""
        return [sorted({*chain.from_iterable(part)}) for part in self._parts]

    @cached_property
    def merges(self) -> list[ComparisonMerge]:
        """Merges, in which the client chooses."""
        pairs = enumerate(zip(self._parts, self.groups, strict=True))
        return [
            ComparisonMerge(tuple(tuple(map(group.index, digits)) for digits in part), i > 0)
            for i, (part, group) in pairs
        ]

    @cached_property
    def top(self) -> ComparisonMerge | None:
        """Merge of a ReLU: the carry and the high results to w of each comparison; the server chooses."""
        if not self.relu:
            return None
        ends = [0, *accumulate(map(len, self._parts))]
        return ComparisonMerge(
            tuple(tuple(min(start + i, end - 1) for start, end in pairwise(ends)) for i in range(self.signs)), False
        )

    @property
    def signs(self) -> int:
        """Comparisons of high parts, whose results are signs."""
        return self.relu + self.clips

    @property
    def top_flips(self) -> int:
        """Planes that the server sends ahead for the top."""
        return self.top.flip_planes if self.top else 0

    @property
    def top_help(self) -> int:
        """Planes that the client sends ahead for the top."""
        return self.top.help_planes if self.top else 0

    @property
    def top_products(self) -> int:
        """Products of the top."""
        return len(self.top.products) if self.top else 0

    @property
    def summands(self) -> int:
        """Products that a result before the sign counts is made of."""
        return 0 if self.unrounded else 2

    @property
    def products(self) -> int:
        """Bits of the server times numbers that the client knows ahead."""
        return self.summands + (1 + self.summands if self.relu else 0)

    @cached_property
    def down(self) -> list[range]:
        """Slots of transfers in which the server chooses: for each digit, the top, the products."""
        tops = [len(self.top.choices)] if self.top else [0]
        return list(_ranges([d.bits for d in self.digits] + tops + [self.products]))

    @cached_property
    def up(self) -> list[range]:
        """Slots in which the client chooses: for each merge, the last products."""
        return list(_ranges([len(merge.choices) for merge in self.merges] + [self.signs]))

    @property
    def width(self) -> int:
        """Bits of a result."""
        return (self.m - 1).bit_length()

    def ahead_bits(self) -> tuple[int, int, int]:
        """Return bits a value of the messages ahead but for transfers: client's, server's, client's."""
        first, second = sum(m.flip_planes for m in self.merges), sum(m.help_planes for m in self.merges)
        tables = sum(digit.ahead_planes for digit in self.digits)
        clip, third = self.clips * self.width, tables + self.top_help + self.products * self.width
        return first, second + self.top_flips + clip, third

    def online_bits(self) -> tuple[tuple[int, ...], ...]:
        """Return bits a value of each part of the messages online, the server's first."""
        first = sum(digit.online_planes for digit in self.digits)
        second = sum(merge.online_planes for merge in self.merges)
        third = (self.top.online_planes + self.products, self.width) if self.top else (self.products,)
        return (first,), (second,), third, (self.width + self.signs,)


def _widths(bits: int, limit: int) -> list[int]:
    """Return the bits of digits, of at most 4, or 5 where so many digits would not do; at most a third more of them."""
    count = max(min(-(-bits // 4), limit), -(-bits // _MOST))
    if count > limit + limit // 3:
        raise ValueError(f"{bits} bits are more than {limit + limit // 3} digits hold")
    return [bits // count + (i < bits % count) for i in range(count)]


def _ranges(sizes: list[int]) -> Iterator[range]:
    start = 0
    for size in sizes:
        yield range(start, start + size)
        start += size
