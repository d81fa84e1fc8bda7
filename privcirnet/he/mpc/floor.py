"""Exact floor(x / 2^f), or ReLU and floor, of values in shares mod t: a comparison in two round trips.

Let t = 1 mod 2^(f + 1), Y = 2 x mod t, U and V twice the shares mod t, U = 2^(f + 1) U1 + U0 and V alike, u0 and v0 the
lowest bits. Then, with the carry c = [U0 + V0 >= 2^(f + 1)] and the wrap w = [U + V >= t],

    floor(Y / 2^(f + 1)) = U1 + V1 + c - t1 w,    t1 = floor(t / 2^(f + 1)),    x >= 0 where u0 + v0 + w is even:

U + V - 2^(f + 1) t1 w is Y + w, and the 1 that w adds to an even Y crosses no multiple of 2^(f + 1). See
docs/mathematics.md, "Exact floor and sign".

*Floor alone.* x + B is under t / 4 for a bound B on |x|, so U or V above t / 2 tells w: only the low bits are compared.

*ReLU.* w = [U1 + 1 > K] or ([U1 + 1 = K] and c) with K = t1 - V1, compared by digits of the high parts. The output is
p Z, p = [x >= 0]: Z = U1 + V1 + c - t1 w, where w = u0 + v0 mod 2 as p = 1. Where nothing is rounded, f = 0, Z is x
itself, and low and high parts of any widths tell w.

The client's share is known before the image, as is the share w that it chooses of the result. So its digits go into
tables ahead (:mod:`mpc.comparison`), and online four messages pass: the server's digits, the low and high results, the
top, and the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from privcirnet.he.mpc.comparison import Digit, Merge

_MOST = 5
"""Bits of a digit: its table has 2^bits entries."""
_CUT = 11
"""Low bits where they need not be those that are rounded: of t of 24 to 32 bits, three digits, and the fewest."""


@dataclass(frozen=True)
class Floor:
    """The public shape of the computation of some values.

    Attributes:
        t: of the shares, odd, 1 mod 2^(f + 1), under 2^61.
        f: bits that go.
        m: modulus of the results, t or a power of two.
        bound: B of |x| for the floor alone, a multiple of 2^f, 8 B < t; 0 for ReLU, where |x| <= (t - 3) / 2.
    """

    t: int
    f: int
    m: int
    bound: int = 0

    def __post_init__(self) -> None:
        """Check what exactness needs."""
        if self.t % (2 << self.f) != 1:
            raise ValueError(f"t must be 1 mod 2^{self.f + 1}, is {self.t}")
        if self.bound % (1 << self.f) or 8 * self.bound >= self.t:
            raise ValueError(f"the bound must be a multiple of 2^{self.f} under t / 8, is {self.bound}")

    @property
    def relu(self) -> bool:
        """Whether negative values become zero."""
        return not self.bound

    @property
    def unrounded(self) -> bool:
        """Whether positive values stay as they are."""
        return self.relu and not self.f and self.m == self.t

    @property
    def cut(self) -> int:
        """Bits of the low parts."""
        return min(_CUT, (self.t - 1 & 1 - self.t).bit_length() - 1) if self.unrounded else self.f + 1

    @property
    def t1(self) -> int:
        """Of t, what the low bits leave."""
        return self.t >> self.cut

    @cached_property
    def low(self) -> list[Digit]:
        """Digits of the low parts, the lowest first."""
        return [Digit(bits, equal=i > 0) for i, bits in enumerate(_widths(self.cut, 3))]

    @cached_property
    def high(self) -> list[Digit]:
        """Digits of the high parts of a ReLU."""
        return [Digit(bits, equal=True) for bits in _widths((self.t1 + 1).bit_length(), 6)] if self.relu else []

    @property
    def digits(self) -> list[Digit]:
        """All, low before high."""
        return self.low + self.high

    @cached_property
    def groups(self) -> list[range]:
        """Digits that are merged: the low ones, and the high ones in halves."""
        ends = [0, len(self.low), len(self.low) + len(self.high) // 2, len(self.digits)]
        return [range(a, b) for a, b in pairwise(ends) if b > a]

    @cached_property
    def merges(self) -> list[Merge]:
        """The client chooses in them."""
        return [Merge(len(group), equal=i > 0) for i, group in enumerate(self.groups)]

    @cached_property
    def top(self) -> Merge | None:
        """Of a ReLU: the carry and the high results to w; the server chooses."""
        return Merge(len(self.merges), equal=False) if self.relu else None

    @property
    def top_flips(self) -> int:
        """Planes that the server sends ahead for it."""
        return self.top.flip_planes if self.top else 0

    @property
    def top_help(self) -> int:
        """Planes that the client sends ahead for it."""
        return self.top.help_planes if self.top else 0

    @property
    def top_products(self) -> int:
        """Its products."""
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
        """Slots of transfers in which the server chooses: of each digit, of the top, of the products."""
        tops = [len(self.top.choices)] if self.top else [0]
        return list(_ranges([d.bits for d in self.digits] + tops + [self.products]))

    @cached_property
    def up(self) -> list[range]:
        """Slots in which the client chooses: of each merge, of the last product."""
        return list(_ranges([len(merge.choices) for merge in self.merges] + [int(self.relu)]))

    @property
    def width(self) -> int:
        """Bits of a result."""
        return (self.m - 1).bit_length()

    def ahead_bits(self) -> tuple[int, int, int]:
        """Return bits a value of the messages ahead but for transfers: client's, server's, client's."""
        first, second = sum(m.flip_planes for m in self.merges), sum(m.help_planes for m in self.merges)
        tables = sum(digit.ahead_planes for digit in self.digits)
        return first, second + self.top_flips, tables + self.top_help + self.products * self.width

    def online_bits(self) -> tuple[tuple[int, ...], ...]:
        """Return bits a value of each part of the messages online, the server's first."""
        first = sum(digit.online_planes for digit in self.digits)
        second = sum(merge.online_planes for merge in self.merges)
        third = (self.top.online_planes + self.products, self.width) if self.top else (self.products,)
        return (first,), (second,), third, (self.width + self.relu,)


def _widths(bits: int, most: int) -> list[int]:
    """Return the bits of digits, of at most 4, or 5 where so many digits would not do; at most a third more of them."""
    count = max(1, min(-(-bits // 4), most), -(-bits // _MOST))
    if count > most + most // 3:
        raise ValueError(f"{bits} bits are more than {most + most // 3} digits hold")
    return [bits // count + (i < bits % count) for i in range(count)]


def _ranges(sizes: list[int]) -> Iterator[range]:
    start = 0
    for size in sizes:
        yield range(start, start + size)
        start += size
