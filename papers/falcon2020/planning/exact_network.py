"""A network as leveled BFV plans it: linear layers and squares in turn, exact, without rounding between them.

:func:`exact_network_of` finds them in a program of any operations that come to that: multiples and constants join the
layer beside them. There is no truncation under encryption, so values grow: LoLa's MNIST network ends at some 90 bits.
They are Python integers here, and residues for several plain moduli under encryption.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values, convolve, dense_weight
from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.program.operation import Domain, Weights, spread
from privcirnet.he.program.program import Network


@dataclass(frozen=True)
class ExactLayer:
    """A linear layer.

    Attributes:
        name: unique.
        rows: the first row of each circulant block row, integers, ``shape.weight_shape(block_size)``.
        bias: Python integers, (K,).
    """

    name: str
    shape: LinearShape
    block_size: int
    rows: Values
    bias: np.ndarray

    def __post_init__(self) -> None:
        if self.shape.across is not None or self.shape.behind is not None:
            rule, remedy = (
                "a leveled layer's windows must be alike along both axes",
                "infer it with the interactive protocol",
            )
            raise RuleError(rule, got=self.name, remedy=remedy)
        wanted = self.shape.weight_shape(self.block_size), (self.shape.out_channels,)
        if (self.rows.shape, self.bias.shape) != wanted:
            rule = f"a layer's rows and bias must have the shapes {wanted[0]}, {wanted[1]}"
            got = f"{self.rows.shape} and {self.bias.shape} in {self.name}"
            raise RuleError(rule, got=got, remedy="give a first row for each block row, padded ones among them")

    @cached_property
    def weight(self) -> Values:
        """The dense weight, (K, C, R, R)."""
        return dense_weight(self.rows, self.shape, self.block_size)

    def apply(self, values: np.ndarray, of: Callable[[np.ndarray], np.ndarray] = np.asarray) -> np.ndarray:
        """Return the layer's result: Python integers, (K, H', W').

        Args:
            values: Python integers, as many as it takes.
            of: what is applied to weights and bias before.
        """
        found = convolve(values.reshape(self.shape.input_shape), of(self.weight), self.shape)
        return found + spread(of(self.bias))

    @property
    def matrix(self) -> np.ndarray:
        """The weights of a layer on a vector, (K, C)."""
        if self.shape.input_shape[1:] != (1, 1):
            got, remedy = f"{self.name} on {self.shape.input_shape}", "flatten first"
            raise RuleError("a layer behind the first must be on a vector", got=got, remedy=remedy)
        return self.weight[:, :, 0, 0]


@dataclass(frozen=True)
class ExactNetwork:
    """Linear layers with a square between each two.

    Attributes:
        layers: in order, the first on the image, the others on vectors.
        low: least value of a pixel.
        high: largest value of a pixel.
        image: (C, H, W) of an image that the first layer flattens; None: it is on the image itself.
    """

    layers: tuple[ExactLayer, ...]
    low: int
    high: int
    image: tuple[int, int, int] | None = None

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """(C, H, W) of an image."""
        return self.image or self.layers[0].shape.input_shape

    @cached_property
    def bits(self) -> int:
        """Bits of the results, sign included, proved from the weights: |value| < 2^(bits - 1)."""
        bound = np.full(self.layers[0].shape.input_shape, max(abs(self.low), abs(self.high)), dtype=object)
        for number, layer in enumerate(self.layers):
            bound = layer.apply(bound**2 if number else bound, np.abs)
        return int(bound.max()).bit_length() + 1

    def evaluate(self, image: np.ndarray) -> np.ndarray:
        """Return the network's results, exactly: Python integers, (K,).

        Args:
            image: integers, (C, H, W).

        Raises:
            RuleError: a pixel is out of range, or the image has another shape.
        """
        check_image(image, self.input_shape, self.low, self.high)
        values = image.astype(object)
        for number, layer in enumerate(self.layers):
            values = layer.apply(values**2 if number else values)
        return values.reshape(-1)


def check_image(image: np.ndarray, shape: tuple[int, int, int], low: int, high: int) -> None:
    """Raise unless an image is one of a network's; ``shape``: (C, H, W)."""
    if image.shape != shape:
        raise RuleError("an image must have the network's size", got=image.shape, remedy=f"give one of {shape}")
    if image.dtype.kind not in "iuO" or image.min() < low or image.max() > high:
        got, remedy = f"[{image.min()}, {image.max()}]", "use the quantization that it was trained with"
        raise RuleError(f"pixels must be integers in [{low}, {high}]", got=got, remedy=remedy)


@dataclass(frozen=True)
class _Value:
    """A value of the network.

    Attributes:
        layers: up to here.
        open: it is the last one's result; else that result's square, or the image, times a factor.
    """

    layers: tuple[ExactLayer, ...]
    open: bool = False
    factor: int = 1


class _Chains(Domain[_Value]):
    name, remedy = "a leveled network", "infer it with the interactive protocol"

    def image(self, low: int, high: int) -> _Value:
        return _Value(())

    def move(self, places: Callable[..., np.ndarray], *values: _Value) -> _Value:
        if not self.keeps_order(places):
            self.refuse("moved values")
        return values[0]

    def times(self, x: _Value, factor: int) -> _Value:
        if not x.open:
            return replace(x, factor=x.factor * factor)
        last = x.layers[-1]
        return replace(x, layers=(*x.layers[:-1], replace(last, rows=last.rows * factor, bias=last.bias * factor)))

    def plus(self, x: _Value, constants: np.ndarray) -> _Value:
        if not x.open:
            self.refuse("constants behind a square")
        last = x.layers[-1]
        return replace(x, layers=(*x.layers[:-1], replace(last, bias=last.bias + self.of_channels(constants))))

    def linear(self, layer: Layer, x: _Value, weights: Weights) -> _Value:
        if x.open:
            self.refuse("two linear layers without a square between them")
        bias = np.array([int(value) for value in weights.bias], dtype=object)
        made = ExactLayer(self.title, layer.shape, layer.block_size, weights.rows * x.factor, bias)
        return _Value((*x.layers, made), open=True)

    def square(self, x: _Value) -> _Value:
        if not x.open:
            self.refuse("two squares without a linear layer between them")
        return replace(x, open=False)


def exact_network_of(network: Network) -> ExactNetwork:
    """Return the linear layers of a network with a square between each two.

    Raises:
        RuleError: it has something else; with the operation's name.
    """
    source, found = network.source, _Chains().values(network.nodes, network.weights)[network.output.name]
    if not found.open:
        rule, remedy = "a leveled network must end in a linear layer", "add one"
        raise RuleError(rule, got=f"{len(found.layers)} layers", remedy=remedy)
    shape = network.nodes[0].shape
    image = None if found.layers[0].shape.input_shape == shape else shape
    return ExactNetwork(found.layers, source.low, source.high, image)
