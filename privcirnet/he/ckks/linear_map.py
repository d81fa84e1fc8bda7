"""Linear maps of the slots, by their diagonals, in baby and giant steps, and those that change the encoding.

Source: NeuJeans, section 2.6; :mod:`layers.bsgs` says how diagonals are cut.

Double hoisting (Bossuat et al., 2021, algorithm 6): the digits of x are made once; its rotations stay extended (times
P), and so do the sums over b and over g. Divided by P are only the halves that a giant step switches, and the result.

Cost: a key's products for each b and each g that is not 0; B - 1 + G - 1 of them for B G diagonals in a row.

Changes of encoding are factors of one transform (NeuJeans, sections 2.3 and 3.1). With the coefficients
z_k = f_k + i f_(k + n/2) of a polynomial in bit-reversed order, its slots are

    T z = S_(n/4) ... S_2 S_1 z,    S_k = diag(B_k, ..., B_k),    B_k = (I, W_k; I, -W_k),

W_k = diag(omega_8k^(5^i)), i < k, omega_m = exp(2 pi i / m) (equation 2). The first log2 l factors act within slices of
l slots. So

    slot encoding --(S_(l/2) ... S_1)--> CinS of slices of 2 l values --(S_(n/4) ... S_l)--> coefficient encoding,

and back by the inverses; with l = n / 2 CinS is the coefficient encoding. Neighbouring factors are multiplied together,
which costs rotations and saves levels: r factors have at most 2^(r + 1) - 1 diagonals.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks.embedding import Slots
from privcirnet.he.layers import bsgs
from privcirnet.he.ring.modular import Integers


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear map of the slots.

    Attributes:
        diagonals: factors of each rotation to the left, shape (n / 2,).
        baby: B, a power of two; 0: the quickest.
        giant: baby steps in the time of a giant step; 1 makes B the one with the fewest rotations.
        coefficients: bound that the coefficients of the results' polynomials, times 1 / scale, are known to be under in
            absolute value; 0: nothing is known. Slots may be n times as large where values move to the coefficients.
    """

    diagonals: Mapping[int, Slots] = field(repr=False)
    baby: int = 0
    coefficients: float = 0.0
    giant: float = 1.0

    def __post_init__(self) -> None:
        sizes = {np.shape(diagonal) for diagonal in self.diagonals.values()}
        if len(sizes) != 1 or len(next(iter(sizes))) != 1:
            got, remedy = f"shapes {sorted(sizes)}", "give each diagonal every slot"
            raise RuleError("a linear map must have diagonals of one length", got=got, remedy=remedy)

    @cached_property
    def slots(self) -> int:
        """The slots of a ciphertext, n / 2."""
        return len(next(iter(self.diagonals.values())))

    @cached_property
    def period(self) -> int:
        """The shortest period of all diagonals, a power of two or n / 2: their polynomials are sparse."""
        period = self.slots
        while period > 1 and not period % 2:
            halves = (np.asarray(diagonal).reshape(-1, period // 2) for diagonal in self._by_step.values())
            if not all((half == half[0]).all() for half in halves):
                break
            period //= 2
        return period

    @cached_property
    def length(self) -> int:
        """The baby length B."""
        return self.baby or bsgs.cheapest(self._by_step, giant=self.giant)

    @cached_property
    def groups(self) -> dict[int, list[int]]:
        """Giant step g -> its baby steps b, both ascending."""
        return bsgs.groups(self._by_step, self.length)

    @property
    def babies(self) -> list[int]:
        """All baby steps, ascending; 0 may be among them."""
        return sorted({b for babies in self.groups.values() for b in babies})

    @property
    def steps(self) -> frozenset[int]:
        """Rotations that take keys."""
        babies, giants = bsgs.rotations(self._by_step, self.length)
        return frozenset(babies | giants)

    @property
    def rotations(self) -> int:
        """Rotations that are made: one for every baby step and every giant step but 0."""
        return sum(map(len, bsgs.rotations(self._by_step, self.length)))

    @property
    def products(self) -> int:
        """Plaintext products: one for every diagonal."""
        return len(self.diagonals)

    def factor(self, giant: int, baby: int) -> Slots:
        """Return the factor of a rotation by a baby step before the giant step: rot_-g(diag_(g + b)).

        Args:
            giant: g.
            baby: b.
        """
        return np.roll(self._by_step[giant + baby], giant)

    def __call__(self, slots: Slots) -> Slots:
        """Return the map of slots in clear.

        Args:
            slots: shape (n / 2,).
        """
        return np.sum([diagonal * np.roll(slots, -d) for d, diagonal in self.diagonals.items()], axis=0)

    @cached_property
    def _by_step(self) -> dict[int, Slots]:
        return {d % self.slots: np.asarray(diagonal) for d, diagonal in self.diagonals.items()}


def permutation(sources: Integers) -> LinearMap:
    """Return the map that moves slots: a diagonal for each distance.

    Args:
        sources: slot that each slot takes its value from, -1 for zero; shape (n / 2,).
    """
    rows = np.flatnonzero(sources >= 0)
    distances = (sources[rows] - rows) % sources.size
    diagonals = {int(d): np.zeros(sources.size, dtype=np.complex128) for d in np.unique(distances)}
    for row, d in zip(rows, distances, strict=True):
        diagonals[int(d)][row] = 1
    return LinearMap(diagonals)


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
