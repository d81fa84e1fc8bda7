"""An image axis cut into tiles, each a cyclic correlation of its own.

Outputs [u0, u0 + h) of a tile read x_phase[u0 + m] for lowest tap <= m <= h - 1 + highest tap. Value m sits at place
m mod N of a cycle of length N. That is right if no value that is not zero shares its place with another one that is
read, so N may be smaller than the window: one run of zeros serves both borders of a map (he.md 2.1), and a "same"
kernel of size R on an untiled axis of H values needs N = H + (R - 1) / 2 only. All tiles of an axis have the same N.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privcirnet.he.encodings.shape import Axis


@dataclass(frozen=True)
class TiledAxis:
    """An axis in tiles of ``tile`` outputs (the last may have fewer).

    Attributes:
        axis: the axis.
        tile: h, outputs of a tile.
    """

    axis: Axis
    tile: int

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.axis.outputs // self.tile)

    @cached_property
    def length(self) -> int:
        """N, the smallest cyclic length that will do."""
        if not self.axis.transformed:
            return self.tile
        return max(self.tile, *(self._least(start, phase) for start in self._unlike for phase in self.axis.taps))

    @property
    def spectral_length(self) -> int:
        """Extent of a weight's spectrum: 1 if the axis is not transformed (the value repeats over positions)."""
        return self.length if self.axis.transformed else 1

    @property
    def outputs(self) -> npt.NDArray[np.int64]:
        """(H',) place of each output in the flattened (count, N)."""
        tile, place = np.divmod(np.arange(self.axis.outputs), self.tile)
        return tile * self.length + place

    def sources(self, phase: int) -> npt.NDArray[np.int64]:
        """(count, N) position in the phase image of the value at each place; ``stored(phase)`` where it is zero."""
        stored = self.axis.stored(phase)
        found = np.full((self.count, self.length), stored, dtype=np.int64)
        for tile, start in enumerate(self._starts):
            lowest, highest = self._held(start, phase)
            m = np.arange(lowest, highest + 1)
            found[tile, m % self.length] = start + m
        return found

    @property
    def _starts(self) -> range:
        return range(0, self.axis.outputs, self.tile)

    @property
    def _unlike(self) -> list[int]:
        """Starts of the tiles near either end: all others read full windows, as the last of the first ones does."""
        near = 1 + -(-(self.axis.kernel + self.tile) // self.tile)
        return [*self._starts[:near], *self._starts[-near:]]

    def _window(self, start: int, phase: int) -> tuple[int, int]:
        """(first, last) m that a tile reads."""
        lowest, highest = self.axis.reach(phase)
        return lowest, min(self.tile, self.axis.outputs - start) - 1 + highest

    def _held(self, start: int, phase: int) -> tuple[int, int]:
        """(first, last) m that a tile reads and that lies in the phase image."""
        first, last = self._window(start, phase)
        return max(first, -start), min(last, self.axis.stored(phase) - 1 - start)

    def _least(self, start: int, phase: int) -> int:
        (first, last), (lowest, highest) = self._window(start, phase), self._held(start, phase)
        return max(highest - first, last - lowest) + 1 if lowest <= highest else 1
