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
top, and the result. Below are the public shape of a step (:class:`ExactFloor`) and each party's turns, ahead, where
the client begins, and online, where the server does.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from privcirnet.he.mpc.comparison import ComparisonMerge, DigitComparison
from privcirnet.he.mpc.gadgets import (
    OfflineState,
    PartyCoroutine,
    accept_number,
    bits,
    choose_bit,
    chooser_part,
    fresh_planes,
    helper_keys,
    helper_share,
    joined,
    minus,
    numbers_of,
    offer_number,
    packed,
    pick,
    read,
    residues,
    split,
    zeros,
)
from privcirnet.he.mpc.ot.session import OtSession, planes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

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


def client_planes(floor: ExactFloor) -> list[int]:
    """Return the counts of what the client keeps in planes.

    They are its tables, choices, what it knows ahead of the results of merges, shares of their products and of the
    top's, and a bit of its share: the lowest of ReLU, else whether it is above t / 2.
    """
    tables = [digit.table_planes for digit in floor.digits]
    shares = [len(merge.products) for merge in floor.merges]
    return [*tables, floor.up[-1].stop, sum(merge.outputs for merge in floor.merges), *shares, floor.top_products, 1]


def client_numbers(floor: ExactFloor) -> int:
    """Return the count of the client's numbers: a key for each product, its addend, and parts of the last ones."""
    return floor.products + 1 + floor.signs


def server_planes(floor: ExactFloor) -> list[int]:
    """Return the counts of what the server keeps in planes: as the client, and what it knows ahead of signs."""
    tables = [digit.table_planes for digit in floor.digits]
    shares = [len(merge.products) for merge in floor.merges]
    return [
        *tables,
        floor.down[-1].stop,
        sum(d.outputs for d in floor.digits),
        *shares,
        floor.top_products,
        floor.signs,
    ]


def server_numbers(floor: ExactFloor) -> int:
    """Return the count of the server's numbers: its part of each product, and keys of the last."""
    return floor.products + floor.relu + floor.signs


def client_offline(floor: ExactFloor, share: Residues, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the client's turns ahead.

    Args:
        share: share of x, mod t, (values,), a multiple of 64 of them.

    Returns:
        its state for the image.
    """
    t, m, words = np.uint64(floor.t), floor.m, share.size // 64
    u = (share + share) % t
    u1 = u >> np.uint64(floor.cut)
    bit = planes(u if floor.top else (u > t >> np.uint64(1)).astype(np.uint64), 1)[0]
    up, extension = transfers.choose(floor.up[-1].stop, share.size)
    ups = [up.some(slots) for slots in floor.up]
    flips = [merge.flips(ots) for merge, ots in zip(floor.merges, ups, strict=False)]
    received = yield [extension, joined(flips)]

    down = transfers.help(floor.down[-1].stop, share.size, received[0])
    downs = [down.some(slots) for slots in floor.down]
    digits = _all_digits(floor, u, [u1 + np.uint64(1)] * floor.signs)
    inputs = zip(floor.digits, downs, digits, strict=False)
    tables = threads.each(lambda of: of[0].client_table(*of[1:]), inputs)
    sizes = [*(merge.help_planes for merge in floor.merges), floor.top_flips, floor.clips * floor.width]
    *helped, top_flips, clip = read(received[1], sizes, words)
    shares = [merge.choose_ahead(c, p) for merge, c, p in zip(floor.merges, ups, helped, strict=False)]
    fresh = fresh_planes(sum(merge.outputs for merge in floor.merges), words)
    top = top_shares = np.empty((0, words), dtype=np.uint64)
    if floor.top:
        top, top_shares = floor.top.help_ahead(downs[-2], _tops(_split(fresh, floor.merges)), top_flips)
    wrapped = bits(bit) * np.uint64(floor.t1 % m)
    rounded = (minus(u1 % np.uint64(m), wrapped, m) + bits(fresh[0])) % np.uint64(m)
    constant = share if floor.unrounded else rounded
    numbers = _client_numbers(floor, fresh[0], bit, constant)
    keys = threads.each(lambda i: helper_keys(downs[-1], i, m), range(floor.products))
    offers = [offer_number(x, distance, m) for x, (_, distance) in zip(numbers, keys, strict=True)]
    last = [residues(ups[-1].keys[0], m)] if floor.relu else []
    last += [accept_number(ups[-1], 1, numbers_of(clip, m), m)] if floor.clips else []
    yield [joined([message for message, _ in tables] + [top]), packed(offers, floor.width)]

    stored = [table.reshape(-1, words) for _, table in tables] + [up.choices, fresh, *shares, top_shares, bit[None]]
    return OfflineState(np.concatenate(stored), np.array([first for first, _ in keys] + [constant] + last))


def _client_numbers(floor: ExactFloor, carry: Residues, bit: Residues, constant: Residues) -> list[Residues]:
    """Return the numbers that the client offers for products.

    Args:
        carry: its share ahead, a plane: the carry is that plus the sign times the server's share.
        bit: the last of :func:`client_planes`.
        constant: addend of the result, (values,).
    """
    if floor.unrounded:
        return [constant]
    m, ones = floor.m, np.ones_like(constant)
    sign, wrap = pick(carry, ones, minus(zeros(ones), ones, m)), bits(bit)
    if floor.relu:
        twice = wrap * np.uint64(2 * floor.t1 % m)
        return [sign, twice, constant, sign, twice]
    return [sign, (ones - wrap) * np.uint64(-floor.t1 % m)]


def server_ahead(floor: ExactFloor, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the server's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        its state for the image.
    """
    words, m = values // 64, floor.m
    received = yield []
    up = transfers.help(floor.up[-1].stop, values, received[0])
    flips = read(received[1], [merge.flip_planes for merge in floor.merges], words)
    fresh = fresh_planes(sum(digit.outputs for digit in floor.digits), words)
    inputs = zip(floor.merges, map(up.some, floor.up), _known(floor, fresh), flips, strict=False)
    merged = threads.each(lambda of: of[0].help_ahead(*of[1:]), inputs)
    down, extension = transfers.choose(floor.down[-1].stop, values)
    downs = [down.some(slots) for slots in floor.down]
    top_flips = [floor.top.flips(downs[-2])] if floor.top else []
    signs, last = fresh_planes(floor.signs, words), up.some(floor.up[-1])
    keys = [helper_keys(last, i, m) for i in range(floor.signs)]
    clip = [offer_number(number, keys[1][1], m) for number in _beyond(floor, signs)]
    outgoing = joined([message for message, _ in merged] + top_flips) + packed(clip, floor.width)
    received = yield [extension, outgoing]

    *parts, top = read(received[0], [*(d.ahead_planes for d in floor.digits), floor.top_help], words)
    tables = threads.each(lambda of: of[0].server_table(*of[1:]), zip(floor.digits, downs, parts, strict=False))
    top_shares = floor.top.choose_ahead(downs[-2], top) if floor.top else np.empty((0, words), dtype=np.uint64)
    offers = [numbers_of(part, m) for part in read(received[1], [floor.width] * floor.products, words)]
    numbers = threads.each(lambda i: accept_number(downs[-1], i, offers[i], m), range(floor.products))
    yield []

    shares = [share for _, share in merged]
    stored = [*(table.reshape(-1, words) for table in tables), down.choices, fresh, *shares, top_shares, signs]
    firsts = [first for first, _ in keys] + [distance for _, distance in keys[:1]]
    return OfflineState(np.concatenate(stored), np.array(numbers + firsts))


def client_online(floor: ExactFloor, state: OfflineState, result: Residues) -> PartyCoroutine[None]:
    """Take the client's turns online.

    Args:
        result: its share, mod m, (values,), random and chosen ahead.

    Returns:
        nothing.
    """
    m, words = floor.m, state.planes.shape[1]
    *tables, choices, fresh, shares, top_shares, bit = _kept(floor, client_planes(floor), state)
    fresh_parts = _split(fresh, floor.merges)
    received = yield []
    parts = read(received[0], [d.online_planes for d in floor.digits], words)
    answers = [d.answer(d.shaped(table), part) for d, table, part in zip(floor.digits, tables, parts, strict=True)]
    merged = zip(floor.merges, floor.groups, floor.up, shares, fresh_parts, strict=False)
    received = yield [
        joined([g.choose(_inputs(answers, at), choices[s.start : s.stop], p, f) for g, at, s, p, f in merged])
    ]

    tops, flips = read(received[0], [floor.top.online_planes if floor.top else 0, floor.products], words)
    constant = state.numbers[floor.products]
    numbers = _client_numbers(floor, fresh[0], bit[0], constant)
    triples = zip(numbers, state.numbers[: floor.products], flips, strict=True)
    products = [helper_share(x, first, flip, m) for x, first, flip in triples]
    output = sum(products[: floor.summands], constant) % np.uint64(m)
    if not floor.top:
        yield [packed([minus(output, result, m)], floor.width)]
        return
    signs = ~(bit ^ floor.top.help(_tops(fresh_parts), top_shares, tops))
    within = np.bitwise_xor.reduce(signs)
    d = sum(products[floor.summands :], zeros(output)) % np.uint64(m)
    offered = numbers_of(read(received[1], [floor.width], words)[0], m)
    last, keys = choices[floor.up[-1].start :], state.numbers[floor.products + 1 :]
    parts = [chooser_part(keys[0], last[0], offered, m), *keys[1:]]
    triples = zip([within, *signs[1:]], last, parts, strict=True)
    flips, selected = zip(*(choose_bit(bit, choice, part, m) for bit, choice, part in triples), strict=True)
    output = (d + bits(within) * minus(output, (d + d) % np.uint64(m), m) + sum(selected)) % np.uint64(m)
    yield [packed([minus(output, result, m)], floor.width) + joined(flips)]


def server_online(floor: ExactFloor, state: OfflineState, share: Residues) -> PartyCoroutine[Residues]:
    """Take the server's turns online.

    Args:
        share: share of x, mod t, (values,).

    Returns:
        its share of the result, mod m, (values,).
    """
    t, m, words = np.uint64(floor.t), floor.m, state.planes.shape[1]
    *tables, choices, fresh, shares, top_shares, signs = _kept(floor, server_planes(floor), state)
    shifted = (share + np.uint64(floor.bound)) % t
    v = (shifted + shifted) % t
    low, v1 = np.uint64((1 << floor.cut) - 1), v >> np.uint64(floor.cut)
    compared, odd = _compared(floor, v)
    digits = _all_digits(floor, low - (v & low), compared)
    selections = zip(floor.digits, digits, floor.down, tables, _split(fresh, floor.digits), strict=False)
    received = yield [joined([d.choose(x, choices[s.start : s.stop], d.shaped(y), f) for d, x, s, y, f in selections])]

    parts = read(received[0], [merge.online_planes for merge in floor.merges], words)
    merged = zip(floor.merges, _known(floor, fresh), shares, parts, strict=True)
    outputs = [merge.help(inputs, products, part) for merge, inputs, products, part in merged]
    carry, high = outputs[0][0], v1 % np.uint64(m)
    last = choices[floor.down[-1].start :]
    if not floor.top:
        above = planes((v > np.uint64(floor.t >> 1)).astype(np.uint64), 1)[0]
        flips, products = _chosen(floor, [carry, above], last, state.numbers)
        offset = np.full_like(high, (floor.bound >> floor.f) % m)
        received = yield [flips]
        result = (minus(high, offset, m) + products[0] + products[1]) % np.uint64(m)
        return (result + numbers_of(read(received[0], [floor.width], words)[0], m)) % np.uint64(m)
    second = choices[floor.down[-2].start : floor.down[-2].stop]
    top = floor.top.choose(_tops(outputs), second, top_shares, signs ^ odd)
    sign = np.bitwise_xor.reduce(signs)
    terms = [sign] if floor.unrounded else [carry, odd[0], sign, sign & carry, sign & odd[0]]
    flips, products = _chosen(floor, terms, last, state.numbers)
    beta = share if floor.unrounded else minus(high, bits(odd[0]) * np.uint64(floor.t1 % m), m)
    d = sum(products[floor.summands :], bits(sign) * beta) % np.uint64(m)
    rest = minus(sum(products[: floor.summands], beta) % np.uint64(m), (d + d) % np.uint64(m), m)
    *firsts, distance = state.numbers[floor.products :]
    received = yield [top.tobytes() + flips, packed([offer_number(rest, distance, m)], floor.width)]
    result, *flips = read(received[0], [floor.width, *[1] * floor.signs], words)
    terms = zip([rest, *_beyond(floor, signs)], firsts, flips, strict=True)
    helped = [helper_share(number, first, flip[0], m) for number, first, flip in terms]
    clipped = [bits(sign) * np.uint64(floor.most) for sign in signs[1:]]
    return (d + sum(helped + clipped) + numbers_of(result, m)) % np.uint64(m)


def _compared(floor: ExactFloor, v: Residues) -> tuple[list[Residues], Residues]:
    """Return the server's number in each comparison of high parts, and the lowest bit of the share that it is of."""
    t1, v1, odd = np.uint64(floor.t1), v >> np.uint64(floor.cut), planes(v, 1)
    numbers = [t1 - v1] * floor.relu
    if floor.clips:
        twice = floor.most << floor.f + 1
        under = (v < np.uint64(twice)).astype(np.uint64)
        numbers.append(t1 - v1 + np.uint64(twice >> floor.cut) - under * t1)
        odd = np.concatenate([odd, odd ^ planes(under, 1)])
    return numbers, odd


def _beyond(floor: ExactFloor, signs: Residues) -> list[Residues]:
    """Return of a clip by how much M h changes with the client's part of h, which is the sign of x - T, (values,)."""
    ends = [np.full(64 * signs.shape[1], number, dtype=np.uint64) for number in (floor.most, floor.m - floor.most)]
    return [pick(sign, *ends) for sign in signs[1:]]


def _chosen(floor: ExactFloor, bit: list[Residues], choices: Residues, parts: Residues) -> tuple[bytes, list[Residues]]:
    """Return the server's message of its products, and its shares."""
    pairs = [choose_bit(b, c, p, floor.m) for b, c, p in zip(bit, choices, parts, strict=False)]
    return joined([flip for flip, _ in pairs]), [share for _, share in pairs]


def _kept(floor: ExactFloor, sizes: list[int], state: OfflineState) -> list[Any]:
    """Return a party's stored planes: tables, choices, fresh bits, shares of merges, of the top, a bit."""
    parts, digits = split(state.planes, sizes), len(floor.digits)
    return [*parts[:digits], *parts[digits : digits + 2], parts[digits + 2 : -2], *parts[-2:]]


def _known(floor: ExactFloor, fresh: Residues) -> list[dict[int, Residues]]:
    """Return the server's shares ahead of the inputs of each merge."""
    parts = _split(fresh, floor.digits)
    return [_inputs(parts, group) for group in floor.groups]


def _tops(results: list[Residues]) -> dict[int, Residues]:
    """Return the inputs of the top: the carry, then of each high part greater, and equal."""
    (carry,), *high = results
    greater = [carry, *(plane for result in high for plane in result[::2])]
    equal = [plane for result in high for plane in result[1::2]]
    return dict(enumerate(greater)) | dict(enumerate(equal, start=len(greater) + 1))


def _inputs(results: list[Residues], group: list[int]) -> dict[int, Residues]:
    """Return the inputs of a merge of some digits: greater of each, then equal of those that have it."""
    size = len(group)
    return {size * j + i: results[g][j] for i, g in enumerate(group) for j in range(len(results[g]))}


def _all_digits(floor: ExactFloor, low: Residues, high: list[Residues]) -> list[Residues]:
    """Return the planes of each digit of a low part, and of the high part in each comparison."""
    high_digits = [_digits(floor.shared + floor.high, number) for number in high]
    return sum((number[i and len(floor.shared) :] for i, number in enumerate(high_digits)), _digits(floor.low, low))


def _digits(digits: list[DigitComparison], values: Residues) -> list[Residues]:
    """Return the planes of each digit, the lowest bits first."""
    sizes = [digit.bits for digit in digits]
    return split(planes(values, sum(sizes)), sizes)


def _split(results: Residues, parts: Sequence[DigitComparison | ComparisonMerge]) -> list[Residues]:
    """Return the results of each part."""
    return split(results, [part.outputs for part in parts])
