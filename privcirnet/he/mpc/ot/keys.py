"""Random transfers of many values: keys by slot and value, of correlated transfers and a hash."""

from dataclasses import dataclass

import numpy as np

from privcirnet.he.mpc.kernels import blocks
from privcirnet.he.mpc.kernels.planes import planes_into
from privcirnet.he.mpc.ot.ciphers import Hash
from privcirnet.he.mpc.ot.softspoken import Correlated
from privcirnet.he.ring.modular import Residues


@dataclass(frozen=True)
class Offered:
    """The helper's: both keys of each slot and value, (2, slots, values, 2)."""

    keys: Residues

    @classmethod
    def of(cls, made: Correlated, delta: Residues, values: int, hashed: Hash, first: int) -> "Offered":
        """Return the keys of transfers; ``first``: the number of the first, which no hash had before."""
        keys = np.empty((2, *made.rows.shape), dtype=np.uint64)
        keys[0] = made.rows
        blocks.add_to_each(keys[1], made.rows, delta)
        for key in (0, 1):
            hashed(keys[key], first, keys[key])
        return cls(keys.reshape(2, -1, values, 2))

    def planes(self, slot: int, bits: int) -> tuple[Residues, Residues]:
        """Return bits of both keys of a slot, (bits, values / 64)."""
        return planes(self.keys[0, slot, :, 0], bits), planes(self.keys[1, slot, :, 0], bits)

    def some(self, slots: range) -> "Offered":
        """Return the keys of some slots."""
        return Offered(self.keys[:, slots.start : slots.stop])


@dataclass(frozen=True)
class Chosen:
    """The chooser's: bits of its choice, (slots, values / 64), and their keys, (slots, values, 2)."""

    choices: Residues
    keys: Residues

    @classmethod
    def of(cls, made: Correlated, values: int, hashed: Hash, first: int) -> "Chosen":
        """Return the keys of transfers; ``first``: as the helper's."""
        assert made.choices is not None
        return cls(made.choices.reshape(-1, values // 64), hashed(made.rows, first, made.rows).reshape(-1, values, 2))

    def planes(self, slot: int, bits: int) -> Residues:
        """Return bits of the keys of a slot, (bits, values / 64)."""
        return planes(self.keys[slot, :, 0], bits)

    def some(self, slots: range) -> "Chosen":
        """Return the choices and keys of some slots."""
        return Chosen(self.choices[slots.start : slots.stop], self.keys[slots.start : slots.stop])


def planes(values: Residues, bits: int) -> Residues:
    """Return the lowest bits of values as planes, (bits, values / 64)."""
    found = np.empty((bits, len(values) // 64), dtype=np.uint64)
    planes_into(found, np.ascontiguousarray(values))
    return found
