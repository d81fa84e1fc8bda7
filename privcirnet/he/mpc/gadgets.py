"""Building blocks of exact steps: messages and state, and a bit of one party times a number of the other.

Messages have planes, a word for 64 values, and numbers, as planes of their bits. The party that begins yields a
message's parts and is sent those of the answer; the other yields an empty list first.

A bit times a number, in shares mod m, is a correlated transfer. The helper knows the number ahead or learns it online;
the chooser learns its bit online and says whether it differs from its transfer's choice.
"""

import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels.planes import Modulus, residues_into, values_into
from privcirnet.he.mpc.ot.session import Parts, ReceiverOts, SenderOts, planes
from privcirnet.he.ring.modular import Residues
from privcirnet.he.rlwe.wire_bytes import Message, check_length

T = TypeVar("T")
PartyCoroutine = Generator[Parts, Parts, T]


@dataclass(frozen=True)
class OfflineState:
    """A party's state for the image: (planes, words) and (numbers, values). All of it serves once."""

    planes: Residues
    numbers: Residues


def fresh_planes(count: int, words: int) -> Residues:
    """Return random planes, (count, words)."""
    return np.frombuffer(os.urandom(8 * count * words), dtype=np.uint64).reshape(count, words)


def split(rows: Residues, sizes: Sequence[int]) -> list[Residues]:
    """Return rows in parts of so many each."""
    return [rows[part.start : part.stop] for part in ranges(sizes)]


def ranges(sizes: Sequence[int]) -> Iterator[range]:
    """Return ranges of so many numbers each, one after the other."""
    return (range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def joined(parts: Sequence[Residues]) -> bytes:
    """Return planes as a message."""
    return b"".join(part.tobytes() for part in parts)


def read(message: Message, sizes: Sequence[int], words: int) -> list[Residues]:
    """Return a message's parts, so many planes each.

    Raises:
        RuleError: it has another length.
    """
    check_length(message, 8 * words * sum(sizes), "a message of an exact step")
    return split(np.frombuffer(message, dtype=np.uint64).reshape(-1, words), sizes)


def packed(numbers: Sequence[Residues], width: int) -> bytes:
    """Return numbers as planes, so many bits each."""
    return joined([planes(number, width) for number in numbers])


def numbers_of(bit_planes: Residues, m: int) -> Residues:
    """Return the numbers of planes, (values,) of (bits, words).

    Raises:
        RuleError: a number is not under m.
    """
    values = np.empty(64 * bit_planes.shape[1], dtype=np.uint64)
    values_into(values, np.ascontiguousarray(bit_planes))
    if values.size and int(values.max()) >= m:
        raise RuleError("shares must be under their modulus", got=int(values.max()), remedy="send the message again")
    return values


def helper_keys(offered: SenderOts, slot: int, m: int) -> tuple[Residues, Residues]:
    """Return the first key of a slot mod m and how far it is from the second, (values,)."""
    first, second = offered.residues(slot, m)
    return first, minus(first, second, m)


def offer_number(number: Residues, distance: Residues, m: int) -> Residues:
    """Return the helper's message.

    Args:
        number: mod m, (values,).
        distance: difference of its keys.
    """
    return (number + distance) % np.uint64(m)


def helper_share(number: Residues, first: Residues, flip: Residues, m: int) -> Residues:
    """Return the helper's share of bit x number.

    Args:
        number: number that it offered.
        first: first key of the helper.
        flip: the chooser's message, a plane.
    """
    return pick(flip, minus(zeros(number), first, m), (number + first) % np.uint64(m))


def accept_number(ots: ReceiverOts, slot: int, message: Residues, m: int) -> Residues:
    """Return the chooser's part, of choice x number; ``message``: the helper's."""
    return chooser_part(ots.residues(slot, m), ots.choices[slot], message, m)


def chooser_part(key: Residues, choice: Residues, message: Residues, m: int) -> Residues:
    """Return the chooser's part, of choice x number.

    Args:
        key: mod m, of the choice of the transfer.
        choice: a plane.
        message: message of the helper.
    """
    return (key + bits(choice) * message) % np.uint64(m)


def choose_bit(bit: Residues, choice: Residues, part: Residues, m: int) -> tuple[Residues, Residues]:
    """Return the chooser's message, a plane, and its share of bit x number.

    Args:
        bit: a plane.
        choice: choice of the transfer, a plane.
        part: result of :func:`accept_number`.
    """
    flip = bit ^ choice
    return flip, pick(flip, part, minus(zeros(part), part, m))


def residues(keys: Residues, m: int) -> Residues:
    """Return keys mod m, (values,) of (values, 2): within m 2^-128 of uniform; ``m``: under 2^62."""
    reduced = np.empty(len(keys), dtype=np.uint64)
    residues_into(reduced, np.ascontiguousarray(keys), Modulus.of(m))
    return reduced


def minus(a: Residues, b: Residues, m: int) -> Residues:
    """Return a - b mod m, of values under m."""
    return (a + (np.uint64(m) - b)) % np.uint64(m)


def added(parts: Sequence[Residues], m: int) -> Residues:
    """Return the sum mod m of values under m, reduced as often as a word needs; ``m``: under 2^62."""
    total, at_once = zeros(parts[0]), (1 << 64) // m - 1
    for start in range(0, len(parts), at_once):
        total = sum(parts[start : start + at_once], total) % np.uint64(m)
    return total


def zeros(like: Residues) -> Residues:
    """Return as many zeros."""
    return np.zeros_like(like)


def bits(plane: Residues) -> Residues:
    """Return a plane as zeros and ones, (values,) of (values / 64,)."""
    return np.unpackbits(plane.view(np.uint8), bitorder="little").astype(np.uint64)


def pick(plane: Residues, if_zero: Residues, if_one: Residues) -> Residues:
    """Return ``if_one`` where the plane has a bit and ``if_zero`` elsewhere, without a branch."""
    return if_zero ^ ((if_zero ^ if_one) & (np.uint64(0) - bits(plane)))
