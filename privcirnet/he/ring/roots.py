"""Roots of unity modulo a prime, their powers, and the orders that transforms put values in."""

from functools import lru_cache

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


@lru_cache(maxsize=16)
def minimal_root(order: int, t: int) -> int:
    """The smallest primitive root of unity of an order that is a power of two (SEAL's choice)."""
    root = modular.root_of_unity(order, t)
    square = root * root % t
    smallest, power = root, root
    for _ in range(order // 2):
        smallest = min(smallest, power)
        power = power * square % t
    return smallest


def powers(root: int, length: int, scale: int, t: int) -> Residues:
    """The matrix of y[k] = scale sum_j x[j] root^(j k) mod t, (N, N)."""
    found = [pow(root, k, t) * scale % t for k in range(length)]
    return np.array(found, dtype=np.uint64)[np.outer(np.arange(length), np.arange(length)) % length]


def cyclic_root(length: int, t: int, inverse: bool) -> tuple[int, int]:
    """(root, scale) of :func:`cyclic`."""
    root = modular.root_of_unity(length, t)
    return (pow(root, -1, t), pow(length, -1, t)) if inverse else (root, 1)


@lru_cache(maxsize=8)
def bit_reversed(n: int) -> modular.Integers:
    """0, ..., n - 1 with their bits in reverse order."""
    order = np.zeros(1, dtype=np.int64)
    while order.size < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order
