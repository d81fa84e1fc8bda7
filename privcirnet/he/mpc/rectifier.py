"""Exact ReLU or clip and floor(x / 2^f) of values in shares mod t: carries in two round trips.

Let t = 1 mod 2^z, U and V twice the shares mod t, so that U + V = 2 x + w t with a w of 0, 1 or 2. Modulo 2^z that is
2 x + w, **whatever the wrap is**: the bits of U + V from f + 1 to z - 1 are those of floor(x / 2^f), k = z - f - 1 of
them, but for x = -1 mod 2^f with w = 2, where they are those of the next number. With |floor(x / 2^f)| < 2^(k-1) the
whole step is a function of the low z bits of U and V. See docs/mathematics.md, "Exact floor and sign".

*ReLU.* The highest of these bits is the sign: the sum of the shares' own and of the carry into it. Where it is 0, that
carry is the sum of two bits, each of which one party knows; so with U1 and V1 the bits below it and c the carry out of
the low f + 1 bits, the output is p Z, p = [x >= 0], Z = U1 + V1 + c - 2^(k-1) (u + v - 2 u v). A -1 that
is read as 0 becomes 0, too. Where nothing is rounded, f = 0, Z is x itself; then 2 x + w - 1 is read: -1 stays
negative, and 0 may be read as negative.

*Clip at a most M.* The bits from f + 1 on are read as a number S mod 2^k. With the threshold at M, or at M + 1 if that
has more factors of two, r = [0 <= S < threshold] and h = [S >= threshold, not negative] are functions of two digits
and of the carry into them; the output is r Z + h M, where bits above those of the threshold are 0 in Z.

The client's share is known before the image, as is the share w that it chooses of the result. So its digits go into
tables ahead (:mod:`mpc.carries`), and online four messages pass: the server's digits, the low and high results, the
top, and the result. Below are the public shape of a step (:class:`Rectifier`) and each party's turns, ahead, where
the client begins, and online, where the server does.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from privcirnet.he.mpc.carries import DigitTable, Merge, by_part, digits_of
from privcirnet.he.mpc.circuit import Circuit, cheapest_circuit
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
    ranges,
    read,
    residues,
    split,
    zeros,
)
from privcirnet.he.mpc.ot.session import OtSession, planes
from privcirnet.he.mpc.truncation import Floor
from privcirnet.he.program.exact import ExactStep, threshold
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


@dataclass(frozen=True)
class Rectifier:
    """The public shape of an exact ReLU of some values, rounded down.

    Attributes:
        t: modulus of the shares, odd, under 2^61, 1 mod 2^(f + 1), and mod 2^(f + 1 + k) for a clip.
        f: bits that go.
        m: modulus of the results, t or a power of two.
        bits: k: floor(x / 2^f) is at least -2^(k-1) and under 2^(k-1).
        most: M of a clip, under m and 2^(k-1); 0: a ReLU has none.
    """

    t: int
    f: int
    m: int
    bits: int
    most: int = 0

    def __post_init__(self) -> None:
        """Check what exactness needs."""
        twos = self.f + 1 + self.bits * self.clips
        if self.t % (1 << twos) != 1:
            raise ValueError(f"t must be 1 mod 2^{twos}, is {self.t}")
        if self.most and not 0 < self.most < min(self.m, 1 << self.bits >> 1):
            raise ValueError(f"a ReLU must clip under its modulus and 2^{self.bits - 1}, not at {self.most}")

    @property
    def clips(self) -> bool:
        """True if large values become the most."""
        return self.most > 0

    @property
    def unrounded(self) -> bool:
        """True if values between stay as they are."""
        return not self.f and self.m == self.t and not self.clips

    @property
    def low(self) -> bool:
        """True if the sign is read from the low bits; else all bits tell it, by the wrap of the shares."""
        return self.t % (2 << self.f + self.bits) == 1

    @property
    def high_bits(self) -> int:
        """Bits that are added beyond the low part, without the sign."""
        return self.f + self.bits - self.cut if self.low else (self.t1 + 1).bit_length()

    @property
    def t1(self) -> int:
        """Number t - 1 without its low bits."""
        return self.t - 1 >> self.cut

    @property
    def addends(self) -> tuple[int, int]:
        """Numbers that the client and the server add to their doubled shares, so that all bits carry where these wrap.

        With low bits nothing, but 1 less where nothing is rounded.
        """
        if self.low:
            return 0, -self.unrounded
        return 1 << self.cut, (1 << self.high_bits) - self.t1 - 1 << self.cut

    @property
    def cut(self) -> int:
        """Bits of the low parts."""
        return 0 if self.unrounded else self.f + 1

    @property
    def threshold(self) -> int:
        """Number from which values are clipped to M: see :func:`program.exact.threshold`; 0: none."""
        return threshold(self.most) if self.clips else 0

    @property
    def lifted(self) -> int:
        """Bits of the rounded values that stay; of the shares' sum the next bit is 0 there."""
        return (self.threshold - 1).bit_length() if self.clips else self.high_bits

    @property
    def wrap(self) -> int:
        """Number that is subtracted where the shares of a rounded value wrap."""
        return 1 << self.lifted if self.low else self.t1

    @cached_property
    def circuit(self) -> Circuit:
        """Digits, merges and the top."""
        return cheapest_circuit(self.cut, self.high_bits + 1, self.threshold)

    @property
    def digits(self) -> tuple[DigitTable, ...]:
        """All digits, low before high."""
        return self.circuit.digits

    @property
    def merges(self) -> tuple[Merge, ...]:
        """Merges, in which the client chooses; the first begins with the carry out of the low part, if there is one."""
        return self.circuit.merges

    @property
    def top(self) -> Merge:
        """Merge to the signs; the server chooses."""
        return self.circuit.top

    @property
    def signs(self) -> int:
        """Results of the top: whether a value stays, and of a clip whether it is the most."""
        return 1 + self.clips

    @property
    def summands(self) -> int:
        """Products that a result before the sign counts is made of: with the carry, and with the wrap."""
        return 0 if self.unrounded else 1 + (2 * self.wrap % self.m > 0)

    @property
    def products(self) -> int:
        """Bits of the server times numbers that the client knows ahead."""
        return 2 * self.summands + 1

    @cached_property
    def down(self) -> list[range]:
        """Slots of transfers in which the server chooses: for each digit, the top, the products."""
        return list(ranges([*(digit.bits for digit in self.digits), len(self.top.choices), self.products]))

    @cached_property
    def up(self) -> list[range]:
        """Slots in which the client chooses: for each merge, the last products."""
        return list(ranges([len(merge.choices) for merge in self.merges] + [self.signs]))

    @property
    def width(self) -> int:
        """Bits of a result."""
        return (self.m - 1).bit_length()

    @property
    def transfers(self) -> int:
        """Transfers of a value, in both directions."""
        return self.down[-1].stop + self.up[-1].stop

    def ahead_bits(self) -> tuple[int, int, int]:
        """Return bits a value of the messages ahead but for transfers: client's, server's, client's."""
        first, second = sum(m.flip_planes for m in self.merges), sum(m.help_planes for m in self.merges)
        tables = sum(digit.ahead_planes for digit in self.digits)
        clip, third = self.clips * self.width, tables + self.top.help_planes + self.products * self.width
        return first, second + self.top.flip_planes + clip, third

    def online_bits(self) -> tuple[tuple[int, ...], ...]:
        """Return bits a value of each part of the messages online, the server's first."""
        first = sum(digit.online_planes for digit in self.digits)
        second = sum(merge.online_planes for merge in self.merges)
        third = (self.top.online_planes + self.products, self.width)
        return (first,), (second,), third, (self.width + self.signs,)


def shape_of(step: ExactStep, t: int) -> Rectifier | Floor:
    """Return the shape of a program's step."""
    if step.rectifies:
        return Rectifier(t, step.bits, step.modulus or t, step.integer_bits, step.top)
    return Floor(t, step.bits, step.modulus or t, step.bound)


def client_planes(floor: Rectifier) -> list[int]:
    """Return the counts of what the client keeps in planes.

    They are its tables, choices, what it knows ahead of the results of merges, shares of their products and of the
    top's, and the bit of its share above those that are lifted.
    """
    tables = [digit.table_planes for digit in floor.digits]
    shares = [len(merge.products) for merge in floor.merges]
    return [
        *tables,
        floor.up[-1].stop,
        sum(merge.outputs for merge in floor.merges),
        *shares,
        len(floor.top.products),
        1,
    ]


def client_numbers(floor: Rectifier) -> int:
    """Return the count of the client's numbers: a key for each product, its addend, and parts of the last ones."""
    return floor.products + 1 + floor.signs


def server_planes(floor: Rectifier) -> list[int]:
    """Return the counts of what the server keeps in planes: as the client, and what it knows ahead of signs."""
    tables = [digit.table_planes for digit in floor.digits]
    shares = [len(merge.products) for merge in floor.merges]
    return [
        *tables,
        floor.down[-1].stop,
        sum(d.outputs for d in floor.digits),
        *shares,
        len(floor.top.products),
        floor.signs,
    ]


def server_numbers(floor: Rectifier) -> int:
    """Return the count of the server's numbers: its part of each product, and keys of the last."""
    return floor.products + 1 + floor.signs


def client_ahead(floor: Rectifier, share: Residues, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the client's turns ahead.

    Args:
        share: share of x, mod t, (values,), a multiple of 64 of them.

    Returns:
        its state for the image.
    """
    t, m, words = np.uint64(floor.t), floor.m, share.size // 64
    u = (share + share) % t
    added = u + np.uint64(floor.addends[0])
    u1, bit = _parted(floor, u)
    up, extension = transfers.choose(floor.up[-1].stop, share.size)
    ups = [up.some(slots) for slots in floor.up]
    flips = [merge.flips(ots) for merge, ots in zip(floor.merges, ups, strict=False)]
    received = yield [extension, joined(flips)]

    down = transfers.help(floor.down[-1].stop, share.size, received[0])
    downs = [down.some(slots) for slots in floor.down]
    inputs = zip(floor.digits, downs, digits_of(added, floor.digits), strict=False)
    tables = threads.each(lambda of: of[0].client_table(*of[1:]), inputs)
    sizes = [*(merge.help_planes for merge in floor.merges), floor.top.flip_planes, floor.clips * floor.width]
    *helped, top_flips, clip = read(received[1], sizes, words)
    shares = [merge.choose_ahead(c, p) for merge, c, p in zip(floor.merges, ups, helped, strict=False)]
    fresh = fresh_planes(sum(merge.outputs for merge in floor.merges), words)
    top, top_shares = floor.top.help_ahead(downs[-2], fresh, top_flips)
    wrapped = bits(bit) * np.uint64(floor.wrap % m)
    rounded = (minus(u1 % np.uint64(m), wrapped, m) + bits(fresh[0])) % np.uint64(m)
    constant = share if floor.unrounded else rounded
    numbers = _client_numbers(floor, fresh[0], bit, constant)
    keys = threads.each(lambda i: helper_keys(downs[-1], i, m), range(floor.products))
    offers = [offer_number(x, distance, m) for x, (_, distance) in zip(numbers, keys, strict=True)]
    last = [residues(ups[-1].keys[0], m)]
    last += [accept_number(ups[-1], 1, numbers_of(clip, m), m)] if floor.clips else []
    yield [joined([message for message, _ in tables] + [top]), packed(offers, floor.width)]

    stored = [table.reshape(-1, words) for _, table in tables] + [up.choices, fresh, *shares, top_shares, bit[None]]
    return OfflineState(np.concatenate(stored), np.array([first for first, _ in keys] + [constant] + last))


def _client_numbers(floor: Rectifier, carry: Residues, bit: Residues, constant: Residues) -> list[Residues]:
    """Return the numbers that the client offers for products.

    Args:
        carry: its share ahead, a plane: the carry is that plus the sign times the server's share.
        bit: the last of :func:`client_planes`.
        constant: addend of the result, (values,).
    """
    if floor.unrounded:
        return [constant]
    m, ones = floor.m, np.ones_like(constant)
    sign = pick(carry, ones, minus(zeros(ones), ones, m))
    summands = [sign, bits(bit) * np.uint64(2 * floor.wrap % m)][: floor.summands]
    return [*summands, constant, *summands]


def server_ahead(floor: Rectifier, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
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
    inputs = zip(floor.merges, map(up.some, floor.up), flips, strict=False)
    merged = threads.each(lambda of: of[0].help_ahead(of[1], fresh, of[2]), inputs)
    down, extension = transfers.choose(floor.down[-1].stop, values)
    downs = [down.some(slots) for slots in floor.down]
    top_flips = floor.top.flips(downs[-2])
    signs, last = fresh_planes(floor.signs, words), up.some(floor.up[-1])
    keys = [helper_keys(last, i, m) for i in range(floor.signs)]
    clip = [offer_number(number, keys[1][1], m) for number in _beyond(floor, signs)]
    outgoing = joined([*(message for message, _ in merged), top_flips]) + packed(clip, floor.width)
    received = yield [extension, outgoing]

    *parts, top = read(received[0], [*(d.ahead_planes for d in floor.digits), floor.top.help_planes], words)
    tables = threads.each(lambda of: of[0].server_table(*of[1:]), zip(floor.digits, downs, parts, strict=False))
    top_shares = floor.top.choose_ahead(downs[-2], top)
    offers = [numbers_of(part, m) for part in read(received[1], [floor.width] * floor.products, words)]
    numbers = threads.each(lambda i: accept_number(downs[-1], i, offers[i], m), range(floor.products))
    yield []

    shares = [share for _, share in merged]
    stored = [*(table.reshape(-1, words) for table in tables), down.choices, fresh, *shares, top_shares, signs]
    firsts = [first for first, _ in keys] + [distance for _, distance in keys[:1]]
    return OfflineState(np.concatenate(stored), np.array(numbers + firsts))


def client_online(floor: Rectifier, state: OfflineState, result: Residues) -> PartyCoroutine[None]:
    """Take the client's turns online.

    Args:
        result: its share, mod m, (values,), random and chosen ahead.

    Returns:
        nothing.
    """
    m, words = floor.m, state.planes.shape[1]
    *tables, choices, fresh, shares, top_shares, bit = _kept(floor, client_planes(floor), state)
    received = yield []
    parts = read(received[0], [d.online_planes for d in floor.digits], words)
    answers = [d.answer(d.shaped(table), part) for d, table, part in zip(floor.digits, tables, parts, strict=True)]
    results = np.concatenate(answers)
    merged = zip(floor.merges, floor.up, shares, by_part(fresh, floor.merges), strict=False)
    received = yield [joined([g.choose(results, choices[s.start : s.stop], p, f) for g, s, p, f in merged])]

    tops, flips = read(received[0], [floor.top.online_planes, floor.products], words)
    constant = state.numbers[floor.products]
    numbers = _client_numbers(floor, fresh[0], bit[0], constant)
    triples = zip(numbers, state.numbers[: floor.products], flips, strict=True)
    products = [helper_share(x, first, flip, m) for x, first, flip in triples]
    output = sum(products[: floor.summands], constant) % np.uint64(m)
    signs = floor.top.help(fresh, top_shares, tops)
    if not floor.clips:
        signs = ~(bit ^ signs)
    d = sum(products[floor.summands :], zeros(output)) % np.uint64(m)
    offered = numbers_of(read(received[1], [floor.width], words)[0], m)
    last, keys = choices[floor.up[-1].start :], state.numbers[floor.products + 1 :]
    parts = [chooser_part(keys[0], last[0], offered, m), *keys[1:]]
    triples = zip(signs, last, parts, strict=True)
    flips, selected = zip(*(choose_bit(bit, choice, part, m) for bit, choice, part in triples), strict=True)
    output = (d + bits(signs[0]) * minus(output, (d + d) % np.uint64(m), m) + sum(selected)) % np.uint64(m)
    yield [packed([minus(output, result, m)], floor.width) + joined(flips)]


def server_online(floor: Rectifier, state: OfflineState, share: Residues) -> PartyCoroutine[Residues]:
    """Take the server's turns online.

    Args:
        share: share of x, mod t, (values,).

    Returns:
        its share of the result, mod m, (values,).
    """
    t, m, words = np.uint64(floor.t), floor.m, state.planes.shape[1]
    *tables, choices, fresh, shares, top_shares, signs = _kept(floor, server_planes(floor), state)
    v = (share + share) % t
    added = v + np.uint64(floor.addends[1] % (1 << 64))
    high, bit = _parted(floor, added if floor.low else v)
    digits = digits_of(added, floor.digits)
    selections = zip(floor.digits, digits, floor.down, tables, by_part(fresh, floor.digits), strict=False)
    received = yield [joined([d.choose(x, choices[s.start : s.stop], d.shaped(y), f) for d, x, s, y, f in selections])]

    parts = read(received[0], [merge.online_planes for merge in floor.merges], words)
    merged = zip(floor.merges, shares, parts, strict=True)
    outputs = np.concatenate([merge.help(fresh, products, part) for merge, products, part in merged])
    carry = outputs[0]
    last = choices[floor.down[-1].start :]
    second = choices[floor.down[-2].start : floor.down[-2].stop]
    top = floor.top.choose(outputs, second, top_shares, signs if floor.clips else signs ^ bit)
    sign, summands = signs[0], [carry, bit][: floor.summands]
    flips, products = _chosen(floor, [*summands, sign, *(sign & plane for plane in summands)], last, state.numbers)
    rounded = minus(high % np.uint64(m), bits(bit) * np.uint64(floor.wrap % m), m)
    beta = share if floor.unrounded else rounded
    d = sum(products[floor.summands :], bits(sign) * beta) % np.uint64(m)
    rest = minus(sum(products[: floor.summands], beta) % np.uint64(m), (d + d) % np.uint64(m), m)
    *firsts, distance = state.numbers[floor.products :]
    received = yield [top.tobytes() + flips, packed([offer_number(rest, distance, m)], floor.width)]
    result, *flips = read(received[0], [floor.width, *[1] * floor.signs], words)
    terms = zip([rest, *_beyond(floor, signs)], firsts, flips, strict=True)
    helped = [helper_share(number, first, flip[0], m) for number, first, flip in terms]
    clipped = [bits(sign) * np.uint64(floor.most) for sign in signs[1:]]
    return (d + sum(helped + clipped) + numbers_of(result, m)) % np.uint64(m)


def _parted(floor: Rectifier, doubled: Residues) -> tuple[Residues, Residues]:
    """Return a party's share of the rounded value and a plane with the bit that tells whether it wraps."""
    rounded = doubled >> np.uint64(floor.cut)
    if not floor.low:
        return rounded, planes(doubled, 1)[0]
    return rounded & np.uint64((1 << floor.lifted) - 1), planes(rounded >> np.uint64(floor.lifted), 1)[0]


def _beyond(floor: Rectifier, signs: Residues) -> list[Residues]:
    """Return of a clip by how much h M changes with the client's part of h, (values,)."""
    ends = [np.full(64 * signs.shape[1], number, dtype=np.uint64) for number in (floor.most, floor.m - floor.most)]
    return [pick(sign, *ends) for sign in signs[1:]]


def _chosen(floor: Rectifier, bit: list[Residues], choices: Residues, parts: Residues) -> tuple[bytes, list[Residues]]:
    """Return the server's message of its products, and its shares."""
    pairs = [choose_bit(b, c, p, floor.m) for b, c, p in zip(bit, choices, parts, strict=False)]
    return joined([flip for flip, _ in pairs]), [share for _, share in pairs]


def _kept(floor: Rectifier, sizes: list[int], state: OfflineState) -> list[Any]:
    """Return a party's stored planes: tables, choices, fresh bits, shares of merges, of the top, a bit."""
    parts, digits = split(state.planes, sizes), len(floor.digits)
    return [*parts[:digits], *parts[digits : digits + 2], parts[digits + 2 : -2], *parts[-2:]]
