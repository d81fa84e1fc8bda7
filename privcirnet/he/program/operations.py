"""The operations of an integer program: what a node computes, as data without weights.

One namespace holds all of them, the rearrangements of :mod:`program.rearrangement` too::

    from privcirnet.he.program import operations as op

    match node.operation:
        case op.Linear(layer):
            ...

Linear layers, squares, products of two values and client-aided functions cost a message each way. All others are local:
each party applies them to its share. :data:`Operation` is the union of all, and a ``match`` over it names every one and
ends in ``assert_never``, so that an operation that was forgotten is found by the type checker and refused when met.
"""

from dataclasses import dataclass
from typing import assert_never

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.stacking import Stack
from privcirnet.he.program.rearrangement import Channels, Flatten, Gather, Rearrangement, Take, Tokens, Transpose

__all__ = [
    "Add",
    "Channels",
    "ClientAided",
    "Concat",
    "Flatten",
    "Gather",
    "Input",
    "Linear",
    "Operation",
    "Product",
    "Rearrangement",
    "Scale",
    "Square",
    "SumPool",
    "Take",
    "Tokens",
    "Transpose",
    "Truncate",
    "arity",
    "encrypted_layers",
    "has_weights",
]


@dataclass(frozen=True)
class Input:
    """The image as integers in [low, high].

    Attributes:
        low: the least value of a pixel.
        high: the largest value of a pixel.
    """

    low: int
    high: int


@dataclass(frozen=True)
class Linear:
    """Convolution or GEMM with bias, on (C, H, W).

    Attributes:
        layer: its shape and how it is computed under encryption.
        stack: how work ahead takes several images together; None: one after the other.
    """

    layer: Layer
    stack: Stack | None = None


@dataclass(frozen=True)
class Truncate:
    """Division by 2^bits, rounded: the fixed-point rescale.

    Attributes:
        bits: how many, 1 to 59.
    """

    bits: int


@dataclass(frozen=True)
class Square:
    """x * x, element by element."""


@dataclass(frozen=True)
class ClientAided:
    """A function that is no polynomial, computed by the client, which sees the values (:mod:`program.nonpolynomial`).

    Attributes:
        function: name of one of :data:`nonpolynomial.FUNCTIONS`.
        log_step_in: real value = integer x 2^log_step_in of what goes in.
        bits: the result's step is 2^(log_step_in + bits).
        value_bits: absolute values that go in stay under 2^value_bits, or they are wrong; 0: not known.
    """

    function: str
    log_step_in: int
    bits: int
    value_bits: int = 0


@dataclass(frozen=True)
class Add:
    """Sum of two nodes with the same step."""


@dataclass(frozen=True)
class Scale:
    """x * 2^bits, which brings a summand to the finer step of another.

    Attributes:
        bits: how many, 1 to 59.
    """

    bits: int


@dataclass(frozen=True)
class Concat:
    """Channels of several values with the same step, one after the other: (C_i, H, W) to (sum of C_i, H, W).

    Attributes:
        count: how many values, 2 or more.
    """

    count: int


@dataclass(frozen=True)
class SumPool:
    """Sum over non-overlapping windows (average pooling whose division went into ``log_step``)."""

    kernel: int


@dataclass(frozen=True)
class Product:
    """Product of two values, group by group: (g k, A, 1) and (g k, B, 1) to (g B, A, 1), with a bias.

    y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j]. With a head of attention as a group these are the
    scores of queries and keys. With scores and transposed values, they are what attention gathers.

    Attributes:
        left: a linear layer from the left value whose weights are the right one, (g B, k).
        right: a linear layer from the right value whose weights are the left one, (g A, k); its result is transposed.
    """

    left: SpectralLayer
    right: SpectralLayer

    @property
    def groups(self) -> int:
        """The number g of channel groups."""
        return self.left.shape.groups


Operation = Input | Linear | Truncate | Scale | Square | ClientAided | Add | Concat | SumPool | Product | Rearrangement


def arity(operation: Operation) -> int:
    """Return how many values an operation takes."""
    match operation:
        case Input():
            return 0
        case Add() | Product():
            return 2
        case Concat(count):
            return count
        case Linear() | Truncate() | Scale() | Square() | ClientAided() | SumPool():
            return 1
        case Flatten() | Tokens() | Take() | Channels() | Transpose() | Gather():
            return 1
        case _:
            assert_never(operation)


def encrypted_layers(operation: Operation) -> tuple[Layer, ...]:
    """Return the encrypted layers of an operation: one of a linear layer, two of a product, else none."""
    match operation:
        case Linear(layer):
            return (layer,)
        case Product(left, right):
            return left, right
        case Input() | Truncate() | Scale() | Square() | ClientAided() | Add() | Concat() | SumPool():
            return ()
        case Flatten() | Tokens() | Take() | Channels() | Transpose() | Gather():
            return ()
        case _:
            assert_never(operation)


def has_weights(operation: Operation) -> bool:
    """Return whether a node needs an entry in the program's weights."""
    match operation:
        case Linear() | Product() | Tokens():
            return True
        case Input() | Truncate() | Scale() | Square() | ClientAided() | Add() | Concat() | SumPool():
            return False
        case Flatten() | Take() | Channels() | Transpose() | Gather():
            return False
        case _:
            assert_never(operation)
