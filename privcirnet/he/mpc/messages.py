"""Messages and state of exact steps: planes, a word for 64 values, and numbers, as planes of their bits.

The party that begins yields a message's parts and is sent those of the answer; the other yields an empty list first.
"""

import os
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.mpc.kernels.planes import values_into
from privcirnet.he.mpc.ot.keys import planes
from privcirnet.he.mpc.ot.session import Parts
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
    ends = np.cumsum([0, *sizes]).tolist()
    return [rows[start:end] for start, end in pairwise(ends)]


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
