"""Circulant convolutions in CinS: what a transform over the channels of a block saves.

Maths: a block of b channels is circulant if the kernel from channel j to channel i depends on i - j modulo b alone.
CinS has transformed rows and columns already; with the DFT over the b channels of every block as well, a block is a
product of slices at each of b frequencies. So of the C diagonals of slices (equation 8) only every b-th is left:

    F x  at multiples of l,    K' (F x)  at multiples of b l,    F^-1  at multiples of l.

F and its inverse take 2 b - 1 products each. They belong to ciphertexts, and K' to pairs of them, so that layers of
many ciphertexts gain most. F^-1 has the granularity of StoC2 and vanishes into it like a convolution does; then the
last map has C products, and only K' between has C / b.
"""

import numpy as np

from papers.ckks import cins
from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Reals, Slots
from privcirnet.he.ckks.linear_map import LinearMap


def expanded(weights: Reals) -> Reals:
    """Return the kernels of all pairs of channels, shape (K, C', f, f).

    Args:
        weights: [I, J, t] is the kernel from channel J b + j to channel I b + (j + t) mod b, shape
            (K / b, C' / b, b, f, f).
    """
    rows, columns, b, size, _ = weights.shape
    found = np.empty((rows, b, columns, b, size, size))
    for i, j in np.ndindex(b, b):
        found[:, i, :, j] = weights[:, :, (i - j) % b]
    return found.reshape(rows * b, columns * b, size, size)


def transform(block_size: int, slices: int, length: int, *, inverse: bool = False) -> LinearMap:
    """Return the DFT over the channels of every block, or its inverse.

    Args:
        block_size: b, which divides C.
        slices: C.
        length: l.

    Raises:
        RuleError: the block size does not divide the slices.
    """
    _check(block_size, slices)
    sign, scale = (1, 1 / block_size) if inverse else (-1, 1.0)
    diagonals: dict[int, Slots] = {}
    for place, channel in np.ndindex(block_size, block_size):
        entry = scale * np.exp(sign * 2j * np.pi * place * channel / block_size)
        d = (channel - place) % slices * length
        diagonal = diagonals.setdefault(d, np.zeros(slices * length, dtype=np.complex128))
        diagonal.reshape(-1, block_size, length)[:, place] += entry
    return LinearMap(diagonals)


def convolution(weights: Reals, slices: int, width: int) -> list[list[LinearMap]]:
    """Return the maps between the transforms, in blocks of C channels: C / b products each.

    Args:
        weights: see :func:`expanded`; stride 1 and padding (f - 1) / 2.
        slices: C, which divides the channels.
        width: w; 2 l = w^2.

    Returns:
        for each ciphertext of outputs the map of each ciphertext of inputs.

    Raises:
        RuleError: the block size does not divide the slices, or these do not divide the channels.
    """
    rows, columns, b = weights.shape[:3]
    _check(b, slices)
    count = slices // b
    if rows % count or columns % count:
        got, remedy = f"{rows * b} and {columns * b} for {slices}", "add channels of zeros"
        raise RuleError("ciphertexts of circulant layers must be full", got=got, remedy=remedy)
    return [
        [
            _block(weights[r * count : (r + 1) * count, c * count : (c + 1) * count], width)
            for c in range(columns // count)
        ]
        for r in range(rows // count)
    ]


def _block(weights: Reals, width: int) -> LinearMap:
    """The map of a ciphertext of inputs to one of outputs, at multiples of b l."""
    count, _, b = weights.shape[:3]
    length = width * width // 2
    diagonals = {d * b * length: np.empty((count, b, length), dtype=np.complex128) for d in range(count)}
    for row, column in np.ndindex(count, count):
        kernels = np.stack([cins.kernel_slice(cins.taps(each), width) for each in weights[row, column]])
        spectrum = np.fft.fft(cins.encode(kernels).reshape(b, length), axis=0)
        diagonals[(column - row) % count * b * length][row] = spectrum
    return LinearMap({d: each.reshape(-1) for d, each in diagonals.items()})


def _check(block_size: int, slices: int) -> None:
    if slices % block_size:
        rule, remedy = "a block must divide the channels of a ciphertext", "use a smaller block size"
        raise RuleError(rule, got=f"{block_size} for {slices}", remedy=remedy)
