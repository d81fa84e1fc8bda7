"""An image axis split into tiles of outputs, each with the halo of inputs that its kernel reads.

Outputs [u0, u0 + h) of a tile read x_phase[u0 + m] for lowest tap <= m <= h - 1 + highest tap. A tile is a cyclic
correlation of its own, of length N. Value m sits at place m mod N, so values left of the first output wrap around to
the end. That is right if no value that is not zero shares its place with another one that is read.

For a whole map one run of zeros serves both borders, and a "same" kernel of size R on H values needs
N = H + (R - 1) / 2 places only (docs/mathematics.md, "Transform lengths").
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.layers.shape import Axis
from privcirnet.he.ring.modular import Integers


@dataclass(frozen=True)
class TiledAxis:
    """An axis in tiles of ``tile`` outputs (the last may have fewer).

    Attributes:
        tile: h, outputs of a tile.
    """

    axis: Axis
    tile: int

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.axis.outputs // self.tile)

    @property
    def starts(self) -> range:
        """The number u0 of each tile's first output."""
        return range(0, self.axis.outputs, self.tile)

    def outputs_from(self, start: int) -> int:
        """Return the number of outputs of the tile whose first is ``start``; ``start``: u0."""
        return min(self.tile, self.axis.outputs - start)


@dataclass(frozen=True)
class CyclicTiles(TiledAxis):
    """Tiles that are cyclic correlations, all of the same length N, which may be smaller than the window they read."""

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
    def output_places(self) -> Integers:
        """Place of each output among (tiles, N), flattened; shape (H',)."""
        tile, place = np.divmod(np.arange(self.axis.outputs), self.tile)
        return tile * self.length + place

    def sources(self, phase: int) -> Integers:
        """Return the position in a phase image of the value at each place.

        Returns:
            positions, shape (tiles, N); ``axis.stored(phase)``, one beyond the image, where the place holds a zero.
        """
        stored = self.axis.stored(phase)
        sources = np.full((self.count, self.length), stored, dtype=np.int64)
        for tile, start in enumerate(self.starts):
            lowest, highest = self._held(start, phase)
            m = np.arange(lowest, highest + 1)
            sources[tile, m % self.length] = start + m
        return sources

    @property
    def _unlike(self) -> list[int]:
        """Starts of the tiles near either end: all others read full windows, as the last of the first ones does."""
        near = 1 + -(-(self.axis.kernel + self.tile) // self.tile)
        return [*self.starts[:near], *self.starts[-near:]]

    def _window(self, start: int, phase: int) -> tuple[int, int]:
        """Return the (first, last) m that a tile reads."""
        lowest, highest = self.axis.reach(phase)
        return lowest, self.outputs_from(start) - 1 + highest

    def _held(self, start: int, phase: int) -> tuple[int, int]:
        """Return the (first, last) m that a tile reads and that lies in the phase image."""
        first, last = self._window(start, phase)
        return max(first, -start), min(last, self.axis.stored(phase) - 1 - start)

    def _least(self, start: int, phase: int) -> int:
        (first, last), (lowest, highest) = self._window(start, phase), self._held(start, phase)
        return max(highest - first, last - lowest) + 1 if lowest <= highest else 1
