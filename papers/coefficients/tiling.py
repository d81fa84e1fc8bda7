"""Tiles of an image axis in a line, without a cycle.

The rows of a tile, and then the same tile of the next plane, follow each other in one line, so a value that is read
beyond the end is the first of what follows. All phases share one shift: a tile of several starts with its halo, a whole
map with its first value. A pitch has as many places as a cycle of :class:`layers.spectral_layout.CyclicTiles`.
"""

from dataclasses import dataclass
from functools import cached_property

from privcirnet.he.layers.spectral_layout import TiledAxis


@dataclass(frozen=True)
class PaddedTiles(TiledAxis):
    """Tiles in a line, each followed by the zeros that keep apart what stands behind it."""

    @cached_property
    def reach(self) -> tuple[int, int]:
        """(least, largest) tap offset over all phases, zero included."""
        offsets = [offset for taps in self.axis.taps.values() for _, offset in taps]
        return min(0, *offsets), max(0, *offsets)

    @cached_property
    def shift(self) -> int:
        """What is added to tap offsets: a tile of several starts with its halo, a whole map with its first value."""
        return 0 if self.count == 1 else -self.reach[0]

    @cached_property
    def top(self) -> int:
        """The largest shifted offset."""
        return self.reach[1] + self.shift

    @cached_property
    def size(self) -> int:
        """Values that a tile stores."""
        if self.count == 1:
            return max(self._read_size(phase) for phase in self.axis.taps)
        return self.tile + self.reach[1] - self.reach[0]

    @cached_property
    def length(self) -> int:
        """Pitch: from a tile's first value to what follows the tile, which may be another phase's tile.

        The same zeros serve what is read ahead of a whole map and behind it.
        """
        if self.count == 1:
            return max(self.size - self.reach[0], self.axis.outputs + self.reach[1])
        return self.size

    def useful_taps(self, phase: int) -> list[tuple[int, int]]:
        """Return the taps that read more than padding: only those are sure to lie within a pitch.

        Returns:
            (kernel index, offset) of each.
        """
        read, outputs = self._read_size(phase), self.axis.outputs
        return [(r, offset) for r, offset in self.axis.taps[phase] if -outputs < offset < read]

    def read(self, index: int, phase: int) -> tuple[int, int, int]:
        """Return what a tile reads of a phase image.

        Returns:
            (first value of the phase image, how many, place of the first in the tile).
        """
        start = index * self.tile - self.shift
        first, stop = max(start, 0), min(start + self.size, self._read_size(phase))
        return first, max(0, stop - first), first - start

    def _read_size(self, phase: int) -> int:
        """How many values of a phase image there are from its first to the last that an output reads."""
        return max(0, min(self.axis.stored(phase), self.axis.outputs + self.axis.reach(phase)[1]))
