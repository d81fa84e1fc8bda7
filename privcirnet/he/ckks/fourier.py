"""Changes of encoding as factors of one transform (NeuJeans, sections 2.3 and 3.1).

Maths: with the coefficients z_k = f_k + i f_(k + n/2) of a polynomial in bit-reversed order, its slots are

    T z = S_(n/4) ... S_2 S_1 z,    S_k = diag(B_k, ..., B_k),    B_k = (I, W_k; I, -W_k),

W_k = diag(omega_8k^(5^i)), i < k, omega_m = exp(2 pi i / m) (equation 2). The first log2 l factors act within slices of
l slots. So

    slot encoding --(S_(l/2) ... S_1)--> CinS of slices of 2 l values --(S_(n/4) ... S_l)--> coefficient encoding,

and back by the inverses; with l = n / 2 CinS is the coefficient encoding. Neighbouring factors are multiplied together,
which costs rotations and saves levels: r factors have at most 2^(r + 1) - 1 diagonals.
"""

from collections.abc import Sequence

import numpy as np

from privcirnet.he.ckks.embedding import Slots
from privcirnet.he.ckks.linear_map import LinearMap


def butterfly(k: int, slots: int) -> LinearMap:
    """Return S_k.

    Args:
        k: a power of two under the slots.
        slots: n / 2.
    """
    ones, w = np.ones(k, dtype=np.complex128), _twiddles(k)
    return _blocks(slots, k, (ones, -w), w, ones)


def inverse_butterfly(k: int, slots: int) -> LinearMap:
    """Return the inverse of S_k: B_k^-1 = 1/2 (I, I; W^-1, -W^-1).

    Args:
        k: a power of two under the slots.
        slots: n / 2.
    """
    half, w = np.full(k, 0.5 + 0j), _twiddles(k).conj() / 2
    return _blocks(slots, k, (half, -w), half, w)


def composed(maps: Sequence[LinearMap], factor: complex = 1, coefficients: float = 0.0) -> LinearMap:
    """Return one map that does what several do one after the other.

    Args:
        maps: the first is applied first.
        coefficients: see :class:`LinearMap`.
    """
    diagonals = dict(maps[0].diagonals)
    for after in maps[1:]:
        product: dict[int, Slots] = {}
        for a, outer in after.diagonals.items():
            for b, inner in diagonals.items():
                term, d = outer * np.roll(inner, -a), (a + b) % after.slots
                product[d] = product[d] + term if d in product else term
        diagonals = product
    return LinearMap({d: factor * diagonal for d, diagonal in diagonals.items()}, coefficients=coefficients)


def to_cins(length: int, slots: int, levels: int, factor: complex = 1) -> list[LinearMap]:
    """Return the maps from slot encoding to CinS: S_(l/2) ... S_1 in a number of levels.

    Args:
        length: l, slots of a slice, at least 2; n / 2 is the coefficient encoding (StoC).
        slots: n / 2.
        levels: maps, at most log2 l.
    """
    return _grouped([butterfly(1 << j, slots) for j in range(length.bit_length() - 1)], levels, factor)


def from_cins(length: int, slots: int, levels: int, factor: complex = 1) -> list[LinearMap]:
    """Return the maps from CinS to slot encoding, times a factor: the inverses in the opposite order.

    Args:
        length: l, slots of a slice, at least 2; n / 2 is the coefficient encoding (CtoS).
        slots: n / 2.
        levels: maps, at most log2 l.
    """
    stages = [inverse_butterfly(1 << j, slots) for j in reversed(range(length.bit_length() - 1))]
    return _grouped(stages, levels, factor)


def _grouped(stages: list[LinearMap], levels: int, factor: complex = 1) -> list[LinearMap]:
    parts = [stages[len(stages) * i // levels : len(stages) * (i + 1) // levels] for i in range(levels)]
    root = complex(factor) ** (1 / levels)  # spread evenly, so that no map's plaintexts are much smaller
    return [composed(part, root) for part in parts]


def _blocks(slots: int, k: int, main: tuple[Slots, Slots], upper: Slots, lower: Slots) -> LinearMap:
    """Return diag(B, ..., B) for B = (main_0, upper; lower, main_1)."""
    zeros, times = np.zeros(k), slots // (2 * k)
    ahead = np.tile(np.concatenate([upper, zeros]), times).astype(np.complex128)
    behind = np.tile(np.concatenate([zeros, lower]), times).astype(np.complex128)
    whole = np.tile(np.concatenate(main), times).astype(np.complex128)
    if 2 * k == slots:  # a rotation by half of all slots is its own inverse
        return LinearMap({0: whole, k: ahead + behind})
    return LinearMap({0: whole, k: ahead, slots - k: behind})


def _twiddles(k: int) -> Slots:
    powers = np.array([pow(5, i, 8 * k) for i in range(k)])
    return np.exp(2j * np.pi * powers / (8 * k))
