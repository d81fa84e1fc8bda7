"""Cheetah's coefficient encoding of GEMMs and convolutions: one polynomial product does a whole tile.

Maths (:mod:`coefficients.layout` for one map): an input polynomial holds D maps (planes) side by side,
map p at p S. The filters of output k stand in reverse order, that of plane p at (k D + D - 1 - p) S, so that all D
products meet at (k D + D - 1) S: the sum over input channels costs nothing. E outputs fit if E D S <= n. What wraps
around X^n = -1 ends before (D - 1) S + O and meets no output.

Cost of a tile of the maps: ceil(planes / D) ciphertexts up, ceil(K / E) down, their product HE-Pmult, no rotation. Of
an output ciphertext's first polynomial only the outputs are sent.

A GEMM (d1, d2, d3) is the 1 x 1 convolution of d1 positions. Its tile is S x D x E <= n, the volume of Cheetah's own
matrix encoding, with the monomials in another order. A grouped layer has the zeros of its dense filter, as in Falcon's
account of Cheetah. Only products that are zero by structure are left out.

Source: Huang et al., "Cheetah" (USENIX Security 2022), sections 3.2 and 3.3. Departures: zero rows and columns serve
two borders, strides are phase images, and tiles minimise bytes (ciphertexts up weigh twice those down, because a reply
is switched down) and then products, where Cheetah minimises ciphertexts up.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from papers.coefficients.layout import CoefficientEncoding, Factor, Grid, Placement, balanced, grids
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape

UP_WEIGHT = 2
"""Bytes of a ciphertext up for each byte of one down: two primes against one, before the outputs' coefficients."""


@dataclass(frozen=True)
class DenseTile:
    """What one polynomial product covers.

    Attributes:
        planes: D, maps of an input polynomial.
        outputs: E, output channels of a weight polynomial.
    """

    grid: Grid
    planes: int
    outputs: int


@lru_cache(maxsize=256)
def best_tile(shape: LinearShape, ring_degree: int) -> DenseTile:
    """Return the tile with the fewest bytes, then the fewest products."""
    found = list(_tiles(shape, ring_degree))
    if not found:
        raise no_window(shape, ring_degree)
    return min(found, key=lambda tile: _cost(shape, tile))


def no_window(shape: LinearShape, ring_degree: int) -> RuleError:
    """Return the error for a layer of which not even one output's window fits a polynomial."""
    return RuleError(
        "a kernel's window must fit one polynomial",
        got=f"kernel {shape.kernel} at ring degree {ring_degree}",
        remedy="use a larger ring degree",
    )


def products(shape: LinearShape, ring_degree: int) -> int:
    """Return the number of products of the best tile over the whole layer, those that groups make zero included.

    Raises:
        RuleError: not even one output's window fits a polynomial.
    """
    return _cost(shape, best_tile(shape, ring_degree))[1]


def place(shape: LinearShape, ring_degree: int) -> Placement:
    """Return where everything goes.

    Raises:
        RuleError: not even one output's window fits a polynomial.
    """
    return place_tile(shape, best_tile(shape, ring_degree))


def place_tile(shape: LinearShape, tile: DenseTile) -> Placement:
    """Return where everything goes with a given tile."""
    grid, d, e = tile.grid, tile.planes, tile.outputs
    planes = np.arange(shape.in_channels * len(grid.phases))
    channels = np.arange(shape.out_channels)
    inputs = tuple(np.stack([part, (part - part[0]) * grid.pitch], axis=1) for part in _parts(planes, d))
    ends = tuple((part - part[0] + 1) * d - 1 for part in _parts(channels, e))
    outputs = tuple(
        np.stack([part, end * grid.pitch + grid.origin], axis=1)
        for part, end in zip(_parts(channels, e), ends, strict=True)
    )
    return Placement(grid, inputs, outputs, tuple(_factors(shape, tile)))


def _tiles(shape: LinearShape, ring_degree: int) -> Iterator[DenseTile]:
    for grid in grids(shape, ring_degree):
        maps, planes = ring_degree // grid.pitch, shape.in_channels * len(grid.phases)
        for d in balanced(planes, min(maps, planes)):
            targets = -(-shape.out_channels // min(shape.out_channels, maps // d))
            yield DenseTile(grid, d, -(-shape.out_channels // targets))


def _cost(shape: LinearShape, tile: DenseTile) -> tuple[int, int]:
    """(bytes in polynomials down, products), without what no tile changes."""
    up = -(-shape.in_channels * len(tile.grid.phases) // tile.planes)
    down = -(-shape.out_channels // tile.outputs)
    return tile.grid.tiles * (UP_WEIGHT * up + down), tile.grid.tiles * up * down


def _factors(shape: LinearShape, tile: DenseTile) -> Iterator[Factor]:
    grid, d, e = tile.grid, tile.planes, tile.outputs
    planes_of_group = shape.in_channels // shape.groups * len(grid.phases)
    outputs_of_group = shape.out_channels // shape.groups
    planes = np.arange(shape.in_channels * len(grid.phases))
    for target, outputs in enumerate(_parts(np.arange(shape.out_channels), e)):
        for source, held in enumerate(_parts(planes, d)):
            k, p = (a.ravel() for a in np.meshgrid(outputs, held, indexing="ij"))
            same = k // outputs_of_group == p // planes_of_group
            if same.any():
                k, p = k[same], p[same]
                unit = (k - outputs[0]) * d + d - 1 - (p - held[0])
                yield Factor(target, source, np.stack([k, p, unit * grid.pitch], axis=1))


def _parts(numbers: np.ndarray, size: int) -> list[np.ndarray]:
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]


ENCODING = CoefficientEncoding(place)
