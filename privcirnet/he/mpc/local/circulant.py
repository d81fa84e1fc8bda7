"""Circulant blocks in pieces, with integers alone: a product with 22 of 64 multiplications for b = 8, 86 of 256 for 16.

A block is a product of polynomials mod X^b - 1. With m = b / 2, X^b - 1 = (X^m - 1) (X^m + 1): from the sum and the
difference of the halves of both factors come y+ mod X^m - 1 and y- mod X^m + 1, and the halves of the product are
(y+ + y-) / 2 and (y+ - y-) / 2. The first is split again, and again while the size is even and above the least.
A piece mod X^m + 1 stays as it is, an m x m matrix; inputs and results are added and subtracted mod t.

Order of a split block: the smallest piece, mod X^least - 1, then those mod X^least + 1, X^(2 least) + 1 and so on.
"""

import numpy as np

from privcirnet.he.layers.integer import Values


def matrices(rows: Values, block_size: int, smallest: int, groups: int) -> list[Values]:
    """Return the matrix of each piece, the smallest first.

    Args:
        rows: the first row of each block row, shape (K/b, C/groups, R, R).
        smallest: size of the smallest pieces, b / 2^i.

    Returns:
        for pieces of size m, (groups, K/groups/b m, C/groups/b m R R) each.
    """
    maps, channels, *kernel = rows.shape
    blocks = rows.reshape(maps, channels // block_size, block_size, *kernel)
    polynomial = np.roll(blocks[:, :, ::-1], 1, axis=2)  # y_i = sum_j row_(j - i) x_j = sum_j polynomial_(i - j) x_j
    pieces: list[Values] = []
    while (half := polynomial.shape[2] // 2) >= smallest:
        low, high = polynomial[:, :, :half], polynomial[:, :, half:]
        pieces.append(_matrix(low - high, -1, groups))
        polynomial = low + high
    return [_matrix(polynomial, 1, groups), *reversed(pieces)]


def _matrix(polynomial: Values, sign: int, groups: int) -> Values:
    """Return products with polynomials (K/b, C/groups/b, m, R, R) mod X^m - sign as a matrix."""
    maps, blocks, m, *kernel = polynomial.shape
    i, j = np.indices((m, m))
    signs = np.where(i < j, sign, 1)[:, :, None, None]
    square = polynomial[:, :, (i - j) % m] * signs  # (K/b, C/groups/b, m, m, R, R)
    return square.transpose(0, 2, 1, 3, 4, 5).reshape(groups, maps // groups * m, blocks * m * kernel[0] * kernel[1])
