"""Exact floor(x / 2^f) of values in shares mod t, in one round trip.

Let t = 1 mod 2^(f+1), |x| <= B with 8 B < t, and U and V twice the shares of x + B mod t. They add up to 2 (x + B), or
to t more, exactly where U or V is above t / 2. With U1 and V1 without their low f + 1 bits, c the carry of those and
t1 = (t - 1) / 2^(f+1),

    floor(x / 2^f) = U1 + V1 + c - t1 [U or V is above t / 2] - B / 2^f.

The carry is read from digits, whose results are lifted to a number (:class:`mpc.carries.Lift`); of the wrap each party
knows a bit. Modulo a power of two that divides t1 there is none. Below are the public shape of a step and each party's
turns, as in :mod:`mpc.rectifier`. See docs/mathematics.md, "Exact floor and sign".
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.mpc.carries import DigitTable, Lift, by_part, digits_of
from privcirnet.he.mpc.circuit import LiftedCarry, cheapest_carry
from privcirnet.he.mpc.gadgets import (
    OfflineState,
    PartyCoroutine,
    accept_number,
    added,
    bits,
    choose_bit,
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
    split,
)
from privcirnet.he.mpc.ot.session import OtSession, planes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads


@dataclass(frozen=True)
class Floor:
    """The public shape of an exact floor of some values.

    Attributes:
        t: modulus of the shares, odd, under 2^61, 1 mod 2^(f + 1).
        f: bits that go.
        m: modulus of the results, t or a power of two.
        bound: B, a multiple of 2^f.
    """

    t: int
    f: int
    m: int
    bound: int

    def __post_init__(self) -> None:
        """Check what exactness needs."""
        if self.t % (2 << self.f) != 1:
            raise ValueError(f"t must be 1 mod 2^{self.f + 1}, is {self.t}")
        if self.bound % (1 << self.f) or not 0 < 8 * self.bound < self.t:
            raise ValueError(f"the bound must be a multiple of 2^{self.f} under t / 8, is {self.bound}")

    @property
    def width(self) -> int:
        """Bits of a result."""
        return (self.m - 1).bit_length()

    @property
    def wrap(self) -> int:
        """Number that is subtracted where the shares wrap."""
        return (self.t >> self.f + 1) % self.m

    @cached_property
    def circuit(self) -> LiftedCarry:
        """Digits, and the lift of their carry."""
        return cheapest_carry(self.f + 1, self.width)

    @property
    def digits(self) -> tuple[DigitTable, ...]:
        """Digits, low before high."""
        return self.circuit.digits

    @property
    def lift(self) -> Lift:
        """The carry out of the digits, of their results."""
        return self.circuit.lift

    @property
    def products(self) -> int:
        """Bits of the server times numbers that the client knows ahead: that of the wrap."""
        return int(self.wrap > 0)

    @cached_property
    def down(self) -> list[range]:
        """Slots of transfers in which the server chooses: for each digit, and the product."""
        return list(ranges([*(digit.bits for digit in self.digits), self.products]))

    @cached_property
    def up(self) -> list[range]:
        """Slots in which the client chooses."""
        return [range(len(self.lift.choices))]

    @property
    def transfers(self) -> int:
        """Transfers of a value, in both directions."""
        return self.down[-1].stop + self.up[-1].stop

    def ahead_bits(self) -> tuple[int, int, int]:
        """Return bits a value of the messages ahead but for transfers: client's, server's, client's."""
        tables = sum(digit.ahead_planes for digit in self.digits)
        return 0, self.up[-1].stop * self.width, tables + self.products * self.width

    def online_bits(self) -> tuple[tuple[int, ...], ...]:
        """Return bits a value of each part of the messages online, the server's first."""
        return (sum(d.online_planes for d in self.digits) + self.products,), (self.up[-1].stop + self.width,)


def client_planes(step: Floor) -> list[int]:
    """Return the counts of what the client keeps in planes: tables, choices, and whether its share is above t / 2."""
    return [*(digit.table_planes for digit in step.digits), step.up[-1].stop, 1]


def client_numbers(step: Floor) -> int:
    """Return the count of the client's numbers: a key for the product, the result's addend, and parts of the lift."""
    return step.products + 1 + step.up[-1].stop


def server_planes(step: Floor) -> list[int]:
    """Return the counts of what the server keeps in planes: its tables, choices, and what it knows of their results."""
    tables = [digit.table_planes for digit in step.digits]
    return [*tables, step.down[-1].stop, sum(digit.outputs for digit in step.digits)]


def server_numbers(step: Floor) -> int:
    """Return the count of the server's numbers: its part of the product, and keys of the lift."""
    return step.products + step.up[-1].stop


def client_ahead(step: Floor, share: Residues, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the client's turns ahead.

    Args:
        share: share of x, mod t, (values,), a multiple of 64 of them.

    Returns:
        its state for the image.
    """
    m, words, choices = step.m, share.size // 64, step.up[-1].stop
    doubled, above = _doubled(step, share)
    up, extension = transfers.choose(choices, share.size)
    received = yield [extension, b""]

    down = transfers.help(step.down[-1].stop, share.size, received[0])
    downs = [down.some(slots) for slots in step.down]
    inputs = zip(step.digits, downs, digits_of(doubled, step.digits), strict=False)
    tables = threads.each(lambda of: of[0].client_table(*of[1:]), inputs)
    offers = [numbers_of(part, m) for part in read(received[1], [step.width] * choices, words)]
    parts = threads.each(lambda i: accept_number(up, i, offers[i], m), range(choices))
    keys = [helper_keys(downs[-1], i, m) for i in range(step.products)]
    wraps = [offer_number(_unwrapped(step, above), distance, m) for _, distance in keys]
    yield [joined([message for message, _ in tables]), packed(wraps, step.width)]

    stored = [*(table.reshape(-1, words) for _, table in tables), up.choices, above[None]]
    constant = minus(_rounded(step, doubled), bits(above) * np.uint64(step.wrap), m)
    return OfflineState(np.concatenate(stored), np.array([*(first for first, _ in keys), constant, *parts]))


def server_ahead(step: Floor, values: int, transfers: OtSession) -> PartyCoroutine[OfflineState]:
    """Take the server's turns ahead.

    Args:
        values: number of values, a multiple of 64.

    Returns:
        its state for the image.
    """
    words, m = values // 64, step.m
    received = yield []
    up = transfers.help(step.up[-1].stop, values, received[0])
    read(received[1], [], words)
    fresh = fresh_planes(sum(digit.outputs for digit in step.digits), words)
    keys = threads.each(lambda i: helper_keys(up, i, m), range(step.up[-1].stop))
    _, *numbers = step.lift.numbers(fresh, m)
    offers = [offer_number(number, distance, m) for number, (_, distance) in zip(numbers, keys, strict=True)]
    down, extension = transfers.choose(step.down[-1].stop, values)
    downs = [down.some(slots) for slots in step.down]
    received = yield [extension, packed(offers, step.width)]

    parts = read(received[0], [digit.ahead_planes for digit in step.digits], words)
    tables = threads.each(lambda of: of[0].server_table(*of[1:]), zip(step.digits, downs, parts, strict=False))
    wraps = [numbers_of(part, m) for part in read(received[1], [step.width] * step.products, words)]
    products = [accept_number(downs[-1], i, wrap, m) for i, wrap in enumerate(wraps)]
    yield []
    stored = [*(table.reshape(-1, words) for table in tables), down.choices, fresh]
    return OfflineState(np.concatenate(stored), np.array([*products, *(first for first, _ in keys)]))


def client_online(step: Floor, state: OfflineState, result: Residues) -> PartyCoroutine[None]:
    """Take the client's turns online.

    Args:
        result: its share, mod m, (values,), random and chosen ahead.

    Returns:
        nothing.
    """
    m, words = step.m, state.planes.shape[1]
    *tables, choices, above = split(state.planes, client_planes(step))
    received = yield []
    *parts, flips = read(received[0], [*(d.online_planes for d in step.digits), step.products], words)
    answers = [d.answer(d.shaped(table), part) for d, table, part in zip(step.digits, tables, parts, strict=True)]
    chosen = zip(step.lift.bits(np.concatenate(answers)), choices, state.numbers[step.products + 1 :], strict=True)
    sent, lifted = zip(*(choose_bit(bit, choice, part, m) for bit, choice, part in chosen), strict=True)
    wraps = zip(state.numbers[: step.products], flips, strict=True)
    wrapped = [helper_share(_unwrapped(step, above[0]), first, flip, m) for first, flip in wraps]
    output = added([*wrapped, *lifted, state.numbers[step.products]], m)
    yield [joined(sent) + packed([minus(output, result, m)], step.width)]


def server_online(step: Floor, state: OfflineState, share: Residues) -> PartyCoroutine[Residues]:
    """Take the server's turns online.

    Args:
        share: share of x, mod t, (values,).

    Returns:
        its share of the result, mod m, (values,).
    """
    m, words = step.m, state.planes.shape[1]
    *tables, choices, fresh = split(state.planes, server_planes(step))
    doubled, above = _doubled(step, (share + np.uint64(step.bound)) % np.uint64(step.t))
    digits, shifts = digits_of(doubled, step.digits), split(choices, [len(slots) for slots in step.down])
    inputs = zip(step.digits, digits, shifts, tables, by_part(fresh, step.digits), strict=False)
    said = [d.choose(digit, shift, d.shaped(table), known) for d, digit, shift, table, known in inputs]
    wraps = [choose_bit(above, choice, part, m) for choice, part in zip(shifts[-1], state.numbers, strict=False)]
    received = yield [joined([*said, *(flip for flip, _ in wraps)])]

    *flips, result = read(received[0], [1] * step.up[-1].stop + [step.width], words)
    addend, *numbers = step.lift.numbers(fresh, m)
    offered = zip(numbers, state.numbers[step.products :], flips, strict=True)
    lifted = [helper_share(number, first, flip[0], m) for number, first, flip in offered]
    offset = np.full_like(addend, (step.bound >> step.f) % m)
    rounded = minus(_rounded(step, doubled), offset, m)
    return added([addend, *lifted, *(share for _, share in wraps), numbers_of(result, m), rounded], m)


def _doubled(step: Floor, share: Residues) -> tuple[Residues, Residues]:
    """Return twice a share, and a plane that tells whether that is above t / 2."""
    doubled = (share + share) % np.uint64(step.t)
    return doubled, planes((doubled > np.uint64(step.t >> 1)).astype(np.uint64), 1)[0]


def _rounded(step: Floor, doubled: Residues) -> Residues:
    """Return a doubled share without its low bits."""
    return (doubled >> np.uint64(step.f + 1)) % np.uint64(step.m)


def _unwrapped(step: Floor, above: Residues) -> Residues:
    """Return the client's number that the server's bit of the wrap multiplies; ``above``: the client's bit, a plane."""
    none = np.zeros(64 * len(above), dtype=np.uint64)
    return pick(above, np.full_like(none, step.m - step.wrap), none)
