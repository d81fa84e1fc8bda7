"""The integer network as data, and its plaintext interpreter: the oracle for everything encrypted.

A program is a list of nodes in order of evaluation. Every value is an integer array; ``log_step`` says what it means:
real value = integer x 2^log_step. Rescaling is a truncation by whole bits, so nothing is ever rounded silently.

Two parties follow the same list: linear layers and squares cost a message each way, everything else is local on shares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from privcirnet.he.integer import Values, convolve, expand_rows, round_shift, sum_pool
from privcirnet.he.layers import Layer
from privcirnet.he.params import Parameters

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
class Add:
    """Sum of two nodes with the same step."""


@dataclass(frozen=True)
class SumPool:
    """Sum over non-overlapping windows (average pooling whose division went into ``log_step``)."""

    kernel: int


@dataclass(frozen=True)
class Flatten:
    """(C, H, W) to (C H W, 1, 1)."""


Operation = Input | Linear | Truncate | Square | Add | SumPool | Flatten


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
    """Integer weights of a linear node.

    Attributes:
        rows: int64, (K/b, C, R, R): the first row of each circulant block row.
        bias: int64, (K,), in units of the node's step.
    """

    rows: Values
    bias: Values


@dataclass(frozen=True)
class Program:
    """An integer network ready for encrypted inference. Without ``weights`` it is what the client knows.

    Attributes:
        nodes: in order of evaluation.
        parameters: of the encryption.
        weights: by name of the linear nodes.
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
        """Nodes with weights, in order."""
        return [(n, n.operation.layer) for n in self.nodes if isinstance(n.operation, Linear)]

    @property
    def column_steps(self) -> set[int]:
        """Rotations for which the server needs Galois keys."""
        return set[int]().union(*(layer.column_steps for _, layer in self.linear_nodes))


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


def apply(operation: Operation, arguments: list[Values], weights: Weights | None = None) -> Values:
    """One operation on integers."""
    match operation:
        case Linear(layer):
            assert weights is not None
            dense = expand_rows(weights.rows, layer.block_size)
            return convolve(arguments[0], dense, layer.shape) + weights.bias[:, None, None]
        case Truncate(bits):
            return round_shift(arguments[0], bits)
        case Square():
            return arguments[0] * arguments[0]
        case Add():
            return arguments[0] + arguments[1]
        case SumPool(kernel):
            return sum_pool(arguments[0], kernel)
        case Flatten():
            return arguments[0].reshape(-1, 1, 1)
        case Input():
            raise AssertionError("an input has no arguments")
