"""A few values in the slots of a large ring: they live in a subring, and messages hold no more than that needs.

Maths: polynomials in Y = X^k, k = n / N, are the ring of degree N, closed under sums and products. Its slots are
m(psi^(3^i)) and m(psi^(-3^i)), N in number: 3 has order N / 2 modulo 2 N, so each row repeats with that period. With
both factors of a product in the subring, decryption needs c0 at the N multiples of k only, and c1 whole. So a request
holds N coefficients and a seed, a reply N coefficients and c1. The others would only be noise. Other coefficients
of such a ciphertext decrypt to nonsense. Projected onto the subring (the mean over the automorphisms that fix it, which
rotate the rows by N / 2), the nonsense is gone.

The fewer values, the larger the saving: 64 values at n = 8192 take 1.3 + 58 KB instead of 165 + 115 KB.
"""

from collections.abc import Iterator

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Integers, Residues

_SMALLEST = 4
"""Least N, from which on the order of 3 modulo 2 N is N / 2."""


def sizes(values: int, n: int) -> list[int]:
    """Return N for each ciphertext that so many values fill one after the other.

    >>> sizes(9000, 8192)
    [8192, 1024]
    """
    parts = (min(n, values - first) for first in range(0, values, n))
    return [max(_SMALLEST, 1 << (part - 1).bit_length()) for part in parts]


def kept(values: int, n: int) -> list[Integers]:
    """Return the ascending coefficients of c0 that the messages hold, for each ciphertext."""
    return [np.arange(0, n, n // size) for size in sizes(values, n)]


def spread(values: Residues, n: int, fill: Residues | None = None) -> Residues:
    """Return the slots of the ciphertexts that hold these values: (ciphertexts, n).

    Args:
        values: residues, (v,).
        fill: residues, as many as there are slots in the subrings; those that hold no value take theirs. Zeros without.
    """
    padded = np.zeros(sum(sizes(values.size, n)), dtype=np.uint64) if fill is None else fill.copy()
    padded[: values.size] = values
    parts = (padded[first : first + size].reshape(2, -1) for first, size in _parts(values.size, n))
    return np.stack([np.tile(part, n // part.size).reshape(-1) for part in parts])


def collect(slots: Residues, values: int, t: int) -> Residues:
    """Return the values again from slots of which only the part in the subring has a meaning: residues, (v,).

    Args:
        slots: residues, (ciphertexts, n).
        values: v.
    """
    n, collected = slots.shape[1], np.empty(values, dtype=np.uint64)
    for row, (first, size) in zip(slots, _parts(values, n), strict=True):
        copies = row.reshape(2, n // size, size // 2)
        total = copies[:, 0]
        for index in range(1, n // size):
            total = modular.add(total, copies[:, index], t)
        share = np.uint64(pow(n // size, -1, t))
        part = modular.multiply(total.reshape(-1), np.full(size, share), t)
        collected[first : first + size] = part[: min(size, values - first)]
    return collected


def _parts(values: int, n: int) -> Iterator[tuple[int, int]]:
    """Return (number of the first value, N) of each ciphertext."""
    return zip(range(0, values, n), sizes(values, n), strict=True)
