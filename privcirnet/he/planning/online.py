"""Seconds of a linear layer when the image comes, if everything encrypted was done before: the server's alone.

The layer is computed in clear (:mod:`clear.matrix_products`): residues become limbs, limbs are multiplied with weights,
and sums become residues again. A circulant block takes 1 + (b^2 - 1) / 3 products instead of b^2
(:mod:`clear.circulant`). Nothing is sent for it, and the client does nothing: online bytes and rounds are those of
squares and products, which do not depend on block sizes.
"""

from dataclasses import dataclass
from math import prod

from privcirnet.errors import RuleError
from privcirnet.he.encodings.shape import LinearShape
from privcirnet.he.planning.profile import ONLINE, Profile

_LIMBS = 2
"""Of a residue, for weights of 8 bits and t of up to 60 bits."""


@dataclass(frozen=True)
class ClearWork:
    """What a layer in clear does.

    Attributes:
        values: limbs that are read, laid out for the products, and written.
        products: of a limb and a weight.
    """

    values: int
    products: int


def clear_work(shape: LinearShape, block_size: int) -> ClearWork:
    """Return what a layer in clear does.

    Args:
        shape: dimensions.
        block_size: b.

    >>> clear_work(LinearShape(4, 4, 16, 16), 8)
    ClearWork(values=1024, products=2816)
    """
    positions = prod(shape.output_shape[1:])
    windows = shape.in_channels * shape.kernel**2 * positions if shape.kernel > 1 else 0
    values = prod(shape.input_shape) + windows + prod(shape.output_shape)
    if shape.kind == "depthwise":
        return ClearWork(_LIMBS * values, 0)  # its products are done where windows are read
    dense = positions * shape.out_channels * shape.in_channels // shape.groups * shape.kernel**2
    return ClearWork(_LIMBS * values, _LIMBS * (dense * block_products(block_size) // block_size**2))


def block_products(block_size: int) -> int:
    """Return the products of a circulant block with one vector.

    Args:
        block_size: b.

    >>> [block_products(b) for b in (1, 2, 6, 8, 16)]
    [1, 2, 18, 22, 86]
    """
    odd = block_size // (block_size & -block_size)
    return odd**2 + (block_size**2 - odd**2) // 3


def online_seconds(shape: LinearShape, block_size: int, profile: Profile) -> float:
    """Return the predicted seconds of a layer when the image comes, the server's.

    Args:
        shape: dimensions.
        block_size: b.
        profile: with the operations of :data:`ONLINE`.

    Raises:
        RuleError: the profile was measured without them.
    """
    check_online(profile)
    work, seconds = clear_work(shape, block_size), (profile.seconds[name] for name in ONLINE)
    return sum(count * each for count, each in zip((1, work.values, work.products), seconds, strict=True))


def check_online(profile: Profile) -> None:
    """Raise unless a profile has the operations of :data:`ONLINE`.

    Args:
        profile: any.

    Raises:
        RuleError: it was measured without them.
    """
    if not profile.has_online:
        remedy = "measure it again with search.py he.profile=calibrate"
        raise RuleError("a profile must know the online phase", got=repr(profile.name), remedy=remedy)
