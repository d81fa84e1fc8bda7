"""Roots of unity modulo a prime t, their powers, and the orders that transforms put values in.

A transform of length N needs a root w of order N. It exists if and only if N divides t - 1. Two transforms are made of
these pieces:

* the cyclic one of layers, y[k] = sum_j x[j] w^(j k), of any length (:mod:`ring.cyclic`): its matrix is
  :func:`powers`, its root :func:`cyclic_root`;
* the negacyclic one of length n, a power of two, that takes a polynomial modulo X^n + 1 to its values at the odd powers
  of psi, a primitive 2n-th root (:mod:`bfv.batching` modulo t, :mod:`ring.kernels.ntt` modulo the primes of q).
  psi is the smallest such root (:func:`minimal_root`), because SEAL chooses that one. Butterflies leave values in
  bit-reversed order, or take them in it (:func:`bit_reversed`).
"""

from functools import lru_cache

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues


@lru_cache(maxsize=16)
def minimal_root(order: int, t: int) -> int:
    """Return the smallest primitive root of unity of an order, which is SEAL's choice.

    Args:
        order: a power of two, at least 2.
        t: prime modulus.

    Raises:
        RuleError: the order does not divide t - 1.
    """
    root = modular.root_of_unity(order, t)
    square = root * root % t
    smallest, power = root, root
    for _ in range(order // 2):
        smallest = min(smallest, power)
        power = power * square % t
    return smallest


def dft_matrix(root: int, length: int, scale: int, t: int) -> Residues:
    """Return the matrix of y[k] = scale sum_j x[j] root^(j k) mod t, shape (N, N).

    Args:
        root: root of unity of order N.
        length: N.
    """
    powers = [pow(root, k, t) * scale % t for k in range(length)]
    return np.array(powers, dtype=np.uint64)[np.outer(np.arange(length), np.arange(length)) % length]


def cyclic_root(length: int, t: int, inverse: bool) -> tuple[int, int]:
    """Return (root, scale) of :func:`ring.cyclic.cyclic`, as :func:`powers` takes them.

    Args:
        length: N.
        t: prime modulus with t = 1 mod N.
        inverse: (1 / root, 1 / N), for the inverse transform.

    Raises:
        RuleError: N does not divide t - 1.
    """
    root = modular.root_of_unity(length, t)
    return (pow(root, -1, t), pow(length, -1, t)) if inverse else (root, 1)


@lru_cache(maxsize=8)
def bit_reversed(n: int) -> modular.Integers:
    """Return brv(0), ..., brv(n - 1), shape (n,): each number with its log2 n bits in reverse order.

    Args:
        n: a power of two.

    >>> bit_reversed(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    order = np.zeros(1, dtype=np.int64)
    while order.size < n:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order
