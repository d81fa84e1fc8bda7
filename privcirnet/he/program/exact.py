"""The integer network of leveled inference: linear layers and squares in turn, exact, without rounding between them.

There is no truncation under encryption, so values grow: LoLa's MNIST network ends at some 90 bits. They are Python
integers here, and residues for several plain moduli under encryption.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.integer import Values, dense_weight
from privcirnet.he.layers.shape import LinearShape


@dataclass(frozen=True)
class LeveledLayer:
    """A linear layer.

    Attributes:
        name: unique.
        rows: the first row of each circulant block row, integers, ``shape.weight_shape(block_size)``.
        bias: Python integers, (K,).

    Raises:
        RuleError: the rows are not those of whole blocks, padded ones among them, or the bias has another length.
    """

    name: str
    shape: LinearShape
    block_size: int
    rows: Values
    bias: np.ndarray

    def __post_init__(self) -> None:
        wanted = self.shape.weight_shape(self.block_size), (self.shape.out_channels,)
        if (self.rows.shape, self.bias.shape) != wanted:
            rule = f"a layer's rows and bias must have the shapes {wanted[0]}, {wanted[1]}"
            got = f"{self.rows.shape} and {self.bias.shape} in {self.name}"
            raise RuleError(rule, got=got, remedy="give a first row for each block row, padded ones among them")

    @cached_property
    def weight(self) -> Values:
        """The dense weight, (K, C, R, R)."""
        return dense_weight(self.rows, self.shape, self.block_size)

    @property
    def matrix(self) -> np.ndarray:
        """The weights of a layer on a vector, (K, C).

        Raises:
            RuleError: it is on a map.
        """
        if self.shape.input_shape[1:] != (1, 1):
            got, remedy = f"{self.name} on {self.shape.input_shape}", "flatten first"
            raise RuleError("a layer behind the first must be on a vector", got=got, remedy=remedy)
        return self.weight[:, :, 0, 0]


@dataclass(frozen=True)
class LeveledNetwork:
    """Linear layers with a square between each two.

    Attributes:
        layers: in order, the first on the image, the others on vectors.
        low: least value of a pixel.
        high: largest value of a pixel.
        image: (C, H, W) of an image that the first layer flattens; None: it is on the image itself.
    """

    layers: tuple[LeveledLayer, ...]
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
            bound = _linear(layer, np.abs(layer.weight), np.abs(layer.bias), bound**2 if number else bound)
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
            values = _linear(layer, layer.weight, layer.bias, values**2 if number else values)
        return values.reshape(-1)


def check_image(image: np.ndarray, shape: tuple[int, int, int], low: int, high: int) -> None:
    """Raise unless an image is one of a network's.

    Args:
        shape: (C, H, W).
        low: least value of a pixel.
        high: largest value of a pixel.

    Raises:
        RuleError: a pixel is out of range, or the image has another shape.
    """
    if image.shape != shape:
        raise RuleError("an image must have the network's size", got=image.shape, remedy=f"give one of {shape}")
    if image.dtype.kind not in "iuO" or image.min() < low or image.max() > high:
        got, remedy = f"[{image.min()}, {image.max()}]", "use the quantization that it was trained with"
        raise RuleError(f"pixels must be integers in [{low}, {high}]", got=got, remedy=remedy)


def windows(shape: LinearShape, x: np.ndarray) -> np.ndarray:
    """Return what the outputs of each place of a layer see.

    Args:
        x: (C, H, W).

    Returns:
        (C R R, H' W'), of x's dtype: Python integers stay what they are, where np.pad would add NumPy's.
    """
    padding = shape.padding
    padded = np.zeros((len(x), shape.height + 2 * padding, shape.width + 2 * padding), dtype=x.dtype)
    padded[:, padding : padding + shape.height, padding : padding + shape.width] = x
    seen = np.lib.stride_tricks.sliding_window_view(padded, (shape.kernel, shape.kernel), axis=(1, 2))
    every = seen[:, :: shape.stride, :: shape.stride].transpose(0, 3, 4, 1, 2)
    return every.reshape(len(x) * shape.kernel**2, -1)


def _linear(layer: LeveledLayer, weight: np.ndarray, bias: np.ndarray, values: np.ndarray) -> np.ndarray:
    columns = windows(layer.shape, values.reshape(layer.shape.input_shape))
    rows = weight.reshape(len(weight), -1).astype(object)
    return (rows @ columns + bias[:, None]).reshape(layer.shape.output_shape)
