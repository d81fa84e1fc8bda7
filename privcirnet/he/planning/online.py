"""Seconds of a linear layer when the image comes, if everything encrypted was done before: the server's alone.

The layer is computed in clear (:mod:`mpc.local.matrix_products`): residues become digits, digits are multiplied with
weights, and sums become residues again. A circulant block takes 1 + (b^2 - 1) / 3 products instead of b^2
(:mod:`mpc.local.circulant`). Nothing is sent for it, and the client does nothing: online bytes and rounds are those of
squares and products, which do not depend on block sizes.
"""

from math import prod
from typing import NamedTuple

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.profile import ONLINE, Profile

_LIMBS = 2
"""Of a residue, for weights of 8 bits and t of up to 60 bits."""


class ClearWork(NamedTuple):
    """What a layer in clear does, as often as each operation of :data:`ONLINE` in their order.

    Attributes:
        calls: 1.
        values: digits that are read, laid out for the products, and written.
        products: of a digit and a weight, in products of matrices.
        depthwise: products of a digit and a weight, channel by channel.
    """

    calls: int
    values: int
    products: int
    weights: int
    depthwise: int


def clear_work(shape: LinearShape, block_size: int) -> ClearWork:
    """Return what a layer in clear does.

    >>> clear_work(LinearShape(4, 4, 16, 16), 8)
    ClearWork(calls=1, values=1024, products=2816, weights=88, depthwise=0)
    """
    positions = prod(shape.output_shape[1:])
    ends, seen = prod(shape.input_shape) + prod(shape.output_shape), shape.in_channels * shape.kernel**2
    dense = shape.out_channels * seen // shape.groups
    if shape.kind == "depthwise" and shape.kernel > 1:
        return ClearWork(1, _LIMBS * ends, 0, dense, _LIMBS * dense * positions)
    values = ends + (seen * positions if shape.kernel > 1 else 0)
    weights = dense * block_products(block_size) // block_size**2
    return ClearWork(1, _LIMBS * values, _LIMBS * weights * positions, weights, 0)


def block_products(block_size: int) -> int:
    """Return the products of a circulant block with one vector.

    >>> [block_products(b) for b in (1, 2, 6, 8, 16)]
    [1, 2, 18, 22, 86]
    """
    odd = block_size // (block_size & -block_size)
    return odd**2 + (block_size**2 - odd**2) // 3


def online_seconds(shape: LinearShape, block_size: int, profile: Profile) -> float:
    """Return the predicted seconds of a layer when the image comes, the server's."""
    return sum(count * profile.seconds[name] for name, count in zip(ONLINE, clear_work(shape, block_size), strict=True))
