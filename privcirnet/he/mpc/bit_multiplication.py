"""A bit of one party times a number of the other, in shares mod m: a correlated transfer each.

The helper knows the number ahead or learns it online; the chooser learns its bit online and says whether it differs
from its transfer's choice.
"""

import numpy as np

from privcirnet.he.mpc.kernels.numbers import residues_into
from privcirnet.he.mpc.ot.keys import ReceiverOts, SenderOts
from privcirnet.he.ring.kernels.arithmetic import with_quotient
from privcirnet.he.ring.modular import Residues


def helper_keys(offered: SenderOts, slot: int, m: int) -> tuple[Residues, Residues]:
    """Return the first key of a slot mod m and how far it is from the second, (values,)."""
    first, second = (residues(key[slot], m) for key in offered.keys)
    return first, minus(first, second, m)


def offer(number: Residues, distance: Residues, m: int) -> Residues:
    """Return the helper's message.

    Args:
        number: mod m, (values,).
        distance: difference of its keys.
    """
    return (number + distance) % np.uint64(m)


def helped(number: Residues, first: Residues, flip: Residues, m: int) -> Residues:
    """Return the helper's share of bit x number.

    Args:
        number: number that it offered.
        first: first key of the helper.
        flip: the chooser's message, a plane.
    """
    return pick(flip, minus(zeros(number), first, m), (number + first) % np.uint64(m))


def accept(ots: ReceiverOts, slot: int, message: Residues, m: int) -> Residues:
    """Return the chooser's part, of choice x number; ``message``: the helper's."""
    return taken(residues(ots.keys[slot], m), ots.choices[slot], message, m)


def taken(key: Residues, choice: Residues, message: Residues, m: int) -> Residues:
    """Return the chooser's part, of choice x number.

    Args:
        key: mod m, of the choice of the transfer.
        choice: a plane.
        message: message of the helper.
    """
    return (key + bits(choice) * message) % np.uint64(m)


def choose(bit: Residues, choice: Residues, part: Residues, m: int) -> tuple[Residues, Residues]:
    """Return the chooser's message, a plane, and its share of bit x number.

    Args:
        bit: a plane.
        choice: choice of the transfer, a plane.
        part: result of :func:`accept`.
    """
    flip = bit ^ choice
    return flip, pick(flip, part, minus(zeros(part), part, m))


def residues(keys: Residues, m: int) -> Residues:
    """Return keys mod m, (values,) of (values, 2): within m 2^-128 of uniform; ``m``: under 2^62."""
    reduced = np.empty(len(keys), dtype=np.uint64)
    word, unit = with_quotient((1 << 64) % m, m), with_quotient(1, m)
    residues_into(reduced, np.ascontiguousarray(keys), np.uint64(m), word, unit)
    return reduced


def minus(a: Residues, b: Residues, m: int) -> Residues:
    """Return a - b mod m, of values under m."""
    return (a + (np.uint64(m) - b)) % np.uint64(m)


def zeros(like: Residues) -> Residues:
    """Return as many zeros."""
    return np.zeros_like(like)


def bits(plane: Residues) -> Residues:
    """Return a plane as zeros and ones, (values,) of (values / 64,)."""
    return np.unpackbits(plane.view(np.uint8), bitorder="little").astype(np.uint64)


def pick(plane: Residues, if_zero: Residues, if_one: Residues) -> Residues:
    """Return ``if_one`` where the plane has a bit and ``if_zero`` elsewhere, without a branch."""
    return if_zero ^ ((if_zero ^ if_one) & (np.uint64(0) - bits(plane)))
