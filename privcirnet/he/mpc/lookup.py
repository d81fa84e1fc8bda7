"""Exact look-up of any public function of 4 to 12 bits, of values in shares mod 2^k, in one round trip.

Ahead of the image both parties make random numbers r and shares of a vector of 2^k bits with its one at r. The client
knows ahead its share c of the index i, and the server a, so that r = a + c mod 2^k; neither knows r. Online the server
says d = i - r, and the function's bit j at i is the parity of the vector moved by d under the places where the function
has that bit. Each party's share of the parity is that of its share of the vector.

*r.* Each bit is r_j = p_j + q_j mod 2, p_j a random bit of the client and q_j the server's choice in a transfer. As
p + q mod 2 = p + q - 2 p q, a product p_j q_j in shares mod 2^(k - 1 - j) makes r_j a sum of the parties' own terms.

*The vector.* r has two digits. The vector of each has its one at p + q, bit by bit: the client's table with its one at
p, shifted by q (:class:`mpc.carries.DigitTable`). The whole is their outer product. Each one's entries add up
to one, so the products without the last entries give the others.

*The result.* Bit j under the mask m_j = s_j + u_j mod 2, s_j random and the client's, u_j the server's choice, is known
to both online. Ahead they share m_j as a number mod t; the bit is m_j or 1 - m_j. See docs/mathematics.md, "Exact
look-up". Below are the public shape of a look-up (:class:`Lookup`), and each party's turns, ahead, where the client
begins, and online, where the server does.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.mpc.carries import DigitTable, accept, offer, one_hot
from privcirnet.he.mpc.gadgets import (
    OfflineState,
    PartyCoroutine,
    accept_number,
    bits,
    fresh_planes,
    helper_keys,
    joined,
    minus,
    numbers_of,
    offer_number,
    packed,
    pick,
    ranges,
    read,
    split,
    zeros,
)
from privcirnet.he.mpc.kernels.planes import entries_into, values_into
from privcirnet.he.mpc.ot.session import OtSession, ReceiverOts, SenderOts, planes
from privcirnet.he.program.lookup_table import LEAST_INDEX_BITS, MOST_INDEX_BITS
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


@dataclass(frozen=True)
class Place(DigitTable):
    """The place of the client's digit, moved by the server's: a vector with a single one, in shares."""

    functions: tuple[int, ...] = (0,)

    def _answers(self, digit: Residues) -> Residues:
        """Return a vector with its one at the client's digit."""
        return one_hot(digit)[None]


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
        return list(ranges([digit.bits for digit in self.digits] + [self.sides[0], self.entry_bits]))

    @property
    def transfers(self) -> int:
        """Transfers of a value, in both directions."""
        return self.down[-1].stop + self.up

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


def client_ahead(lookup: Lookup, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the client's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        what it keeps; the last of the numbers is its share of the index mod 2^k, which is random.
    """
    t, (low, high), words = lookup.t, lookup.sides, values // 64
    up, extension = transfers.choose(lookup.up, values)
    received = yield [extension]

    down = transfers.help(lookup.down[-1].stop, values, received[0])
    *places, rows, masked = [down.some(slots) for slots in lookup.down]
    r_bits, masks = fresh_planes(lookup.bits, words), fresh_planes(lookup.entry_bits, words)
    digits = zip(lookup.digits, places, split(r_bits, [digit.bits for digit in lookup.digits]), strict=True)
    tables = [digit.client_table(offered, x) for digit, offered, x in digits]
    sums, index = _client_index(lookup, down, r_bits)
    keys = threads.each(lambda j: helper_keys(masked, j, t), range(lookup.entry_bits))
    twice = [bits(mask) * np.uint64((2 << j) % t) for j, mask in enumerate(masks)]
    offers = [offer_number(number, distance, t) for number, (_, distance) in zip(twice, keys, strict=True)]
    x, y = (table[0] for _, table in tables)
    first = [*(message for message, _ in tables), *sums, x[:-1] ^ up.choices]
    received = yield [joined(first), packed(offers, lookup.width)]

    flips, *theirs = read(received[0], [low, *[high] * low], words)
    mine = threads.each(lambda i: offer(rows, i, y[:-1], flips[i]), range(low))
    yield [joined([message for message, _ in mine])]

    crossed = threads.each(lambda i: accept(up, i, theirs[i], x[i]) ^ mine[i][1], range(low))
    numbers = [
        (bits(mask) * np.uint64((1 << j) % t) + key) % np.uint64(t)
        for j, (mask, (key, _)) in enumerate(zip(masks, keys, strict=True))
    ]
    return OfflineState(np.concatenate([_by_value(lookup, x, y, crossed), masks]), np.array([*numbers, index]))


def _client_index(lookup: Lookup, down: SenderOts, r_bits: Residues) -> tuple[list[Residues], Residues]:
    """Return messages, planes each, and the client's share of r; ``r_bits``: its bits of r."""
    messages, index = list[Residues](), zeros(bits(r_bits[0]))
    for j, size in enumerate([*lookup.sum_bits, 0]):
        first, second = (key[j][:, 1] for key in down.keys)  # the table's bits are in the other word
        messages.append(planes(bits(r_bits[j]) + first - second, size))
        index += (bits(r_bits[j]) + first + first) << np.uint64(j)
    return messages, index & np.uint64(len(lookup.table) - 1)


def server_ahead(lookup: Lookup, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the server's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        its state for the image.
    """
    t, (low, high), words = lookup.t, lookup.sides, values // 64
    received = yield []
    up = transfers.help(lookup.up, values, received[0])
    down, extension = transfers.choose(lookup.down[-1].stop, values)
    *places, rows, masked = [down.some(slots) for slots in lookup.down]
    received = yield [extension]

    sizes = [*(digit.ahead_planes for digit in lookup.digits), *lookup.sum_bits, low]
    *parts, flips = read(received[0], sizes, words)
    x, y = (d.server_table(c, part)[0] for d, c, part in zip(lookup.digits, places, parts, strict=False))
    index = _server_index(lookup, down, parts[2:])
    mine = threads.each(lambda i: offer(up, i, y[:-1], flips[i]), range(low))
    offers = [numbers_of(part, t) for part in read(received[1], [lookup.width] * lookup.entry_bits, words)]
    products = threads.each(lambda j: accept_number(masked, j, offers[j], t), range(lookup.entry_bits))
    numbers = [
        minus(bits(mask) * np.uint64((1 << j) % t), product, t)
        for j, (mask, product) in enumerate(zip(masked.choices, products, strict=True))
    ]
    received = yield [joined([x[:-1] ^ rows.choices, *(message for message, _ in mine)])]

    theirs = read(received[0], [high] * low, words)
    crossed = threads.each(lambda i: accept(rows, i, theirs[i], x[i]) ^ mine[i][1], range(low))
    yield []
    return OfflineState(np.concatenate([_by_value(lookup, x, y, crossed), masked.choices]), np.array([*numbers, index]))


def _server_index(lookup: Lookup, down: ReceiverOts, messages: list[Residues]) -> Residues:
    """Return the server's share of r; ``messages``: of the client, for each bit but the highest."""
    index = zeros(bits(down.choices[0]))
    for j in range(lookup.bits):
        bit = bits(down.choices[j])
        product = zeros(bit)
        if j < len(messages):
            product = down.keys[j][:, 1] + bit * numbers_of(messages[j], 1 << len(messages[j]))
        index += (bit - product - product) << np.uint64(j)
    return index & np.uint64(len(lookup.table) - 1)


def _by_value(lookup: Lookup, x: Residues, y: Residues, crossed: list[Residues]) -> Residues:
    """Return a party's share of the vector, the words of a value together, (64 place words, words).

    Args:
        x: its share of the low digit's.
        y: its share of the high one's.
        crossed: its share of the products of its own and the other's, row by row, without the last.
    """
    grid = np.empty((len(x), *y.shape), dtype=np.uint64)
    grid[:-1, :-1] = (x[:-1, None] & y[None, :-1]) ^ np.array(crossed)
    grid[:-1, -1] = x[:-1] ^ np.bitwise_xor.reduce(grid[:-1, :-1], axis=1)
    grid[-1] = y ^ np.bitwise_xor.reduce(grid[:-1], axis=0)
    flat = grid.swapaxes(0, 1).reshape(len(lookup.table), -1)
    vectors = np.empty((64 * flat.shape[1], lookup.place_words), dtype=np.uint64)
    column = np.empty(len(vectors), dtype=np.uint64)
    for w in range(lookup.place_words):
        values_into(column, np.ascontiguousarray(np.resize(flat[64 * w : 64 * w + 64], (64, flat.shape[1]))))
        vectors[:, w] = column
    return vectors.reshape(-1, flat.shape[1])


def client_online(lookup: Lookup, state: OfflineState, result: Residues) -> PartyCoroutine[None]:
    """Take the client's turns online.

    Args:
        result: its share, mod t, (values,), random and chosen ahead.

    Returns:
        nothing.
    """
    t, words = lookup.t, state.planes.shape[1]
    received = yield []
    index, theirs = read(received[0], [lookup.bits, lookup.entry_bits], words)
    masked = _masked(lookup, state, numbers_of(index, len(lookup.table)))
    ones = [np.uint64((1 << j) % t) for j in range(lookup.entry_bits)]
    total = _added(lookup, state, masked ^ theirs, ones)
    total = (total + np.uint64(lookup.least % t)) % np.uint64(t)
    yield [joined([masked]) + packed([minus(total, result, t)], lookup.width)]


def server_online(lookup: Lookup, state: OfflineState, share: Residues) -> PartyCoroutine[Residues]:
    """Take the server's turns online.

    Args:
        share: share of the index, mod 2^k, (values,).

    Returns:
        its share of the result, mod t, (values,).
    """
    t, words = lookup.t, state.planes.shape[1]
    index = (share - state.numbers[-1]) & np.uint64(len(lookup.table) - 1)
    masked = _masked(lookup, state, index)
    received = yield [joined([planes(index, lookup.bits), masked])]
    theirs, result = read(received[0], [lookup.entry_bits, lookup.width], words)
    total = _added(lookup, state, masked ^ theirs, [np.uint64(0)] * lookup.entry_bits)
    return (total + numbers_of(result, t)) % np.uint64(t)


def _masked(lookup: Lookup, state: OfflineState, index: Residues) -> Residues:
    """Return a party's share of the entries, under its masks, (entry bits, words)."""
    places, masks = split(state.planes, lookup.kept_planes)
    entries = np.empty(len(index), dtype=np.uint64)
    entries_into(entries, places.reshape(len(index), -1), index, lookup.words)
    return planes(entries, lookup.entry_bits) ^ masks


def _added(lookup: Lookup, state: OfflineState, masked: Residues, ones: list[np.uint64]) -> Residues:
    """Return a party's share of the sum of all bits; ``ones``: its addends where a masked bit is one."""
    t, total = lookup.t, zeros(state.numbers[0])
    for plane, share, weight in zip(masked, state.numbers, ones, strict=False):
        total = (total + pick(plane, share, minus(np.full_like(share, weight), share, t))) % np.uint64(t)
    return total
