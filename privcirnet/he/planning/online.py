"""Seconds of an operation when the image comes, if everything encrypted was done before.

Those of a linear layer are the server's alone. It is computed in clear (:mod:`mpc.local.matrix_products`): residues
become digits, digits are multiplied with weights, and sums become residues again. A circulant block takes
1 + (b^2 - 1) / 3 products instead of b^2 (:mod:`mpc.local.circulant`). Nothing is sent for it, and the client does
nothing. Other operations are messages: what is done for them counts by their bytes.
"""

from math import prod
from typing import NamedTuple

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Cost, OperationPrices
from privcirnet.he.planning.profile import ONLINE, NetworkLink, Profile
from privcirnet.he.program.operation import Operation

_LIMBS = 2
"""Digits of a residue, for weights of 8 bits and t of up to 60 bits."""

MESSAGE_BYTE = 1.4e-8
"""Seconds of both parties' work for a byte that they send with the image (benchmarks/exact_steps.py)."""


class ClearWork(NamedTuple):
    """Counts of the operations of a layer in clear, those of :data:`ONLINE` in their order.

    Attributes:
        calls: 1.
        values: digits that are read, laid out for the products, and written.
        products: products of a digit and a weight, in products of matrices.
        depthwise: products of a digit and a weight, channel by channel.
    """

    calls: int
    values: int
    products: int
    weights: int
    depthwise: int


def clear_work(shape: LinearShape, block_size: int) -> ClearWork:
    """Return the counts of a layer in clear.

    >>> clear_work(LinearShape(4, 4, 16, 16), 8)
    ClearWork(calls=1, values=1024, products=2816, weights=88, depthwise=0)
    """
    positions = prod(shape.output_shape[1:])
    ends, taps = prod(shape.input_shape) + prod(shape.output_shape), shape.in_channels * shape.kernel**2
    dense = shape.out_channels * taps // shape.groups
    if shape.kind == "depthwise" and shape.kernel > 1:
        return ClearWork(1, _LIMBS * ends, 0, dense, _LIMBS * dense * positions)
    values = ends + (taps * positions if shape.kernel > 1 else 0)
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


def online_cost(operation: Operation, shape: tuple[int, int, int], profile: Profile, link: NetworkLink) -> Cost:
    """Return :func:`cost.operation_cost` of what is left when the image comes; ``shape``: (C, H, W) of its result."""
    return operation.cost(_Online(profile, link), shape)


class _Online(OperationPrices):
    """Prices of the work that is left when the image comes."""

    def linear(self, layer: Layer) -> Cost:
        return Cost(server=online_seconds(layer.shape, layer.block_size, self.profile))

    def product(self, left: Layer, right: Layer) -> Cost:
        sent = prod(left.shape.input_shape) + prod(right.shape.input_shape)
        return self._question(sent, prod(left.shape.output_shape))

    def square(self, values: int) -> Cost:
        return self._question(values, values)

    def _question(self, sent: int, answered: int) -> Cost:
        return self.messages(*(values * self.profile.plain_bits // 8 for values in (sent, answered)))

    def messages(self, *byte_counts: int, ahead: int = 0, transfers: int = 0) -> Cost:
        return super().messages(*byte_counts) + Cost(server=sum(byte_counts) * MESSAGE_BYTE)
