"""Transforms of circulant blocks under encryption, exact mod t, over the slowest digit of a row's columns.

A row of k x stride columns holds at (j, s) the j-th value of a block. The digit j is cyclic, so a k x k matrix is a sum
of its k cyclic diagonals: baby steps of the value and giant steps of sums, about 2 sqrt(k) rotations. Falcon (NeurIPS
2020, algorithm 1) takes 2 log2 k for its complex transforms, each from copies that have to be there first.
"""

from functools import partial

import numpy as np

from papers.falcon2020.circuits.builder import Builder, cut
from papers.falcon2020.circuits.network_circuit import Plaintext
from papers.falcon2020.planning.exact_network import ExactLayer
from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues, cyclic_root, dft_matrix


def transformed(builder: Builder, value: int, k: int, *, inverse: bool = False) -> int:
    """Return the DFT over the slowest digit of every column, or its inverse.

    Args:
        k: values of the digit, a power of two; 1 changes nothing.
    """
    if k == 1:
        return value
    stride = builder.row // k

    def term(giant: int, baby: int) -> tuple[int, int, Plaintext]:
        return value, baby * stride, partial(_diagonal, k, stride, giant + baby, giant * stride, inverse)

    return builder.transformed({g * stride: [term(g, b) for b in babies] for g, babies in cut(k).items()})


def block_spectra(rows: np.ndarray, t: int) -> Residues:
    """Return the transforms mod t of circulant blocks: of their first columns.

    Args:
        rows: first rows of blocks, (..., k).
    """
    k = rows.shape[-1]
    columns = modular.residues(rows[..., -np.arange(k) % k], t)
    return modular.matmul(columns.reshape(-1, k), cyclic_matrix(k, t).T.copy(), t).reshape(rows.shape)


def layer_spectra(layer: ExactLayer, t: int) -> Residues:
    """Return the transforms mod t of a layer's weights, (output blocks, input blocks, R, R, k)."""
    k, rows = layer.block_size, layer.rows
    padded = layer.shape.padded(k)
    blocks = rows.reshape(padded.out_channels // k, padded.in_channels // k, k, *rows.shape[2:])
    return block_spectra(blocks.transpose(0, 1, 3, 4, 2), t)


def _diagonal(k: int, stride: int, shift: int, turn: int, inverse: bool, t: int) -> Residues:
    """One cyclic diagonal of a transform in slots: what meets j + shift at j, before a later turn."""
    j = np.arange(k)
    entries = cyclic_matrix(k, t, inverse=inverse)[j, (j + shift) % k]
    return np.tile(np.roll(np.repeat(entries, stride), turn), 2)


def cyclic_matrix(length: int, t: int, inverse: bool = False) -> Residues:
    """Return the matrix of :func:`ring.cyclic.cyclic`, shape (N, N).

    Args:
        length: N.
        t: prime modulus with t = 1 mod N.
        inverse: whether it is that of the inverse transform, 1 / N included.

    Raises:
        RuleError: N does not divide t - 1.
    """
    root, scale = cyclic_root(length, t, inverse)
    return dft_matrix(root, length, scale, t)
