"""Where a layer's maps sit among the coefficients of polynomials: the second family of encodings, without rotations.

Maths: let x(X) = sum x[m, n] X^(m V + n) hold a map with row pitch V, and w(X) = sum w[a, c] X^(O - (a V + c)) its
kernel, back to front. The coefficient of X^(O + u V + v) in x w is sum over (a, c) of w[a, c] x[u + a, v + c]: the
correlation at (u, v). Reading beyond a row's end must meet zeros, and so must reading beyond the map::

    | x00 x01 x02  0 | x10 x11 x12  0 | x20 x21 x22  0 |  0   0   0   0 | next map ...      3 x 3, padding 1, V = 4

One zero column serves both borders, for the last column's right neighbour is the same coefficient as the next row's
left neighbour; one zero row serves the map below as well. So a map's pitch S is N1 N2 with N = H + (R - 1) / 2, as for
the transforms of the spectral family. Stride s: the s x s phase images are planes of their own (as in
:mod:`encodings.layout`), so that only wanted outputs are computed.

A map that is longer than a ciphertext is split into tiles of outputs; each tile brings the halo that its kernel reads.

Source: Huang et al., "Cheetah" (USENIX Security 2022), section 3, which pads with both borders and computes every
position of a strided convolution.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.he.encodings.shape import Axis, LinearShape
from privcirnet.he.ring.modular import Integers, Residues


@dataclass(frozen=True)
class Window:
    """One image axis, split into tiles.

    Attributes:
        axis: the axis.
        tile: outputs of a tile.
    """

    axis: Axis
    tile: int

    @property
    def count(self) -> int:
        """Tiles."""
        return -(-self.axis.outputs // self.tile)

    @cached_property
    def reach(self) -> tuple[int, int]:
        """(least, largest) tap offset, zero included."""
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
            return max(self.axis.read_size(phase) for phase in self.axis.taps)
        return self.tile + self.reach[1] - self.reach[0]

    @cached_property
    def length(self) -> int:
        """Pitch: from a tile's first value to what follows the tile, which may be another phase's tile."""
        if self.count == 1:
            return max(self.size - self.reach[0], self.axis.outputs + self.reach[1])
        return self.size

    def useful_taps(self, phase: int) -> list[tuple[int, int]]:
        """(kernel index, offset) of the taps that read more than padding: only those are sure to lie within a pitch."""
        read, outputs = self.axis.read_size(phase), self.axis.outputs
        return [(r, offset) for r, offset in self.axis.taps[phase] if -outputs < offset < read]

    def outputs(self, index: int) -> int:
        """Outputs of a tile: fewer in the last."""
        return min(self.tile, self.axis.outputs - index * self.tile)

    def read(self, index: int, phase: int) -> tuple[int, int, int]:
        """(first value of the phase image, how many, place of the first in the tile)."""
        start = index * self.tile - self.shift
        first, stop = max(start, 0), min(start + self.size, self.axis.read_size(phase))
        return first, max(0, stop - first), first - start


@dataclass(frozen=True)
class Grid:
    """How every map of a layer is split and where its values go, relative to the map's first coefficient."""

    rows: Window
    columns: Window

    @classmethod
    def of(cls, shape: LinearShape, rows: int, columns: int) -> "Grid":
        """Tiles of that many output rows and columns."""
        return cls(Window(shape.rows, rows), Window(shape.columns, columns))

    @property
    def tiles(self) -> int:
        """Tiles of a map."""
        return self.rows.count * self.columns.count

    @property
    def pitch(self) -> int:
        """S: coefficients from one map to the next."""
        return self.rows.length * self.columns.length

    @property
    def origin(self) -> int:
        """O: exponent of the output (0, 0)."""
        return self.rows.top * self.columns.length + self.columns.top

    @property
    def phases(self) -> list[tuple[int, int]]:
        """(row phase, column phase) of each plane of a channel."""
        return [(i, j) for i in self.rows.axis.taps for j in self.columns.axis.taps]

    @property
    def taps_of_planes(self) -> Integers:
        """Weights that a filter has on each plane of a channel."""
        rows, columns = self.rows.axis.taps, self.columns.axis.taps
        return np.array([len(rows[i]) * len(columns[j]) for i, j in self.phases], dtype=np.int64)

    def taps(self, plane: int) -> Iterator[tuple[int, int, int]]:
        """(kernel row, kernel column, exponent) of each weight on a plane of a channel that reads any value of it."""
        i, j = self.phases[plane]
        for r, a in self.rows.useful_taps(i):
            for s, c in self.columns.useful_taps(j):
                step = (a + self.rows.shift) * self.columns.length + c + self.columns.shift
                yield r, s, self.origin - step

    def outputs(self, tile: int) -> Integers:
        """Exponents of a tile's outputs, relative to the output (0, 0): (rows, columns)."""
        i, j = divmod(tile, self.columns.count)
        u, v = np.arange(self.rows.outputs(i)), np.arange(self.columns.outputs(j))
        return u[:, None] * self.columns.length + v

    def place(self, tile: int) -> tuple[slice, slice]:
        """Where a tile's outputs are in the output map."""
        i, j = divmod(tile, self.columns.count)
        top, left = i * self.rows.tile, j * self.columns.tile
        return slice(top, top + self.rows.outputs(i)), slice(left, left + self.columns.outputs(j))

    def split(self, x: Residues, tile: int) -> Residues:
        """A tile's values of every plane, with its zeros: (C, H, W) -> (C x phases, S)."""
        i, j = divmod(tile, self.columns.count)
        stride = self.rows.axis.stride
        planes = np.zeros((len(x), len(self.phases), self.rows.length, self.columns.length), dtype=np.uint64)
        for index, (p, q) in enumerate(self.phases):
            (top, height, at_row), (left, width, at_column) = self.rows.read(i, p), self.columns.read(j, q)
            image = x[:, p::stride, q::stride][:, top : top + height, left : left + width]
            planes[:, index, at_row : at_row + height, at_column : at_column + width] = image
        return planes.reshape(-1, self.pitch)


@dataclass(frozen=True, eq=False)
class Factor:
    """One weight polynomial: multiplies an input ciphertext and adds to an output ciphertext.

    Attributes:
        target: output ciphertext of a tile.
        source: input ciphertext of a tile.
        filters: (m, 3): output channel, input plane, first coefficient of their filter.
    """

    target: int
    source: int
    filters: Integers


@dataclass(frozen=True, eq=False)
class Placement:
    """A whole layer: what each polynomial holds; the same for every tile of the maps.

    Attributes:
        grid: how a map is split and laid out.
        inputs: for each input ciphertext of a tile (m, 2): plane (channel x phases + phase), its first coefficient.
        outputs: for each output ciphertext of a tile (m, 2): output channel, coefficient of its output (0, 0).
        factors: the weight polynomials, targets in ascending order.
    """

    grid: Grid
    inputs: tuple[Integers, ...]
    outputs: tuple[Integers, ...]
    factors: tuple[Factor, ...]


def tile_sizes(outputs: int) -> list[int]:
    """Outputs of a tile on one axis, the largest first, only those that give different numbers of tiles.

    >>> tile_sizes(7)
    [7, 4, 3, 2, 1]
    """
    return sorted({-(-outputs // count) for count in range(1, outputs + 1)}, reverse=True)


def grids(shape: LinearShape, ring_degree: int) -> list[Grid]:
    """Every way to split a layer's maps so that at least one tile fits a polynomial, fewest tiles first."""
    found = [
        Grid.of(shape, rows, columns)
        for rows in tile_sizes(shape.rows.outputs)
        for columns in tile_sizes(shape.columns.outputs)
    ]
    return sorted((grid for grid in found if grid.pitch <= ring_degree), key=lambda grid: (grid.tiles, grid.pitch))


def balanced(total: int, most: int) -> list[int]:
    """Sizes of equal shares of ``total``, at most ``most``, the largest of each number of shares.

    >>> balanced(10, 6)
    [5, 4, 3, 2, 1]
    """
    return sorted({-(-total // count) for count in range(-(-total // most), total + 1)}, reverse=True)
