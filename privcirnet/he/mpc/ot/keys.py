"""Random transfers of many values: keys by slot and value, of correlated transfers and a hash."""

from dataclasses import dataclass, replace

import numpy as np

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.kernels.planes import planes_into
from privcirnet.he.mpc.ot.ciphers import TweakableHash
from privcirnet.he.mpc.ot.softspoken import CorrelatedOts
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class RotKeys:
    """The hashes of rows, made when a slot is asked for: soon used up, they are never all in memory.

    Attributes:
        rows: (slots, values, 2).
        hashed: hash of the session.
        first: the number of the first row, which no other row had.
        shift: addend of each row; None for none.
    """

    rows: Residues
    hashed: TweakableHash
    first: int
    shift: Residues | None = None

    def __getitem__(self, slot: int) -> Residues:
        """Return the keys of a slot, (values, 2)."""
        rows = self.rows[slot]
        if self.shift is not None:
            blocks.add_to_each(shifted := np.empty_like(rows), rows, self.shift)
            rows = shifted
        return self.hashed(rows, self.first + slot * len(rows))

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        return planes(self[slot][:, 0], bits)

    def some(self, slots: range) -> "RotKeys":
        """Return the keys of some slots."""
        rows = self.rows[slots.start : slots.stop]
        return replace(self, rows=rows, first=self.first + slots.start * rows.shape[1])


@dataclass(frozen=True)
class SenderOts:
    """The helper's keys, both of each slot and value."""

    keys: tuple[RotKeys, RotKeys]

    @classmethod
    def of(
        cls, correlated: CorrelatedOts, delta: Residues, values: int, hashed: TweakableHash, first: int
    ) -> "SenderOts":
        """Return the keys of transfers; ``first``: the number of the first, which no hash had before."""
        rows = correlated.rows.reshape(-1, values, 2)
        return cls((RotKeys(rows, hashed, first), RotKeys(rows, hashed, first, delta)))

    def planes(self, slot: int, bits: int) -> tuple[Residues, Residues]:
        """Return bits of both keys of a slot, (bits, values / 64)."""
        first, second = self.keys
        return first.planes(slot, bits), second.planes(slot, bits)

    def some(self, slots: range) -> "SenderOts":
        """Return the keys of some slots."""
        first, second = self.keys
        return SenderOts((first.some(slots), second.some(slots)))


@dataclass(frozen=True)
class ReceiverOts:
    """The chooser's choice bits, (slots, values / 64), and their keys."""

    choices: Residues
    keys: RotKeys

    @classmethod
    def of(cls, correlated: CorrelatedOts, values: int, hashed: TweakableHash, first: int) -> "ReceiverOts":
        """Return the keys of transfers; ``first``: as the helper's."""
        assert correlated.choices is not None
        return cls(
            correlated.choices.reshape(-1, values // 64), RotKeys(correlated.rows.reshape(-1, values, 2), hashed, first)
        )

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        return self.keys.planes(slot, bits)

    def some(self, slots: range) -> "ReceiverOts":
        """Return the choices and keys of some slots."""
        return ReceiverOts(self.choices[slots.start : slots.stop], self.keys.some(slots))


def planes(values: Residues, bits: int) -> Residues:
    """Return the lowest bits of values as planes, (bits, values / 64)."""
    rows = np.empty((bits, len(values) // 64), dtype=np.uint64)
    planes_into(rows, np.ascontiguousarray(values))
    return rows
