"""Where a layer's maps sit among the coefficients of polynomials, without rotations.

Maths: let x(X) = sum x[m, n] X^(m V + n) hold a map with row pitch V, and w(X) = sum w[a, c] X^(O - (a V + c)) its
kernel, back to front. The coefficient of X^(O + u V + v) in x w is sum over (a, c) of w[a, c] x[u + a, v + c]: the
correlation at (u, v). Reading beyond a row's end must meet zeros, and so must reading beyond the map::

    | x00 x01 x02  0 | x10 x11 x12  0 | x20 x21 x22  0 |  0   0   0   0 | next map ...      3 x 3, padding 1, V = 4

One zero column serves both borders, for the last column's right neighbour is the same coefficient as the next row's
left neighbour; one zero row serves the map below as well. So a map's pitch S is N1 N2 with N = H + (R - 1) / 2, as for
the transforms of programs' layers. Stride s: the s x s phase images are planes of their own (as in
:mod:`layers.spectral_layout`), so that only wanted outputs are computed.

A map that is longer than a ciphertext is split into tiles of outputs; each tile brings the halo that its kernel reads
(:class:`coefficients.tiling.PaddedTiles`).

Source: Huang et al., "Cheetah" (USENIX Security 2022), section 3, which pads with both borders and computes every
position of a strided convolution.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from papers.coefficients.tiling import PaddedTiles
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring.modular import Integers, Residues


@dataclass(frozen=True)
class Grid:
    """How every map of a layer is split and where its values go, relative to the map's first coefficient."""

    rows: PaddedTiles
    columns: PaddedTiles

    @classmethod
    def of(cls, shape: LinearShape, rows: int, columns: int) -> "Grid":
        """Return the grid with tiles of a given size."""
        return cls(PaddedTiles(shape.rows, rows), PaddedTiles(shape.columns, columns))

    @property
    def tiles(self) -> int:
        """Tiles of a map."""
        return self.rows.count * self.columns.count

    @property
    def pitch(self) -> int:
        """Coefficients from one map to the next, S."""
        return self.rows.length * self.columns.length

    @property
    def origin(self) -> int:
        """Exponent of the output (0, 0), O."""
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
        """Yield where the weights go that read any value of a plane.

        Yields:
            (kernel row, kernel column, exponent) of each weight.
        """
        i, j = self.phases[plane]
        for r, a in self.rows.useful_taps(i):
            for s, c in self.columns.useful_taps(j):
                step = (a + self.rows.shift) * self.columns.length + c + self.columns.shift
                yield r, s, self.origin - step

    def outputs(self, tile: int) -> Integers:
        """Return the exponents of a tile's outputs, relative to the output (0, 0).

        Returns:
            exponents, shape (output rows, output columns) of the tile.
        """
        i, j = divmod(tile, self.columns.count)
        rows, columns = self.rows.starts[i], self.columns.starts[j]
        u, v = np.arange(self.rows.outputs_from(rows)), np.arange(self.columns.outputs_from(columns))
        return u[:, None] * self.columns.length + v

    def place(self, tile: int) -> tuple[slice, slice]:
        """Return where a tile's outputs are in the output map: (rows, columns)."""
        i, j = divmod(tile, self.columns.count)
        top, left = self.rows.starts[i], self.columns.starts[j]
        return slice(top, top + self.rows.outputs_from(top)), slice(left, left + self.columns.outputs_from(left))

    def split(self, x: Residues, tile: int) -> Residues:
        """Return a tile's values of every plane, with its zeros: residues, shape (C x phases, S).

        Args:
            x: residues, shape (C, H, W).
        """
        i, j = divmod(tile, self.columns.count)
        down, across = self.rows.axis.stride, self.columns.axis.stride
        planes = np.zeros((len(x), len(self.phases), self.rows.length, self.columns.length), dtype=np.uint64)
        for index, (p, q) in enumerate(self.phases):
            (top, height, at_row), (left, width, at_column) = self.rows.read(i, p), self.columns.read(j, q)
            image = x[:, p::down, q::across][:, top : top + height, left : left + width]
            planes[:, index, at_row : at_row + height, at_column : at_column + width] = image
        return planes.reshape(-1, self.pitch)


@dataclass(frozen=True, eq=False)
class Factor:
    """One weight polynomial: multiplies an input ciphertext and adds to an output ciphertext.

    Attributes:
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


@dataclass(frozen=True)
class CoefficientEncoding:
    """A way to put maps and weights into polynomials.

    Attributes:
        place: (shape, n) -> what each polynomial holds.
        rule: what it is for, in words.
        fits: whether it is for a shape.
    """

    place: Callable[[LinearShape, int], Placement]
    rule: str = "is for every layer"
    fits: Callable[[LinearShape], bool] = lambda shape: True


def weight_polynomial(grid: Grid, factor: Factor, dense: Residues, ring_degree: int) -> Residues:
    """Return the coefficients of a weight polynomial, (n,).

    Args:
        dense: the layer's weights mod t, (K, C/groups, R, R).
    """
    polynomial = np.zeros(ring_degree, dtype=np.uint64)
    channel, plane, start = factor.filters.T
    inner, phase = plane // len(grid.phases) % dense.shape[1], plane % len(grid.phases)
    for index in range(len(grid.phases)):
        on = phase == index
        for r, s, exponent in grid.taps(index):
            polynomial[start[on] + exponent] = dense[channel[on], inner[on], r, s]
    return polynomial


def tile_sizes(outputs: int) -> list[int]:
    """Return sizes of a tile on one axis, the largest first, only those that give different numbers of tiles.

    >>> tile_sizes(7)
    [7, 4, 3, 2, 1]
    """
    return sorted({-(-outputs // count) for count in range(1, outputs + 1)}, reverse=True)


def grids(shape: LinearShape, ring_degree: int) -> list[Grid]:
    """Return every way to split a layer's maps so that at least one tile fits a polynomial, fewest tiles first."""
    found = [
        Grid.of(shape, rows, columns)
        for rows in tile_sizes(shape.rows.outputs)
        for columns in tile_sizes(shape.columns.outputs)
    ]
    return sorted((grid for grid in found if grid.pitch <= ring_degree), key=lambda grid: (grid.tiles, grid.pitch))


def balanced(total: int, most: int) -> list[int]:
    """Return sizes of equal shares of a number, the largest of each number of shares.

    >>> balanced(10, 6)
    [5, 4, 3, 2, 1]
    """
    return sorted({-(-total // count) for count in range(-(-total // most), total + 1)}, reverse=True)
