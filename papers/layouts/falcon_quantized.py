"""Falcon's spectral layer as the paper has it: complex transforms with quantised twiddles, real and imaginary parts.

:mod:`papers.layouts.falcon` computes the same layer with transforms that are exact mod t. This one is the
comparison: no plan of a network uses it. Twiddles are integers of some bits, w^(f j) = (c + i s) / m with m = 2^(bits -
1) - 1, and so are the weights' spectra. The result is the layer's times a scale m^2 k w, up to roundings that no later
step takes back. Blocks have four values or more: with two there are no imaginary parts.

* DFT (algorithm 1): two products, 2 log2 k rotations.
* Spectral products (algorithm 2): four products, 2 log2 p rotations.
* Inverse DFT, of which the real part is wanted: 2 k - 1 diagonals for each part, baby steps and giant steps; sums of
  both parts share the giant steps.

Layout and names are those of :mod:`papers.layouts.falcon`.
Source: Lou et al., Falcon (NeurIPS 2020), Section 3, equation 5, Table 3.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.circuits.network_circuit import NetworkCircuit
from papers.falcon2020.planning.exact_network import ExactLayer
from papers.layouts.falcon import Spectral, inverse_steps, spectral_product


@dataclass(frozen=True)
class QuantizedLayer:
    """A block-circulant layer with quantised complex transforms.

    Attributes:
        layer: on a vector, its blocks a power of two.

    Raises:
        DoesNotFit: the layer has too many blocks, when the layout is asked for.
    """

    layer: ExactLayer
    ring_degree: int
    bits: int = 8

    @cached_property
    def layout(self) -> Spectral:
        """Which value is in which slot."""
        return Spectral(self.layer, self.ring_degree)

    @property
    def largest(self) -> int:
        """m, what a twiddle of 1 is."""
        return (1 << (self.bits - 1)) - 1

    @cached_property
    def twiddles(self) -> tuple[np.ndarray, np.ndarray]:
        """Real and imaginary parts of m w^(f j) with w = exp(-2 pi i / k), integers, each (k, k)."""
        k = self.layer.block_size
        angles = 2 * np.pi * np.outer(np.arange(k), np.arange(k)) / k
        cos, sin = np.rint(self.largest * np.cos(angles)), np.rint(-self.largest * np.sin(angles))
        return cos.astype(np.int64), sin.astype(np.int64)

    @cached_property
    def spectra(self) -> tuple[np.ndarray, np.ndarray, float]:
        """(Real parts, imaginary parts, their scale): integers, (output blocks, input blocks, k) each."""
        k, layout = self.layer.block_size, self.layout
        rows = self.layer.rows[:, :, 0, 0].reshape(layout.blocks_out, layout.blocks_in, k)
        exact = np.fft.fft(rows[..., -np.arange(k) % k])
        scale = self.largest / np.abs(exact).max()
        return np.rint(scale * exact.real).astype(np.int64), np.rint(scale * exact.imag).astype(np.int64), scale

    @property
    def scale(self) -> float:
        """What the layer's results are multiplied by."""
        return self.largest**2 * self.layer.block_size * self.spectra[2]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        """Return what the circuit computes, block by block.

        Args:
            x: integers, (C,).

        Returns:
            integers, (K,), without a bias.
        """
        (cos, sin), (real, imaginary, _), k = self.twiddles, self.spectra, self.layer.block_size
        padded = np.zeros(self.layout.blocks_in * k, dtype=np.int64)
        padded[: len(x)] = x
        blocks = padded.reshape(-1, k)
        first, second = blocks @ cos.T, blocks @ sin.T
        up = np.einsum("opf,pf->of", real, first) - np.einsum("opf,pf->of", imaginary, second)
        across = np.einsum("opf,pf->of", real, second) + np.einsum("opf,pf->of", imaginary, first)
        return (up @ cos + across @ sin).reshape(-1)[: self.layer.shape.out_channels]

    def result_bits(self, largest: int) -> int:
        """Return the bits of a result, sign included, proved from the spectra."""
        k, (real, imaginary, _) = self.layer.block_size, self.spectra
        sums = int((np.abs(real) + np.abs(imaginary)).sum(axis=(1, 2)).max())
        return (2 * self.largest**2 * k * largest * sums).bit_length() + 1

    def circuit(self) -> NetworkCircuit:
        """Return the layer from one ciphertext to one."""
        builder, layout = Builder(self.ring_degree, 1), self.layout
        builder.layer = self.layer.name
        first, second = (
            builder.sum_over(builder.weighted([(0, self._forward(part))]), layout.stride, layout.k)
            for part in self.twiddles
        )
        real, imaginary = (self._spectrum(part) for part in self.spectra[:2])
        up = builder.weighted([(first, real), (second, -imaginary)])
        across = builder.weighted([(first, imaginary), (second, real)])
        parts = [builder.sum_over(value, 1, layout.width) for value in (up, across)]
        return builder.built([self._inverse(builder, *parts)])

    def _forward(self, part: np.ndarray) -> np.ndarray:
        layout = self.layout
        return np.where(layout.values >= 0, part[layout.f % layout.k, layout.j], 0)

    def _spectrum(self, part: np.ndarray) -> np.ndarray:
        layout = self.layout
        held = layout.used & (layout.o < layout.blocks_out)
        found = part[layout.o % layout.blocks_out, layout.p % layout.blocks_in, layout.f % layout.k]
        return np.where(held, found, 0)

    def _inverse(self, builder: Builder, up: int, across: int) -> int:
        """The real part: outputs i = f read f + shift of either part."""
        layout, k = self.layout, self.layout.k

        def terms(turn: int, babies: list[int]) -> Iterator[tuple[int, int, np.ndarray]]:
            for baby in babies:
                source = layout.f + turn // layout.width + baby
                held = (layout.outputs >= 0) & (source >= 0) & (source < k)
                for value, part in zip((up, across), self.twiddles, strict=True):
                    slots = np.where(held, part[source % k, layout.f % k], 0).reshape(2, -1)
                    yield value, baby * layout.width, np.roll(slots, turn, axis=1).reshape(-1)

        turns = {giant * layout.width: babies for giant, babies in inverse_steps(k).items()}
        return builder.transformed({turn: terms(turn, babies) for turn, babies in turns.items()})


def exact_circuit(layer: ExactLayer, ring_degree: int) -> NetworkCircuit:
    """Return the same layer with transforms that are exact mod t, from one ciphertext to one.

    Args:
        layer: on a vector, its blocks a power of two.
    """
    builder = Builder(ring_degree, 1)
    builder.layer = layer.name
    return builder.built([spectral_product(builder, Spectral(layer, ring_degree), 0)])
