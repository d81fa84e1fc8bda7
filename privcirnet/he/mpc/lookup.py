"""Exact look-up of any public function of 4 to 12 bits, of values in shares mod 2^k, in one round trip.

Ahead of the image both parties make random numbers r and shares of a vector of 2^k bits with its one at r. The client
knows ahead its share c of the index i, and the server a, so that r = a + c mod 2^k; neither knows r. Online the server
says d = i - r, and the function's bit j at i is the parity of the vector moved by d under the places where the function
has that bit. Each party's share of the parity is that of its share of the vector.

*r.* Each bit is r_j = p_j + q_j mod 2, p_j a random bit of the client and q_j the server's choice in a transfer. As
p + q mod 2 = p + q - 2 p q, a product p_j q_j in shares mod 2^(k - 1 - j) makes r_j a sum of the parties' own terms.

*The vector.* r has two digits. The vector of each has its one at p + q, bit by bit: the client's table with its one at
p, shifted by q (:class:`mpc.comparison.DigitComparison`). The whole is their outer product. Each one's entries add up
to one, so the products without the last entries give the others.

*The result.* Bit j under the mask m_j = s_j + u_j mod 2, s_j random and the client's, u_j the server's choice, is known
to both online. Ahead they share m_j as a number mod t; the bit is m_j or 1 - m_j. See docs/mathematics.md, "Exact
look-up".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.mpc.comparison import DigitComparison
from privcirnet.he.program.table import LEAST_INDEX_BITS, MOST_INDEX_BITS
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class Place(DigitComparison):
    """The place of the client's digit, moved by the server's: a vector with a single one, in shares."""

    equal: bool = False

    def _answers(self, digit: Residues) -> Residues:
        """Return a vector with its one at the client's digit."""
        table = np.empty((1, 1 << self.bits, digit.shape[1]), dtype=np.uint64)
        for i in range(1 << self.bits):
            table[0, i] = np.bitwise_and.reduce([digit[j] if i >> j & 1 else ~digit[j] for j in range(self.bits)])
        return table


@dataclass(frozen=True)
class Lookup:
    """The public shape of a look-up of some values.

    Attributes:
        t: modulus of the results' shares, odd, under 2^61.
        table: the function's 2^k values by index, of a span under t.
    """

    t: int
    table: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the table."""
        if len(self.table) != 1 << self.bits or not LEAST_INDEX_BITS <= self.bits <= MOST_INDEX_BITS:
            limit = MOST_INDEX_BITS
            raise ValueError(f"a table must have 2^{LEAST_INDEX_BITS} to 2^{limit} entries, not {len(self.table)}")
        if max(self.table) - min(self.table) >= self.t:
            raise ValueError(f"the entries of a table must span less than t = {self.t}")

    @property
    def bits(self) -> int:
        """Bits k of an index."""
        return len(self.table).bit_length() - 1

    @property
    def least(self) -> int:
        """The least entry: a look-up returns another's distance from it."""
        return min(self.table)

    @cached_property
    def entry_bits(self) -> int:
        """Bits of the distance that is looked up."""
        return max(1, (max(self.table) - self.least).bit_length())

    @property
    def width(self) -> int:
        """Bits of a result."""
        return (self.t - 1).bit_length()

    @property
    def digits(self) -> tuple[Place, Place]:
        """The low and the high digit of an index, of at most 6 bits: few transfers, and keys of a word hide a row.

        With 8 bits, 2 and 6 take 22 transfers and 104 bytes more for t of 28 bits, 4 and 4 take 46 and 99.5.
        """
        low = max(2, self.bits - 6)
        return Place(low), Place(self.bits - low)

    @property
    def sides(self) -> tuple[int, int]:
        """Entries of each digit's vector, but for the last."""
        low, high = self.digits
        return (1 << low.bits) - 1, (1 << high.bits) - 1

    @property
    def sum_bits(self) -> list[int]:
        """Bits of the product that makes each bit of r a sum, but for the highest."""
        return list(range(self.bits - 1, 0, -1))

    @cached_property
    def down(self) -> list[range]:
        """Slots in which the server chooses: for its part of each digit, of the low one's vector, and of masks."""
        return list(_ranges([digit.bits for digit in self.digits] + [self.sides[0], self.entry_bits]))

    @property
    def up(self) -> int:
        """Slots in which the client chooses: by its part of the low digit's vector."""
        return self.sides[0]

    @property
    def place_words(self) -> int:
        """Words of a value's vector; one of fewer than 64 places is repeated to fill one."""
        return max(1, len(self.table) // 64)

    @cached_property
    def words(self) -> Residues:
        """Bits of all entries, row j for bit j, (entry bits, words)."""
        offsets = np.array([value - self.least for value in self.table], dtype=np.uint64)
        bits = offsets >> np.arange(self.entry_bits, dtype=np.uint64)[:, None] & np.uint64(1)
        whole = np.zeros((self.entry_bits, 64 * self.place_words), dtype=np.uint8)
        whole[:, : len(self.table)] = bits
        return np.packbits(whole, axis=1, bitorder="little").view(np.uint64)

    @property
    def kept_planes(self) -> list[int]:
        """Counts of the planes that either party keeps: its share of the vector, by value, and of the masks."""
        return [64 * self.place_words, self.entry_bits]

    @property
    def kept_numbers(self) -> int:
        """Numbers that either party keeps: for each mask, and for the index."""
        return self.entry_bits + 1

    def ahead_bits(self) -> tuple[int, int, int]:
        """Return bits a value of the messages ahead but for transfers: client's, server's, client's."""
        low, high = self.sides
        first = sum(digit.ahead_planes for digit in self.digits) + sum(self.sum_bits) + low
        return first + self.entry_bits * self.width, low + low * high, low * high

    def online_bits(self) -> tuple[tuple[int], tuple[int]]:
        """Return bits a value of each part of the messages online, the server's first."""
        return (self.bits + self.entry_bits,), (self.entry_bits + self.width,)


def _ranges(sizes: list[int]) -> Iterator[range]:
    start = 0
    for size in sizes:
        yield range(start, start + size)
        start += size
