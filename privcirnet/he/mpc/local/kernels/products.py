"""Residues to digits and back around a product of two matrices of residues."""

import numpy as np

from privcirnet.he.mpc.local.kernels.convolution import OFFSET_BITS, Digits, Floats, split_into
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.jit import jit


@jit
def limbs_of(planes: Floats, x: Residues, digits: Digits) -> None:
    """Write the digits of a matrix.

    Args:
        planes: written, shape (rows, L, columns).
        x: residues, shape (rows, columns).
    """
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            split_into(planes[i], j, x[i, j], digits)


@jit
def together(result: Residues, sums: Floats, plus: Residues, powers: Residues, t: Word) -> None:
    """Write the products from those of digits, plus a summand.

    Args:
        result: written, shape (rows, columns).
        sums: products of digits, shape (rows, L, L, columns); those of the same power add up to 2^53 at most.
        plus: added, shape (rows, columns).
        powers: factor of a digit's product of each power, and its quotient; last what takes 2^53 from each of them:
            shape (2 L, 2).
    """
    rows, digits, _, columns = sums.shape
    offset, constant = np.int64(1) << OFFSET_BITS, powers[-1, 0]
    total = np.empty(columns, dtype=np.float64)
    for i in range(rows):
        target = result[i]
        for j in range(columns):
            target[j] = sub_if_ge(plus[i, j] + constant, t)
        for power in range(2 * digits - 1):
            total[:] = 0
            for a in range(max(0, power - digits + 1), min(digits, power + 1)):
                term = sums[i, a, power - a]
                for j in range(columns):
                    total[j] += term[j]
            factor, quotient = powers[power, 0], powers[power, 1]
            for j in range(columns):
                word = np.uint64(np.int64(total[j]) + offset)
                target[j] = sub_if_ge(target[j] + reduce_4p(mul_shoup_lazy(word, factor, quotient, t), t), t)
