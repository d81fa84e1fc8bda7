"""Residues to limbs and back around a product of two matrices of residues."""

import numpy as np

from privcirnet.compiled.jit import jit
from privcirnet.he.mpc.local.kernels.convolution import OFFSET_BITS, Floats, Limbs, split_into
from privcirnet.he.ring.kernels.arithmetic import Word, mul_shoup_lazy, reduce_4p, sub_if_ge
from privcirnet.he.ring.modular import Residues


@jit
def limbs_of(planes: Floats, x: Residues, limbs: Limbs) -> None:
    """Write the limbs of a matrix.

    Args:
        planes: written, shape (rows, L, columns).
        x: residues, shape (rows, columns).
    """
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            split_into(planes[i], j, x[i, j], limbs)


@jit
def together(result: Residues, sums: Floats, plus: Residues, powers: Residues, t: Word) -> None:
    """Write the products from those of limbs, plus a summand.

    Args:
        result: written, shape (rows, columns).
        sums: products of limbs, shape (rows, L, L, columns); those of the same power add up to 2^53 at most.
        plus: added, shape (rows, columns).
        powers: what a limb's product of each power is multiplied by, and its quotient, and last what takes away 2^53 of
            each of them, shape (2 L, 2).
    """
    rows, limbs, _, columns = sums.shape
    offset, constant = np.int64(1) << OFFSET_BITS, powers[-1, 0]
    total = np.empty(columns, dtype=np.float64)
    for i in range(rows):
        target = result[i]
        for j in range(columns):
            target[j] = sub_if_ge(plus[i, j] + constant, t)
        for power in range(2 * limbs - 1):
            total[:] = 0
            for a in range(max(0, power - limbs + 1), min(limbs, power + 1)):
                term = sums[i, a, power - a]
                for j in range(columns):
                    total[j] += term[j]
            factor, quotient = powers[power, 0], powers[power, 1]
            for j in range(columns):
                word = np.uint64(np.int64(total[j]) + offset)
                target[j] = sub_if_ge(target[j] + reduce_4p(mul_shoup_lazy(word, factor, quotient, t), t), t)
