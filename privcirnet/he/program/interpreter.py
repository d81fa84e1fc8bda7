"""The plaintext interpreter of a program: the oracle for everything encrypted."""

from collections.abc import Callable

import numpy as np

from privcirnet.he.encodings.integer import Values, convolve, expand_rows, round_shift, sum_pool, transpose
from privcirnet.he.program import nonpolynomial
from privcirnet.he.program.operations import (
    Add,
    ClientAided,
    Input,
    Linear,
    Operation,
    Product,
    Square,
    SumPool,
    Truncate,
)
from privcirnet.he.program.program import Node, Program, Weights
from privcirnet.he.program.rearrangement import Tokens, rearrange


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
        case ClientAided(function, log_step, bits):
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
