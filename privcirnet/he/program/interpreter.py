"""Interpreter of programs on integers in clear: the reference that encrypted runs are compared with.

It applies the operations of the list of nodes to whole values instead of shares. Truncation rounds to nearest here and
in exact programs. Random truncation on shares rounds up or down (docs/mathematics.md, "Truncation"); a caller that
knows the masks passes the parties' rounding.

Values are int64, or the image's own type for images of Python integers or real numbers.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from privcirnet.he.layers.integer import Values, convolve, dense_weight, round_shift, sum_pool, transpose
from privcirnet.he.layers.layer import Layer
from privcirnet.he.program.operation import BoundedFunction, Domain, Node, Operation, Weights, spread
from privcirnet.he.program.program import Program


class Integers(Domain[np.ndarray]):
    """Whole values, (C, H, W).

    Args:
        pixels: the image; None where no node is an input.
        truncation: see :func:`interpret`.
    """

    name, remedy = "a program in clear", "define what the operation does with integers"

    def __init__(
        self, pixels: np.ndarray | None = None, truncation: Callable[[Node, Values], Values] | None = None
    ) -> None:
        self._pixels, self._truncation = pixels, truncation

    def image(self, low: int, high: int) -> np.ndarray:
        if self._pixels is None or self.node is None:
            self.refuse("an image")
        return self._pixels.reshape(self.node.shape)

    def move(self, places: Callable[..., np.ndarray], *values: np.ndarray) -> np.ndarray:
        return places(*values)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    def times(self, x: np.ndarray, factor: int) -> np.ndarray:
        return x * factor

    def pool(self, x: np.ndarray, window: tuple[int, int]) -> np.ndarray:
        return sum_pool(x, window)

    def plus(self, x: np.ndarray, constants: np.ndarray) -> np.ndarray:
        return x + constants

    def truncate(self, x: np.ndarray, bits: int) -> np.ndarray:
        if self._truncation is not None and self.node is not None:
            return self._truncation(self.node, x)
        return round_shift(x, bits)

    def linear(self, layer: Layer, x: np.ndarray, weights: Weights) -> np.ndarray:
        dense = dense_weight(weights.rows, layer.shape, layer.block_size)
        return convolve(x, dense, layer.shape) + spread(weights.bias)

    def square(self, x: np.ndarray) -> np.ndarray:
        return x * x

    def product(self, operation: Any, x: np.ndarray, y: np.ndarray, weights: Weights) -> np.ndarray:
        shape = operation.left.shape
        return convolve(x, as_weights(y, shape.groups), shape) + spread(weights.bias)

    def function(self, operation: BoundedFunction, x: np.ndarray) -> np.ndarray:
        return operation.values(x)


def interpret(
    program: Program,
    image: Values,
    truncate: Callable[[Node, Values], Values] | None = None,
) -> dict[str, Values]:
    """Return the integer values of every node by name, in clear.

    Args:
        image: integers, shape of the input node.
        truncate: (node, input values) -> truncated values; the default rounds to nearest. The protocol's truncation
            may differ by 1 from it; a caller that knows the masks can pass exactly what the parties did.
    """
    return Integers(image.astype(np.int64), truncate).values(program.nodes, program.weights)


def apply(operation: Operation, arguments: Sequence[np.ndarray], weights: Weights | None = None) -> np.ndarray:
    """Return the result of one operation on integers.

    Args:
        operation: any but an input, which has no arguments.
        arguments: int64 values of the node's inputs, each (C, H, W).
        weights: weights of the node, if it has some.
    """
    return operation.apply(Integers(), arguments, weights)


def as_weights(x: np.ndarray, groups: int) -> np.ndarray:
    """Return one factor of a product as the weights of the other's layer: weights, shape (g B, k, 1, 1).

    Args:
        x: the factor, shape (g k, B, 1).
    """
    return transpose(x, groups)[..., None]
