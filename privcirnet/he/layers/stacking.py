"""Several images as a tall one: a linear layer whose ciphertexts have room left takes them together.

Maths: images stand one below the other, with rows of zeros in between, as many as the padding and as the stride asks
for. The same weights on this tall image give every image's result, and a few rows between them that nobody reads. So a
lane holds the maps of several images, fewer channels share a ciphertext, and fewer rotations bring them together: of
layers that fill an eighth of a ciphertext, eight images cost little more than one.

That needs plaintexts of its own, and their number grows as rotations fall. Only offline work is shared like this:
images themselves come one at a time.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from privcirnet.he.layers.layer import Layer
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring.modular import Integers, Residues

MOST_IMAGES = 8
"""Most images that are prepared at once."""


@dataclass(frozen=True)
class Stack:
    """A linear layer that takes several images together.

    Attributes:
        least: images from which on a stack that is not full costs less than one image after the other.
        layer: layer of the tall image, see :func:`stacked_shape`.
    """

    images: int
    least: int
    layer: Layer


def stacked_shape(shape: LinearShape, images: int) -> LinearShape:
    """Return the dimensions of a layer on several images, one below the other.

    >>> stacked_shape(LinearShape(4, 4, 16, 16, kernel=3, padding=1), 3).output_shape
    (16, 14, 4)
    """
    return replace(shape, height=(images - 1) * pitch(shape) + shape.height)


def pitch(shape: LinearShape) -> int:
    """Return the rows from one image to the next: a multiple of the stride, and with zeros where windows reach over."""
    rows = shape.height + shape.padding
    return rows + -rows % shape.stride


def join(shape: LinearShape, images: int, x: Sequence[Residues]) -> Residues:
    """Return images as one tall image, with zeros for those that are missing: (C, H', W).

    Args:
        x: at most as many, (C, H, W) each.
    """
    return _below(x, pitch(shape), np.zeros(stacked_shape(shape, images).input_shape, dtype=np.uint64))


def split(shape: LinearShape, images: int, y: Residues) -> Residues:
    """Return the results of the first images of a tall one: (images, K, H', W').

    Args:
        y: result of the tall image, (K, H', W').
    """
    step, rows = pitch(shape) // shape.stride, shape.output_shape[1]
    return np.stack([y[:, number * step : number * step + rows] for number in range(images)])


def repeated(shape: LinearShape, images: int, y: Integers) -> Integers:
    """Return the same values for each image's result, as the tall image's: (K, H'', W'), zeros between images.

    Args:
        y: (K, H', W').
    """
    return _below(
        [y] * images, pitch(shape) // shape.stride, np.zeros(stacked_shape(shape, images).output_shape, y.dtype)
    )


def _below(maps: Sequence[npt.NDArray[Any]], step: int, into: npt.NDArray[Any]) -> npt.NDArray[Any]:
    for number, array in enumerate(maps):
        into[:, number * step : number * step + array.shape[1]] = array
    return into
