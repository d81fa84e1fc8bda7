"""Random transfers of many values: keys by slot and value, of correlated transfers and a hash."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.kernels.planes import planes_into
from privcirnet.he.mpc.ot.ciphers import Hash
from privcirnet.he.mpc.ot.softspoken import Correlated
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system import threads

_AT_ONCE = 1 << 13
"""Rows that stay in the cache while they are hashed."""


@dataclass(frozen=True)
class Keys:
    """The hashes of rows, made when a slot is asked for: a slot is asked for once, and its keys are soon used up.

    Attributes:
        rows: (slots, values, 2).
        hashed: of the session.
        first: the number of the first row, which no hash had before.
        shift: is added to each row; None for nothing.
    """

    rows: Residues
    hashed: Hash
    first: int
    shift: Residues | None = None

    def __getitem__(self, slot: int) -> Residues:
        """Return the keys of a slot, (values, 2)."""
        found = np.empty_like(self.rows[slot])

        def write(some: slice, keys: Residues) -> None:
            found[some] = keys

        self._each(slot, write)
        return found

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        found = np.empty((bits, self.rows.shape[1] // 64), dtype=np.uint64)

        def write(some: slice, keys: Residues) -> None:
            found[:, some.start // 64 : some.stop // 64] = planes(keys[:, 0], bits)

        self._each(slot, write)
        return found

    def _each(self, slot: int, use: Callable[[slice, Residues], None]) -> None:
        rows, first = self.rows[slot], self.first + slot * self.rows.shape[1]

        def hash_some(start: int) -> None:
            some = slice(start, min(start + _AT_ONCE, len(rows)))
            own = rows[some]
            if self.shift is not None:
                own = np.empty_like(own)
                blocks.add_to_each(own, rows[some], self.shift)
            use(some, self.hashed(own, first + start))

        threads.each(hash_some, range(0, len(rows), _AT_ONCE))

    def some(self, slots: range) -> "Keys":
        """Return the keys of some slots."""
        rows = self.rows[slots.start : slots.stop]
        return Keys(rows, self.hashed, self.first + slots.start * self.rows.shape[1], self.shift)


@dataclass(frozen=True)
class Offered:
    """The helper's: both keys of each slot and value."""

    keys: tuple[Keys, Keys]

    @classmethod
    def of(cls, made: Correlated, delta: Residues, values: int, hashed: Hash, first: int) -> "Offered":
        """Return the keys of transfers; ``first``: the number of the first, which no hash had before."""
        rows = made.rows.reshape(-1, values, 2)
        return cls((Keys(rows, hashed, first), Keys(rows, hashed, first, delta)))

    def planes(self, slot: int, bits: int) -> tuple[Residues, Residues]:
        """Return bits of both keys of a slot, (bits, values / 64)."""
        first, second = self.keys
        return first.planes(slot, bits), second.planes(slot, bits)

    def some(self, slots: range) -> "Offered":
        """Return the keys of some slots."""
        first, second = self.keys
        return Offered((first.some(slots), second.some(slots)))


@dataclass(frozen=True)
class Chosen:
    """The chooser's: bits of its choice, (slots, values / 64), and their keys."""

    choices: Residues
    keys: Keys

    @classmethod
    def of(cls, made: Correlated, values: int, hashed: Hash, first: int) -> "Chosen":
        """Return the keys of transfers; ``first``: as the helper's."""
        assert made.choices is not None
        return cls(made.choices.reshape(-1, values // 64), Keys(made.rows.reshape(-1, values, 2), hashed, first))

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        return self.keys.planes(slot, bits)

    def some(self, slots: range) -> "Chosen":
        """Return the choices and keys of some slots."""
        return Chosen(self.choices[slots.start : slots.stop], self.keys.some(slots))


def planes(values: Residues, bits: int) -> Residues:
    """Return the lowest bits of values as planes, (bits, values / 64)."""
    found = np.empty((bits, len(values) // 64), dtype=np.uint64)
    planes_into(found, np.ascontiguousarray(values))
    return found
