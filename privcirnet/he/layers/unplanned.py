"""Encrypted layers before they are planned: all that bounds on values depend on.

Lowering leaves such layers in its nodes. :mod:`planning.plan_program` puts planned ones in their places when it has
chosen the parameters, so no finished program has any.
"""

from dataclasses import dataclass
from typing import Never, cast

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layer import SpectralLayer


@dataclass(frozen=True)
class UnplannedLayer:
    """The place of a layer that is still to be planned; any other member of a layer is an error."""

    shape: LinearShape
    block_size: int
    encoding = "unplanned"

    def __post_init__(self) -> None:
        self.shape.check_block_size(self.block_size)

    def __getattr__(self, name: str) -> Never:
        raise AttributeError(f"a layer that is not planned yet has no {name}")


def unplanned(shape: LinearShape, block_size: int) -> Layer:
    """Return the placeholder in a linear node until its layer is planned."""
    return cast(Layer, UnplannedLayer(shape, block_size))


def unplanned_factor(shape: LinearShape) -> SpectralLayer:
    """Return the placeholder in a product of two values until its layers are planned, which are spectral with b = 1."""
    return cast(SpectralLayer, UnplannedLayer(shape, 1))
