"""Slot encoding of real maps: the ciphertext and the slot of each value of a layer.

Channel after channel, each map row by row. A ciphertext has n / 2 slots with one real number in each, so that one
EvalMod refreshes it and a square needs no parts. Layers with fewer values are repeated until all slots are full: then
rotations are cyclic in the layer's own values. Layers with more take several ciphertexts of whole channels.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals, Slots


@dataclass(frozen=True)
class Layout:
    """Positions of a layer's values in slots.

    Attributes:
        channels: C, a power of two, at least 2.
        size: width s of a map, H = W, a power of two.
        slots: n / 2.
    """

    channels: int
    size: int
    slots: int

    def __post_init__(self) -> None:
        for name, value, smallest in (("channels", self.channels, 2), ("the width of a map", self.size, 1)):
            if value < smallest or value & (value - 1):
                rule, remedy = f"{name} must be a power of two of {smallest} or more", "pad it with zeros"
                raise RuleError(rule, got=value, remedy=remedy)
        if self.area > self.slots:
            rule, remedy = "a map must fit a ciphertext", "use a larger ring"
            raise RuleError(rule, got=f"{self.area} values for {self.slots} slots", remedy=remedy)

    @property
    def area(self) -> int:
        """Values of a map."""
        return self.size * self.size

    @property
    def own(self) -> int:
        """Channels of a ciphertext."""
        return min(self.channels, self.slots // self.area)

    @property
    def period(self) -> int:
        """Slots after which the values of a ciphertext are repeated."""
        return self.own * self.area

    @property
    def parts(self) -> int:
        """Ciphertexts of a layer."""
        return self.channels // self.own

    def spread(self, values: Reals) -> list[Reals]:
        """Return a number of each channel in all slots of the channel, for each ciphertext.

        Args:
            values: shape (C' <= C,); what is missing is zero.
        """
        return [part.real for part in self.encode(np.tile(values[:, None, None], (1, self.size, self.size)))]

    def encode(self, maps: Reals) -> list[Slots]:
        """Return the slots of each ciphertext.

        Args:
            maps: shape (C' <= C, s, s); what is missing is zero.
        """
        whole = np.zeros((self.channels, self.area), dtype=np.complex128)
        whole[: len(maps)] = maps.reshape(len(maps), self.area)
        return [np.tile(part.reshape(-1), self.slots // self.period) for part in np.split(whole, self.parts)]

    def decode(self, parts: Sequence[Slots]) -> Reals:
        """Return the maps of slots, shape (C, s, s)."""
        values = np.concatenate([part[: self.period].real for part in parts])
        return values.reshape(self.channels, self.size, self.size)
