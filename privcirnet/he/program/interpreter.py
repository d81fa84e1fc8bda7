"""The plaintext interpreter of a program: exact integer arithmetic, the oracle for everything encrypted.

It follows the same list of nodes as the two parties and applies the same operations to whole values instead of shares.
The only difference is truncation: here it rounds to nearest, while the protocol rounds up or down at random
(docs/mathematics.md, "Truncation"). A caller that knows the masks passes what the parties did.
"""

from collections.abc import Callable
from typing import assert_never

import numpy as np

from privcirnet.he.layers.integer import Values, convolve, dense_weight, round_shift, sum_pool, transpose
from privcirnet.he.program import nonpolynomial
from privcirnet.he.program import operations as op
from privcirnet.he.program.program import Node, Program, Weights
from privcirnet.he.program.rearrangement import rearrange


def interpret(
    program: Program,
    image: Values,
    truncate: Callable[[Node, Values], Values] | None = None,
) -> dict[str, Values]:
    """Evaluate every node in clear.

    Args:
        image: integers, shape of the input node.
        truncate: (node, input values) -> truncated values; the default rounds to nearest. The protocol's truncation
            may differ by 1 from it; a caller that knows the masks can pass exactly what the parties did.

    Returns:
        integer values of every node by name.
    """
    values: dict[str, Values] = {}
    for node in program.nodes:
        arguments = [values[name] for name in node.inputs]
        if isinstance(node.operation, op.Input):
            result = image.astype(np.int64).reshape(node.shape)
        elif isinstance(node.operation, op.Truncate) and truncate is not None:
            result = truncate(node, arguments[0])
        else:
            result = apply(node.operation, arguments, program.weights.get(node.name))
        values[node.name] = result
    return values


def apply(  # noqa: C901, PLR0911
    operation: op.Operation, arguments: list[Values], weights: Weights | None = None
) -> Values:
    """Return the result of one operation on integers.

    Args:
        operation: any but an input, which has no arguments.
        arguments: int64 values of the node's inputs, each (C, H, W).
        weights: of the node; only for operations that :func:`operations.has_weights`.
    """
    match operation:
        case op.Linear() | op.Product() | op.Tokens():
            assert weights is not None
            return _apply_weights(operation, arguments, weights)
        case op.Truncate(bits):
            return round_shift(arguments[0], bits)
        case op.Scale(bits):
            return arguments[0] << bits
        case op.Square():
            return arguments[0] * arguments[0]
        case op.ClientAided(function, log_step, bits):
            return nonpolynomial.apply(function, arguments[0], log_step, log_step + bits)
        case op.Add():
            return arguments[0] + arguments[1]
        case op.Concat():
            return np.concatenate(arguments)
        case op.SumPool(kernel):
            return sum_pool(arguments[0], kernel)
        case op.Flatten() | op.Take() | op.Channels() | op.Transpose() | op.Gather():
            return rearrange(operation, arguments[0])
        case op.Input():
            raise AssertionError("an input has no arguments")
        case _:
            assert_never(operation)


def _apply_weights(operation: op.Linear | op.Product | op.Tokens, arguments: list[Values], weights: Weights) -> Values:
    match operation:
        case op.Linear(layer):
            result = convolve(arguments[0], dense_weight(weights.rows, layer.shape, layer.block_size), layer.shape)
        case op.Product(layer):
            result = convolve(arguments[0], as_weights(arguments[1], layer.shape.groups), layer.shape)
        case op.Tokens():
            result = rearrange(operation, arguments[0])
    return result + spread(weights.bias)


def spread(bias: Values) -> Values:
    """Return a bias in the shape in which it is added to (K, H, W): the same numbers, (K, 1, 1) or (K, H, 1).

    Args:
        bias: of channels, (K,), or of channels and places, (K, H).
    """
    return bias.reshape(bias.shape + (1,) * (3 - bias.ndim))


def as_weights(x: np.ndarray, groups: int) -> np.ndarray:
    """Return one factor of a product as the weights of the other's layer: weights, shape (g B, k, 1, 1).

    Args:
        x: the factor, shape (g k, B, 1).
    """
    return transpose(x, groups)[..., None]
