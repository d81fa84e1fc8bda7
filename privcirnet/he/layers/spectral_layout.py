"""The spectral layout of a linear layer: the slot of every value.

A layer maps x of shape (C, H, W) to y of shape (K, H', W'); a GEMM (d1, d2, d3) is the 1 x 1 convolution with C = d2,
K = d3 and d1 positions. The circulant axis (length b) and every image axis on which the kernel reaches beyond its own
position are transformed (NTT mod t), so that the layer becomes slot-wise products between channel blocks. Image axes
are split into tiles, each a cyclic correlation of its own (:class:`CyclicTiles`).

Tiles: outputs [u0, u0 + h) of a tile read x_phase[u0 + m] for lowest tap <= m <= h - 1 + highest tap. Value m sits at
place m mod N, so values left of the first output wrap around to the end. That is right if no value that is not zero
shares its place with another one that is read. For a whole map one run of zeros serves both borders, and a "same"
kernel of size R on H values needs N = H + (R - 1) / 2 places only (docs/mathematics.md, "Transform lengths").

*Cell*: the b N1 N2 values of one channel block, one tile of the map and one channel group. Tiles and channel groups
are independent of each other: they share no sum. (The positions of a GEMM are tiles of 1 x 1.)

*Lane*: one channel block of several cells, gamma groups x tau tiles of it, one after the other: L = gamma tau b N1 N2
values in L' = n / G slots, half in each of the two slot rows, so that ``rotate_rows`` by L' / 2 turns the G lanes (a
power of two) of a ciphertext cyclically::

    row 0 | lane 0, first half  | lane 1, first half  | ... | lane G-1, first half  |
    row 1 | lane 0, second half | lane 1, second half | ... | lane G-1, second half |

    lane  | group 0: tile 0: b x N1 x N2 | tile 1 | ... | group 1: tile 0 | ... | unused |

Stride s: the input is split into its s x s phase images, which become input channels of a stride-1 convolution; phases
that no kernel tap reads are not sent.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import Axis, LinearShape
from privcirnet.he.ring.modular import Integers, Residues


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


@dataclass(frozen=True)
class SpectralLayout:
    """Cells of a layer with block size b (see the module's picture).

    Attributes:
        tile: (rows, columns) of output in a tile.
    """

    shape: LinearShape
    block_size: int
    tile: tuple[int, int]

    def __post_init__(self) -> None:
        s = self.shape
        s.check_block_size(self.block_size)
        if any(not 1 <= h <= outputs for h, outputs in zip(self.tile, s.output_shape[1:], strict=True)):
            raise RuleError(
                "a tile must have at least one output and at most all",
                got=f"{self.tile} of {s.output_shape[1:]}",
                remedy="use the output's size for no tiling",
            )

    @classmethod
    def whole(cls, shape: LinearShape, block_size: int) -> "SpectralLayout":
        """Return the layout without tiling: positions of a GEMM as tiles of their own, a convolution's map in one.

        Raises:
            RuleError: b does not fit the channels of a group.
        """
        _, height, width = shape.output_shape
        axes = (shape.rows, height), (shape.columns, width)
        rows, columns = (outputs if axis.transformed else 1 for axis, outputs in axes)
        return cls(shape, block_size, (rows, columns))

    @cached_property
    def rows(self) -> CyclicTiles:
        """The vertical axis in tiles."""
        return CyclicTiles(self.shape.rows, self.tile[0])

    @cached_property
    def columns(self) -> CyclicTiles:
        """The horizontal axis in tiles."""
        return CyclicTiles(self.shape.columns, self.tile[1])

    @property
    def phases(self) -> list[tuple[int, int]]:
        """(row phase, column phase) of each phase image, in the order of the input blocks."""
        return [(i, j) for i in self.shape.rows.taps for j in self.shape.columns.taps]

    @property
    def tiles(self) -> int:
        """Tiles of a map, row by row."""
        return self.rows.count * self.columns.count

    @cached_property
    def extent(self) -> tuple[int, int]:
        """Places of a tile, (N1, N2)."""
        return self.rows.length, self.columns.length

    @cached_property
    def spectral_extent(self) -> tuple[int, int]:
        """Extent of a weight's spectrum, (S1, S2): 1 on an axis that is not transformed."""
        return self.rows.spectral_length, self.columns.spectral_length

    @property
    def spectrum_shape(self) -> tuple[int, int, int, int, int, int]:
        """Shape (groups, q, p, b, S1, S2) of all blocks' spectra, each distinct slot value of the plaintexts once."""
        return self.shape.groups, self.blocks_out, self.blocks_in, self.block_size, *self.spectral_extent

    @property
    def transform_lengths(self) -> set[int]:
        """Lengths that must divide t - 1."""
        return {self.block_size, *self.spectral_extent}

    @property
    def transformed_axes(self) -> list[int]:
        """Axes of (..., b, N1, N2) that are transformed."""
        image_axes = zip((-2, -1), (self.shape.rows, self.shape.columns), strict=True)
        circulant = [-3] if self.block_size > 1 else []
        return circulant + [number for number, axis in image_axes if axis.transformed]

    @property
    def cell(self) -> int:
        """Values of a cell, b N1 N2."""
        return self.block_size * self.extent[0] * self.extent[1]

    @cached_property
    def padded(self) -> LinearShape:
        """The shape with channels up to whole blocks; inputs that it has more are zero, outputs are dropped."""
        return self.shape.padded(self.block_size)

    @property
    def channel_blocks(self) -> int:
        """Blocks of a group's input channels, C / (groups b)."""
        return self.padded.in_channels // (self.shape.groups * self.block_size)

    @property
    def blocks_in(self) -> int:
        """Input blocks of a group, p = phases x C / (groups b)."""
        return len(self.phases) * self.channel_blocks

    @property
    def blocks_out(self) -> int:
        """Output blocks of a group, q = K / (groups b)."""
        return self.padded.out_channels // (self.shape.groups * self.block_size)


def lanes_to_slots(lanes: Residues) -> Residues:
    """Return lanes as slots: each lane's halves go to the two slot rows.

    Args:
        lanes: shape (ciphertexts, G, L').

    Returns:
        slots, shape (ciphertexts, n).

    >>> lanes_to_slots(np.arange(8, dtype=np.uint64).reshape(1, 2, 4)).tolist()
    [[0, 1, 4, 5, 2, 3, 6, 7]]
    """
    count, per_ciphertext, width = lanes.shape
    halves = lanes.reshape(count, per_ciphertext, 2, width // 2)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(count, per_ciphertext * width)


def slots_to_lanes(slots: Residues, lanes: int) -> Residues:
    """Return slots as lanes: the inverse of :func:`lanes_to_slots`.

    Args:
        slots: shape (ciphertexts, n).
        lanes: G.

    Returns:
        lanes, shape (ciphertexts, G, L').
    """
    count, n = slots.shape
    halves = slots.reshape(count, 2, lanes, n // lanes // 2)
    return np.ascontiguousarray(halves.transpose(0, 2, 1, 3)).reshape(count, lanes, n // lanes)


def next_power_of_two(number: int) -> int:
    """Return the smallest power of two that is at least ``number``; ``number``: 1 or more."""
    return 1 << (number - 1).bit_length()
