"""Coefficient encodings in the layouts that their papers publish, as layers that run: baselines, which no program has.

| layer | input polynomial | weight polynomial | source |
|---|---|---|---|
| Cheetah | as many padded maps as fit, floor(n / P) | one output channel | Cheetah, section 3; Falcon 2023, III-B |
| Iron, channel by channel | one padded map | one output channel | Falcon 2023, III-B: C polynomials each way |

Cheetah: Huang et al., USENIX Security 2022. Falcon 2023: Xu et al., ICCAD 2023. Both layouts pad a map with all of its
borders, P = (H + 2 padding)(W + 2 padding), where :mod:`coefficients.cheetah` shares them. The rest is
:class:`coefficients.layer.CoefficientLayer`: a client pads, and then it is a convolution without padding.
Departure for Iron: the map's convolution itself instead of its im2col, which gives the same polynomials, products and
outputs.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from papers.coefficients import cheetah
from papers.coefficients.cheetah import DenseTile
from papers.coefficients.layer import CoefficientLayer
from papers.coefficients.layout import Placement, grids
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring.modular import Residues

MAPS = {"cheetah": 0, "iron": 1}
"""Encoding -> maps of an input polynomial; 0: as many as fit."""


@dataclass(frozen=True)
class PublishedLayer(CoefficientLayer):
    """A layer in a published coefficient layout; stride 1.

    Attributes:
        maps: of an input polynomial; 0: as many as fit.

    Raises:
        RuleError: a stride.
    """

    maps: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape.stride > 1:
            raise RuleError("a published plan has stride 1", got=self.shape.stride, remedy="use layout=best")

    @cached_property
    def _flat(self) -> LinearShape:
        """The shape with its padding as part of the map; the positions of a GEMM are one axis."""
        shape, border = self.shape, 2 * self.shape.padding
        if shape.kind == "gemm":
            return replace(shape, height=shape.height * shape.width, width=1)
        return replace(shape, height=shape.height + border, width=shape.width + border, padding=0)

    @cached_property
    def tile(self) -> DenseTile:
        """The fewest tiles of a map, as many maps as fit or are asked for, one output."""
        shape, n = self._flat, self.ring_degree
        found = grids(shape, n)
        if not found:
            raise cheetah.no_window(shape, n)
        return DenseTile(found[0], min(self.maps or shape.in_channels, shape.in_channels, n // found[0].pitch), 1)

    @cached_property
    def placement(self) -> Placement:
        """What each polynomial holds."""
        return cheetah.place_tile(self._flat, self.tile)

    @property
    def ciphertexts_in(self) -> int:
        """Counted without a placement."""
        return -(-self.shape.in_channels // self.tile.planes) * self.tile.grid.tiles

    @property
    def ciphertexts_out(self) -> int:
        return self.shape.out_channels * self.tile.grid.tiles

    @property
    def pmults(self) -> int:
        """HE-Pmult; with channel groups those that have a weight."""
        if self.shape.groups > 1:
            return len(self.placement.factors) * self.tile.grid.tiles
        return self.ciphertexts_in * self.shape.out_channels

    def encode_input(self, x: Residues, t: int) -> Residues:
        """The map is padded first."""
        border = (self.shape.padding, self.shape.padding)
        return super().encode_input(np.pad(x, ((0, 0), border, border)), t)
