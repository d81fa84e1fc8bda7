"""The operations of an integer program: what a node computes."""

from dataclasses import dataclass

from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.spectral_layer import SpectralLayer
from privcirnet.he.program.rearrangement import Rearrangement, Tokens


@dataclass(frozen=True)
class Input:
    """The image as integers in [low, high]."""

    low: int
    high: int


@dataclass(frozen=True)
class Linear:
    """Convolution or GEMM with bias, on (C, H, W)."""

    layer: Layer


@dataclass(frozen=True)
class Truncate:
    """Division by 2^bits, rounded: the fixed-point rescale."""

    bits: int


@dataclass(frozen=True)
class Square:
    """x * x, element by element."""


@dataclass(frozen=True)
class ClientAided:
    """A function that is no polynomial, computed by the client, which sees the values (:mod:`revealed`).

    Attributes:
        function: of :data:`revealed.FUNCTIONS`.
        log_step_in: of what goes in.
        bits: that the step of the result is coarser.
    """

    function: str
    log_step_in: int
    bits: int


@dataclass(frozen=True)
class Add:
    """Sum of two nodes with the same step."""


@dataclass(frozen=True)
class SumPool:
    """Sum over non-overlapping windows (average pooling whose division went into ``log_step``)."""

    kernel: int


@dataclass(frozen=True)
class Product:
    """Product of two values, group by group: (g k, A, 1) and (g k, B, 1) to (g B, A, 1), with a bias.

    y[h B + j, i] = sum over e of left[h k + e, i] right[h k + e, j]. With a head of attention as a group these are the
    scores of queries and keys; with scores and transposed values, what attention gathers.

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


Operation = Input | Linear | Truncate | Square | ClientAided | Add | SumPool | Product | Rearrangement


def encrypted_layers(operation: Operation) -> tuple[Layer, ...]:
    """The encrypted layers of an operation."""
    match operation:
        case Linear(layer):
            return (layer,)
        case Product(left, right):
            return left, right
        case _:
            return ()


def has_weights(operation: Operation) -> bool:
    """Whether a node needs an entry in the program's weights."""
    return isinstance(operation, Linear | Product | Tokens)
