"""Exact arithmetic on integer maps and weights in clear, for the interpreter and the oracles."""

import numpy as np
import numpy.typing as npt

from privcirnet.he.layers.shape import LinearShape

Values = npt.NDArray[np.int64]

_EXACT_IN_FLOAT64 = 2**53
_WORD_BITS = 63


def round_shift(values: Values, bits: int) -> Values:
    """Return values / 2^bits, rounded to nearest, ties up.

    Args:
        values: integers of any shape.
        bits: number of bits, 0 or more.

    >>> round_shift(np.array([-3, -2, 1, 2, 3]), 2).tolist()
    [-1, 0, 0, 1, 1]
    """
    if bits > _WORD_BITS:  # nothing is left of any
        return np.zeros_like(values)
    return (values + (1 << bits >> 1)) >> bits


def expand_rows(rows: np.ndarray, block_size: int) -> np.ndarray:
    """Return the dense weight whose circulant block rows begin with these rows: shape (K, C, R, R).

    Args:
        rows: the first row of each block row, shape (K/b, C, R, R).

    >>> expand_rows(np.array([[1, 2]])[..., None, None], 2)[..., 0, 0].tolist()
    [[1, 2], [2, 1]]
    """
    q, channels, *kernel = rows.shape
    blocks = rows.reshape(q, channels // block_size, block_size, *kernel)
    rotated = np.stack([np.roll(blocks, i, axis=2) for i in range(block_size)], axis=1)
    return rotated.reshape(q * block_size, channels, *kernel)


def dense_weight(rows: np.ndarray, shape: LinearShape, block_size: int) -> np.ndarray:
    """Return a layer's dense weight, without what padded it to whole blocks: shape (K, C / groups, R, R).

    Args:
        rows: the first row of each block row, ``shape.weight_shape(block_size)``.

    >>> dense_weight(np.array([[1, 2, 3, 4]])[..., None, None], LinearShape.gemm(1, 3, 2), 2)[..., 0, 0].tolist()
    [[1, 2, 3], [2, 1, 4]]
    """
    return expand_rows(rows, block_size)[: shape.out_channels, : shape.in_channels // shape.groups]


def transpose(x: np.ndarray, groups: int) -> np.ndarray:
    """Return values, (g b, a, 1), whose channels and places have changed places, group by group.

    Args:
        x: shape (g a, b, 1).
        groups: g.

    >>> transpose(np.arange(6).reshape(3, 2, 1), 1)[..., 0].tolist()
    [[0, 2, 4], [1, 3, 5]]
    """
    return x.reshape(groups, -1, x.shape[1]).swapaxes(1, 2).reshape(groups * x.shape[1], -1, 1)


def tokens(x: np.ndarray) -> np.ndarray:
    """Return a map's places as tokens, with a zero in front: shape (C, 1 + H W, 1).

    Args:
        x: shape (C, H, W).

    >>> tokens(np.arange(1, 5).reshape(1, 2, 2))[0, :, 0].tolist()
    [0, 1, 2, 3, 4]
    """
    places = x.reshape(len(x), -1, 1)
    return np.concatenate([np.zeros_like(places[:, :1]), places], axis=1)


def windows(shape: LinearShape, x: np.ndarray) -> np.ndarray:
    """Return the windows of the outputs of each place of a layer, (C R S, H' W'), of x's dtype.

    Python integers stay what they are, where np.pad would add NumPy's.
    """
    rows, columns = (window.ends for window in shape.windows)
    padded = np.zeros((len(x), shape.height + sum(rows), shape.width + sum(columns)), dtype=x.dtype)
    padded[:, rows[0] : rows[0] + shape.height, columns[0] : columns[0] + shape.width] = x
    views = np.lib.stride_tricks.sliding_window_view(padded, shape.kernels, axis=(1, 2))
    every = views[:, :: shape.strides[0], :: shape.strides[1]].transpose(0, 3, 4, 1, 2)
    return every.reshape(len(x) * shape.taps, -1)


def convolve(x: np.ndarray, weight: np.ndarray, shape: LinearShape) -> np.ndarray:
    """Return the exact convolution (correlation, as in deep learning).

    Args:
        x: integers, Python integers or real numbers, shape (C, H, W).
        weight: shape (K, C/groups, R, S).

    Returns:
        shape (K, H', W'): int64, computed in float64 where that is exact; of Python integers or real numbers those.
    """
    # (groups, K/groups, C/groups R S) @ (groups, C/groups R S, H' W')
    columns = windows(shape, x)
    columns = columns.reshape(shape.groups, -1, columns.shape[1])
    rows = weight.reshape(shape.groups, shape.out_channels // shape.groups, -1)
    if x.dtype.kind in "Of":
        return (rows.astype(x.dtype) @ columns).reshape(shape.output_shape)
    largest = float(np.abs(x).max(initial=0)) * float(np.abs(weight).sum(axis=(1, 2, 3)).max(initial=0))
    dtype = np.float64 if largest < _EXACT_IN_FLOAT64 else np.int64
    return (rows.astype(dtype) @ columns.astype(dtype)).astype(np.int64).reshape(shape.output_shape)


def sum_pool(x: np.ndarray, window: tuple[int, int]) -> np.ndarray:
    """Return the sums over non-overlapping windows: shape (C, H // rows, W // columns).

    Args:
        x: shape (C, H, W).
        window: rows and columns; what is left over at the right and below is dropped.
    """
    rows, columns = window
    channels, height, width = len(x), x.shape[1] // rows, x.shape[2] // columns
    windows = x[:, : height * rows, : width * columns]
    return windows.reshape(channels, height, rows, width, columns).sum(axis=(2, 4))
