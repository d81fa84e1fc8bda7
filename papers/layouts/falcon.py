"""Falcon 2020's plan: a block-circulant layer in the frequency domain, both transforms under encryption.

With blocks of size k the layer is y = IDFT(sum over p of W[o, p] * DFT(x[p])), slot by slot (equation 4). The paper's
transforms are complex, with twiddles quantised to 8 bits, on real and imaginary parts (equation 5). Here they are
exact: number-theoretic transforms mod t of length k, for k divides t - 1 (t = 1 mod 2n). They need no complex slots, no
rounding and no scale, and their twiddles are as large as any plaintext.

Columns of a row, slowest first: j (k of them, cyclic), f (k), p (a power of two). The client spreads the image so that
every f has a copy of x, value (p, j) at column (j, f, p).

* DFT (algorithm 1): times w^(f j), then log2 k rotations add over j. j is cyclic, so that all j hold the result: these
  are the copies that algorithm 2 stacks.
* Spectral products (algorithm 2): column (j, f, p) of a row meets the weights of output block o = j, or k + j in the
  second row; log2 p rotations add over p.
* Inverse DFT: a k x k matrix over f by its diagonals, baby steps and giant steps. Its plaintexts also are the mask.
* The last layer: a row-major product (LoLa's) for each output.

Source: Lou et al., Falcon (NeurIPS 2020), Section 3, algorithms 1 and 2, Table 6: for MNIST 46 rotations in the first
fully connected layer and 120 in all. Here 16 and 86: no complex slots, and the client stacks.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from papers.falcon2020.circuits.builder import Builder
from papers.falcon2020.circuits.network_circuit import Plaintext
from papers.falcon2020.planning.exact_network import ExactLayer, ExactNetwork
from papers.falcon2020.planning.plan import Plan, plan_of
from papers.falcon2020.planning.spread import convolution, three_layers
from papers.falcon2020.planning.transforms import block_spectra, cyclic_matrix
from privcirnet.errors import DoesNotFit
from privcirnet.he.layers import bsgs
from privcirnet.he.layers.spectral_layout import next_power_of_two
from privcirnet.he.ring.modular import Residues


class Spectral:
    """The layout of a spectral layer: for each slot its row, j, f, p.

    Raises:
        DoesNotFit: k x k x p values do not fit a row, or the output blocks two rows.
    """

    def __init__(self, layer: ExactLayer, ring_degree: int) -> None:
        self.layer, self.k = layer, layer.block_size
        padded = layer.shape.padded(self.k)
        self.blocks_in, self.blocks_out = (c // self.k for c in (padded.in_channels, padded.out_channels))
        self.width, row = next_power_of_two(self.blocks_in), ring_degree // 2
        self.stride = row // self.k
        if self.k & (self.k - 1) or self.k * self.width > self.stride or self.blocks_out > 2 * self.k:
            got = f"{self.blocks_out} x {self.blocks_in} blocks of {self.k} for {ring_degree} slots"
            raise DoesNotFit("a spectral layer's k x k x p values must fit a row", got=got, remedy="use smaller blocks")
        slots = np.arange(ring_degree)
        column = slots % row
        self.j, rest = np.divmod(column, self.stride)
        self.f, self.p = np.divmod(rest, self.width)
        self.o = slots // row * self.k + self.j
        self.used = (self.f < self.k) & (self.p < self.blocks_in)

    @property
    def values(self) -> np.ndarray:
        """For each slot the input that it holds, -1 for none: (n,)."""
        found = self.p * self.k + self.j
        return np.where(self.used & (found < self.layer.shape.in_channels), found, -1)

    @property
    def outputs(self) -> np.ndarray:
        """For each slot the output that it holds in the end, at f = i and p = 0; -1 for none: (n,)."""
        found = self.o * self.k + self.f
        held = self.used & (self.p == 0) & (self.o < self.blocks_out) & (found < self.layer.shape.out_channels)
        return np.where(held, found, -1)

    def twiddles(self, t: int) -> Residues:
        """Return the slots of the DFT: w^(f j) where there is an input, (n,)."""
        matrix = cyclic_matrix(self.k, t)
        return np.where(self.values >= 0, matrix[self.f % self.k, self.j], np.uint64(0))

    def spectrum(self, t: int) -> Residues:
        """Return the slots of the weights' transforms, W[o, p, f], (n,)."""
        spectra = block_spectra(self.layer.rows[:, :, 0, 0].reshape(self.blocks_out, self.blocks_in, self.k), t)
        held = self.used & (self.o < self.blocks_out)
        return np.where(held, spectra[self.o % self.blocks_out, self.p % self.blocks_in, self.f % self.k], np.uint64(0))

    def inverse(self, shift: int, turn: int, t: int) -> Residues:
        """Return the slots of one diagonal of the inverse DFT: outputs i = f read f + shift, (n,).

        Args:
            turn: columns of a later rotation of the products.
        """
        matrix, source = cyclic_matrix(self.k, t, inverse=True), self.f + shift
        held = (self.outputs >= 0) & (0 <= source) & (source < self.k)
        slots = np.where(held, matrix[self.f % self.k, source % self.k], np.uint64(0))
        return np.roll(slots.reshape(2, -1), turn, axis=1).reshape(-1)


def falcon_plan(network: ExactNetwork, ring_degree: int) -> Plan:
    """Return Falcon's plan.

    Args:
        network: a convolution, a block-circulant layer of few outputs, a layer.

    Raises:
        DoesNotFit: the circulant layer has too many blocks.
        RuleError: the network has another number of layers.
    """
    first, circulant, last = three_layers(network)
    spectral = Spectral(circulant, ring_degree)
    builder = Builder(ring_degree, first.weight[0].size)
    squared, columns = convolution(builder, first, spectral.values)
    builder.layer = circulant.name
    product = spectral_product(builder, spectral, squared)
    builder.layer = f"square behind {circulant.name}"
    hidden = builder.square(product)
    held = spectral.outputs >= 0

    def products(row: np.ndarray) -> int:
        made = builder.weighted([(hidden, np.where(held, row[spectral.outputs], 0))])
        return builder.add(made, builder.swap(made))

    outputs = row_major(builder, last, products, (spectral.width, spectral.k), (spectral.stride, spectral.k))
    results = tuple((number, 0) for number in range(len(outputs)))
    return plan_of(network, builder.built(outputs), columns, results)


def spectral_product(builder: Builder, spectral: Spectral, value: int) -> int:
    """Return the circulant layer's outputs, :attr:`Spectral.outputs`.

    Args:
        value: the layer's input, :attr:`Spectral.values`.
    """
    spectrum = builder.sum_over(builder.weighted([(value, spectral.twiddles)]), spectral.stride, spectral.k)
    summed = builder.sum_over(builder.weighted([(spectrum, spectral.spectrum)]), 1, spectral.width)
    made = _inverse(builder, spectral, summed)
    held = spectral.outputs >= 0
    return builder.add_integers(made, np.where(held, spectral.layer.bias[spectral.outputs], 0))


def _inverse(builder: Builder, spectral: Spectral, value: int) -> int:
    """The inverse DFT over f: 2 k - 1 diagonals, those of a giant step added up before it."""
    k, width = spectral.k, spectral.width

    def term(giant: int, baby: int) -> tuple[int, int, Plaintext]:
        return value, baby * width, partial(spectral.inverse, giant + baby, giant * width)

    return builder.transformed({g * width: [term(g, b) for b in babies] for g, babies in inverse_steps(k).items()})


def inverse_steps(k: int) -> dict[int, list[int]]:
    """Return giant steps with their baby steps for the 2 k - 1 diagonals of an inverse DFT that is not cyclic."""
    return bsgs.groups(range(1 - k, k), 1 << (k.bit_length() // 2))


def row_major(
    builder: Builder, layer: ExactLayer, products: Callable[[np.ndarray], int], *sums: tuple[int, int]
) -> list[int]:
    """Return a ciphertext for each output of the last layer, the output in its first slot.

    Args:
        products: of a row of its weights and what it reads.
        sums: strides and counts, by which they are added up.
    """
    builder.layer = layer.name
    found: list[int] = []
    for row, bias in zip(layer.matrix, layer.bias, strict=True):
        made = products(row)
        for stride, count in sums:
            made = builder.sum_over(made, stride, count)
        first = np.zeros(builder.ring_degree, dtype=object)
        first[0] = bias
        found.append(builder.add_integers(made, first))
    return found
