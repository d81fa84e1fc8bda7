"""The interface of every encrypted linear layer, and several images as a tall one.

A layer is public data: what both parties know of how one convolution or GEMM is computed under encryption. Its
dataclass fields are its description, stored with a program and sent to clients. Everything else follows from them.

A program's layers are :class:`layers.spectral_layer.SpectralLayer`. Exchanges, engines and costs ask for no more than
the members of :class:`Layer`, so other encodings run beside it: papers/coefficients has those of polynomials.

Stacks: images stand one below the other, with rows of zeros in between, as many as the padding and as the stride asks
for. The same weights on this tall image give every image's result, and a few rows between them that nobody reads. So a
lane holds the maps of several images, fewer channels share a ciphertext, and fewer rotations bring them together: of
layers that fill an eighth of a ciphertext, eight images cost little more than one. That needs plaintexts of its own,
and their number grows as rotations fall. Only offline work is shared like this: images themselves come one at a time.

Letters: C input channels, K output channels, b block size, R kernel size, n ring degree, t plain modulus.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from privcirnet.he.bfv.interface import Ciphertext, EncodedWeights, EvaluationKeys, ServerEngine
from privcirnet.he.bfv.layer_circuit import LayerCircuit
from privcirnet.he.bfv.parameters import Parameters, ciphertext_bytes, reply_bits
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.ring.modular import Integers, Residues


class Layer(Protocol):
    """An encrypted linear layer, as both parties know it.

    An exchange: the client sends ``encode_input`` of its share, encrypted. The server adds its own share in the same
    encoding, calls ``evaluate`` with weights from ``encode_spectrum``, adds uniform slots and sends the results. The
    client decrypts them and calls ``decode_output``.
    """

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def shape(self) -> LinearShape:
        """Dimensions of the convolution or GEMM."""
        ...

    @property
    def block_size(self) -> int:
        """The size b of the weight's circulant blocks, 1 for a dense weight."""
        ...

    @property
    def ring_degree(self) -> int:
        """The ring degree n that the layer is laid out for."""
        ...

    @property
    def encoding(self) -> str:
        """Name in a program's manifest."""
        ...

    @property
    def choices(self) -> Mapping[str, str]:
        """Differences between layers of the same shape and encoding, in words, by name of the choice."""
        ...

    @property
    def rotations(self) -> int:
        """Number of HE-Rot."""
        ...

    @property
    def pmults(self) -> int:
        """Number of HE-Pmult, if no plaintext is zero by chance."""
        ...

    @property
    def most_products(self) -> int:
        """Number of plaintext products at most, found before they are listed."""
        ...

    @property
    def ciphertexts_in(self) -> int:
        """Number of ciphertexts that the client sends."""
        ...

    @property
    def ciphertexts_out(self) -> int:
        """Number of ciphertexts that the server sends back."""
        ...

    @property
    def column_steps(self) -> set[int]:
        """Column steps of all rotations, which the server needs Galois keys for."""
        ...

    @property
    def transform_lengths(self) -> set[int]:
        """Lengths of transforms mod t, which must divide t - 1; 1 is always allowed."""
        ...

    @property
    def transformed_values(self) -> int:
        """The most values that either party transforms at a time; 0 without transforms."""
        ...

    @property
    def size_excess(self) -> str:
        """The excess of the description itself, "" if there is none (:mod:`layers.spectral_pieces`).

        It is asked for before any member that lists tiles, pieces or polynomials.
        """
        ...

    @property
    def spectrum_shape(self) -> tuple[int, ...]:
        """Shape of :meth:`spectrum`."""
        ...

    @property
    def circuit(self) -> LayerCircuit:
        """The rotations, products and sums that an engine performs."""
        ...

    @property
    def kept(self) -> tuple[Integers, ...] | None:
        """Ascending coefficients of each reply's c0 that the client needs, (ciphertexts_out); None for all of them."""
        ...

    def noise_bits(self, parameters: Parameters) -> int:
        """Return log2 of a bound on the noise of a result, from public data."""
        ...

    def encode_input(self, x: Residues, t: int) -> Residues:
        """Return a share of the input as slots: shape (ciphertexts_in, n); ``x``: residues, shape (C, H, W)."""
        ...

    def spectrum(self, rows: Integers, t: int) -> Residues:
        """Return the weights that the server stores: each distinct value of the plaintexts, once.

        Args:
            rows: integer weights, the first row of each circulant block row, shape (K/b, C/groups, R, R).

        Returns:
            residues, shape :attr:`spectrum_shape`.

        Raises:
            RuleError: weights that the noise bound does not cover.
        """
        ...

    def encode_spectrum(self, spectrum: Residues, engine: ServerEngine) -> EncodedWeights:
        """Return all plaintexts, encoded once for many inferences."""
        ...

    def plaintexts(self, spectrum: Residues, t: int) -> Iterator[tuple[tuple[int, ...], Residues]]:
        """Yield each product, as (piece, target, giant, baby, source), with its plaintext; zeros are left out.

        Yields:
            (five numbers, slots of shape (n,)).
        """
        ...

    def evaluate(
        self, weights: EncodedWeights, inputs: Sequence[Ciphertext], engine: ServerEngine, keys: EvaluationKeys
    ) -> Sequence[Ciphertext]:
        """Return the results of the layer's circuit: ciphertexts_out ciphertexts."""
        ...

    def decode_output(self, slots: Residues, t: int) -> Residues:
        """Return a share of the output from a share of the slots that were sent: residues, shape (K, H', W').

        Args:
            slots: residues, shape (ciphertexts_out, n).
        """
        ...


def layer_bytes(layer: Layer, coefficient_bits: tuple[int, ...], plain_bits: int) -> tuple[int, int]:
    """Return the bytes that a layer sends, exactly: (client to server, server to client).

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
    """
    n, bits = layer.ring_degree, reply_bits(coefficient_bits, plain_bits)
    up, down = ciphertext_bytes(n, coefficient_bits, plain_bits)
    parts = [down] * layer.ciphertexts_out if layer.kept is None else [bits.octets(n, len(k)) for k in layer.kept]
    return layer.ciphertexts_in * up, sum(parts)


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
    rows = shape.height + max(shape.windows[0].ends)
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
