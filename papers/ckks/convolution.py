"""Linear layers in CinS encoding (NeuJeans, section 3.3), as linear maps of the slots.

Maths: a layer is a matrix of kernels whose product with a vector of channels convolves (remark 4). With C slices of
2 l = w^2 in a ciphertext, diagonal d of that matrix is one plaintext, used after a rotation by d l (equation 8):

    slices of diagonal d = (k_(0,d) | k_(1,d+1) | ...),    k_(i,j) from input channel j to output channel i.

Layers with more channels are matrices of such blocks (section 3.3.4). Depthwise layers and average pools have the main
diagonal alone.

Stride s (section 5, Figure 4): pixel (s y + p, s x + q) of a map is pixel (y, x) of its phase (p, q), a channel of its
own on a map that is s times as small. A strided convolution is one with stride 1 over all phases, and its outputs are
dense. :func:`decomposition` is the rearrangement, in slot encoding.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from papers.ckks import cins
from papers.ckks.cins import Taps
from privcirnet.he.ckks.embedding import Reals
from privcirnet.he.ckks.linear_map import LinearMap, permutation
from privcirnet.he.ring.modular import Integers

Kernels = Mapping[tuple[int, int], Taps]
"""(output channel, input channel) -> its taps; those of zeros may be left out."""


def block(kernels: Kernels, slices: int, width: int) -> LinearMap:
    """Return the map of a layer whose channels fit a ciphertext.

    Args:
        kernels: of channels under C.
        slices: C.
        width: w; 2 l = w^2.

    Returns:
        a map with a product for each diagonal that is not zero, at most C, and at most 2 sqrt(C) - 2 rotations for C a
        power of four (Table 1).
    """
    found: dict[int, Reals] = {}
    for (output, channel), taps in kernels.items():
        diagonal = found.setdefault((channel - output) % slices, np.zeros((slices, width * width)))
        diagonal[output] += cins.kernel_slice(taps, width)
    length = width * width // 2
    return LinearMap({d * length: cins.encode(slice_) for d, slice_ in found.items()})


def convolution(weights: Reals, slices: int, width: int) -> list[list[LinearMap]]:
    """Return the maps of a convolution with stride 1 and padding (f - 1) / 2, in blocks of C channels.

    Args:
        weights: shape (K, C', f, f), f odd; 1 x 1 kernels are pointwise.
        slices: C.
        width: w.

    Returns:
        for each ciphertext of outputs the map of each ciphertext of inputs.
    """
    outputs, channels = weights.shape[:2]
    kernels = {(k, c): cins.taps(weights[k, c]) for k in range(outputs) for c in range(channels)}
    return blocks(kernels, (outputs, channels), slices, width)


def strided(weights: Reals, stride: int, slices: int, width: int) -> list[list[LinearMap]]:
    """Return the maps of a convolution with a stride over the phases of its inputs, padding (f - 1) / 2.

    Args:
        weights: shape (K, C', f, f), f odd.
        stride: s.
        slices: C of the phases' maps, s^2 times as many as of the inputs.

    Returns:
        as :func:`convolution`, for s^2 C' channels: phase (p, q) of channel c is s^2 c + s p + q.
    """
    outputs, channels = weights.shape[:2]
    kernels: dict[tuple[int, int], list[tuple[int, int, float]]] = {}
    for k, c in np.ndindex(outputs, channels):
        for dy, dx, weight in cins.taps(weights[k, c]):
            phase = stride * (dy % stride) + dx % stride
            kernels.setdefault((k, stride**2 * c + phase), []).append((dy // stride, dx // stride, weight))
    return blocks(kernels, (outputs, stride**2 * channels), slices, width)


def blocks(kernels: Kernels, shape: tuple[int, int], slices: int, width: int) -> list[list[LinearMap]]:
    """Return the maps of a layer, in blocks of C channels.

    Args:
        kernels: of all channels.
        shape: (output channels, input channels).
        slices: C.
        width: w.
    """
    rows, columns = (-(-count // slices) for count in shape)
    parts: dict[tuple[int, int], dict[tuple[int, int], Taps]] = {}
    for (output, channel), taps in kernels.items():
        part = parts.setdefault((output // slices, channel // slices), {})
        part[output % slices, channel % slices] = taps
    return [[block(parts[row, column], slices, width) for column in range(columns)] for row in range(rows)]


def depthwise(weights: Reals, width: int) -> LinearMap:
    """Return the map of a depthwise convolution: one product, no rotation.

    Args:
        weights: shape (C, f, f), f odd.
        width: w.
    """
    return LinearMap({0: cins.encode(np.stack([cins.kernel_slice(cins.taps(each), width) for each in weights]))})


def average_pool(size: int, slices: int, width: int) -> LinearMap:
    """Return the map of an average pool: pixel (s y, s x) is the mean of its window. One product, no rotation.

    Args:
        size: s of the window; that of the map for a global pool, whose results are at place 0 of their slices.
        slices: C.
        width: w.
    """
    window = [(dy, dx, 1 / size**2) for dy in range(size) for dx in range(size)]
    return LinearMap({0: cins.encode(np.tile(cins.kernel_slice(window, width), (slices, 1)))})


def fully_connected(weights: Reals, places: Sequence[int] | Integers, slots: int) -> LinearMap:
    """Return the map of a fully connected layer in slot encoding: output k in slot k.

    Args:
        weights: shape (K, C').
        places: slot of each input, shape (C',).
        slots: n / 2.
    """
    diagonals: dict[int, Reals] = {}
    steps = np.asarray(places, dtype=np.int64)[None] - np.arange(len(weights))[:, None]
    for k, c in np.ndindex(*weights.shape):
        diagonals.setdefault(int(steps[k, c]) % slots, np.zeros(slots))[k] += weights[k, c]
    return LinearMap({d: each.astype(np.complex128) for d, each in diagonals.items()})


def decomposition(stride: int, slices: int, width: int) -> LinearMap:
    """Return the map from channels to their phases, within a ciphertext in slot encoding (Algorithm 2, lines 1-8).

    Values i and i + l of a slice are the real and the imaginary part of one slot, in natural order. A phase's rows are
    half as long, and its slice has l / s^2 slots; with an even number of rows in each half nothing changes parts.

    Args:
        stride: s, a power of two.
        slices: C.
        width: w, at least 2 s.
    """
    half, small = width * width // 2, width // stride
    sources = np.empty(slices * half, dtype=np.int64)
    part = half // stride**2
    for c, p, q in np.ndindex(slices, stride, stride):
        start = c * half + (stride * p + q) * part
        y, x = np.divmod(np.arange(part), small)
        sources[start : start + part] = c * half + (stride * y + p) * width + stride * x + q
    return permutation(sources)
