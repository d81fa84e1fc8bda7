"""The integer network as data, and its plaintext interpreter: the oracle for everything encrypted.

A program is a list of nodes in order of evaluation. Every value is an integer array; ``log_step`` says what it means:
real value = integer x 2^log_step. Rescaling is a truncation by whole bits, so nothing is ever rounded silently.

Two parties follow the same list: linear layers, squares, products of two values and what is revealed cost a message
each way, everything else is local on shares.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from privcirnet.he.encodings.integer import Values, convolve, expand_rows, round_shift, sum_pool, transpose
from privcirnet.he.encodings.layer import Layer
from privcirnet.he.encodings.spectral_layer import LinearLayer
from privcirnet.he.params import Parameters
from privcirnet.he.program import nonpolynomial
from privcirnet.he.program.rearrangement import Channels, Rearrangement, Tokens, rearrange

MASKS = ("uniform", "bounded")
BOUNDS = ("proved", "measured")


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
class Revealed:
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

    left: LinearLayer
    right: LinearLayer

    @property
    def groups(self) -> int:
        """The number g of channel groups."""
        return self.left.shape.groups


Operation = Input | Linear | Truncate | Square | Revealed | Add | SumPool | Product | Rearrangement


@dataclass(frozen=True)
class Node:
    """One step of a program.

    Attributes:
        name: unique.
        operation: what is computed.
        inputs: names of earlier nodes.
        shape: (C, H, W) of the result.
        log_step: real value = integer x 2^log_step.
        module: name of the module in the trained model that it comes from ("" if none).
    """

    name: str
    operation: Operation
    inputs: tuple[str, ...]
    shape: tuple[int, int, int]
    log_step: int
    module: str = ""


@dataclass(frozen=True)
class Weights:
    """Integer weights of a linear node, or the constants of a product or of tokens.

    Attributes:
        rows: int64, (K/b, C, R, R): the first row of each circulant block row; :data:`NO_ROWS` where there are none.
        bias: int64, (K,), of tokens (C, T), in units of the node's step.
    """

    rows: Values
    bias: Values


NO_ROWS: Values = np.zeros((0, 0, 1, 1), dtype=np.int64)


@dataclass(frozen=True)
class Program:
    """An integer network ready for encrypted inference. Without ``weights`` it is what the client knows.

    Attributes:
        nodes: in order of evaluation.
        parameters: of the encryption.
        weights: by name of the nodes that have some.
        masks: of values that are truncated. "uniform" hides perfectly and is wrong with a probability that
            :func:`bounds.wrap_probability` bounds; "bounded" is never wrong and hides to
            :func:`bounds.hiding_bits` bits.
        bounds: of the values. "proved" for every image, or "measured" on some, see :mod:`bounds`.
    """

    nodes: tuple[Node, ...]
    parameters: Parameters
    weights: Mapping[str, Weights] = field(default_factory=dict[str, Weights])
    masks: str = "uniform"
    bounds: str = "proved"

    @property
    def output(self) -> Node:
        """The logits."""
        return self.nodes[-1]

    @property
    def linear_nodes(self) -> list[tuple[Node, Layer]]:
        """Linear nodes, in order."""
        return [(n, n.operation.layer) for n in self.nodes if isinstance(n.operation, Linear)]

    @property
    def layers(self) -> list[tuple[Node, Layer]]:
        """Every encrypted layer, both of each product too, in order."""
        return [(node, layer) for node in self.nodes for layer in encrypted_layers(node.operation)]

    @property
    def revealed_nodes(self) -> list[Node]:
        """Nodes whose input the client sees in clear, in order."""
        return [n for n in self.nodes if isinstance(n.operation, Revealed)]

    @property
    def revealed(self) -> int:
        """How many values of an image the client sees in clear, the result left out."""
        return sum(math.prod(node.shape) for node in self.revealed_nodes)

    @property
    def column_steps(self) -> set[int]:
        """Rotations for which the server needs Galois keys."""
        return set[int]().union(*(layer.column_steps for _, layer in self.layers))


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


def masked_node(known: Mapping[str, Node], name: str) -> Node:
    """The node whose mask a value carries: itself, or what its channels were taken from."""
    node = known[name]
    while isinstance(node.operation, Channels):
        node = known[node.inputs[0]]
    return node


def interpret(
    program: Program,
    image: Values,
    truncate: Callable[[Node, Values], Values] | None = None,
) -> dict[str, Values]:
    """Evaluate every node in clear.

    Args:
        program: with weights.
        image: integers, shape of the input node.
        truncate: (node, input values) -> truncated values; the default rounds to nearest. The protocol's truncation
            may differ by 1 from it; a caller that knows the masks can pass exactly what the parties did.

    Returns:
        integer values of every node by name.
    """
    values: dict[str, Values] = {}
    for node in program.nodes:
        arguments = [values[name] for name in node.inputs]
        if isinstance(node.operation, Input):
            result = image.astype(np.int64).reshape(node.shape)
        elif isinstance(node.operation, Truncate) and truncate is not None:
            result = truncate(node, arguments[0])
        else:
            result = apply(node.operation, arguments, program.weights.get(node.name))
        values[node.name] = result
    return values


def apply(  # noqa: PLR0911
    operation: Operation, arguments: list[Values], weights: Weights | None = None
) -> Values:
    """One operation on integers."""
    match operation:
        case Linear() | Product() | Tokens():
            assert weights is not None
            return _apply_weights(operation, arguments, weights)
        case Truncate(bits):
            return round_shift(arguments[0], bits)
        case Square():
            return arguments[0] * arguments[0]
        case Revealed(function, log_step, bits):
            return nonpolynomial.apply(function, arguments[0], log_step, log_step + bits)
        case Add():
            return arguments[0] + arguments[1]
        case SumPool(kernel):
            return sum_pool(arguments[0], kernel)
        case Input():
            raise AssertionError("an input has no arguments")
        case _:
            return rearrange(operation, arguments[0])


def _apply_weights(operation: Linear | Product | Tokens, arguments: list[Values], weights: Weights) -> Values:
    match operation:
        case Linear(layer):
            result = convolve(arguments[0], expand_rows(weights.rows, layer.block_size), layer.shape)
        case Product(layer):
            result = convolve(arguments[0], as_weights(arguments[1], layer.shape.groups), layer.shape)
        case Tokens():
            result = rearrange(operation, arguments[0])
    return result + spread(weights.bias)


def spread(bias: Values) -> Values:
    """A bias of channels (K,), or of channels and places, as it is added to (K, H, W)."""
    return bias.reshape(bias.shape + (1,) * (3 - bias.ndim))


def as_weights(x: np.ndarray, groups: int) -> np.ndarray:
    """One factor of a product as the weights of the other's layer: (g k, B, 1) to (g B, k, 1, 1)."""
    return transpose(x, groups)[..., None]
