"""Linear maps of the slots, by their diagonals, in baby and giant steps.

Maths (NeuJeans, section 2.6): y = sum over d of diag_d * rot_d(x), with d = g + b, b under a baby length B:

    y = sum over g of rot_g(sum over b of rot_-g(diag_(g + b)) * rot_b(x)).

Double hoisting (Bossuat et al., 2021, algorithm 6): the digits of x are made once; its rotations stay extended (times
P), and so do the sums over b and over g. Divided by P are only the halves that a giant step switches, and the result.

Cost: a key's products for each b and each g that is not 0; B - 1 + G - 1 of them for B G diagonals in a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ring.modular import Integers
from privcirnet.he.schemes.ckks.embedding import Slots


@dataclass(frozen=True, eq=False)
class LinearMap:
    """A linear map of the slots.

    Attributes:
        diagonals: rotation to the left -> what it is multiplied by, shape (n / 2,).
        baby: B, a power of two; 0: the quickest.
        giant: baby steps in the time of a giant step; 1 makes B the one with the fewest rotations.
        coefficients: what the coefficients of the results' polynomials, times 1 / scale, are known to be under in
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

    @staticmethod
    def of(matrix: Slots, baby: int = 0) -> "LinearMap":
        """Return the map of a matrix; diagonals of zeros are left out.

        Args:
            matrix: shape (n / 2, n / 2).
        """
        rows = np.arange(len(matrix))
        diagonals = {d: matrix[rows, (rows + d) % rows.size] for d in range(rows.size)}
        return LinearMap({d: diagonal for d, diagonal in diagonals.items() if diagonal.any()}, baby)

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
        if self.baby:
            return self.baby
        lengths = [1 << i for i in range(self.slots.bit_length())]
        return min(lengths, key=self._cost)

    @cached_property
    def groups(self) -> dict[int, list[int]]:
        """Giant step g -> its baby steps b, both ascending."""
        found: dict[int, list[int]] = {}
        for d in sorted(step % self.slots for step in self.diagonals):
            found.setdefault(d - d % self.length, []).append(d % self.length)
        return found

    @property
    def babies(self) -> list[int]:
        """All baby steps, ascending; 0 may be among them."""
        return sorted({b for babies in self.groups.values() for b in babies})

    @property
    def steps(self) -> frozenset[int]:
        """Rotations that take keys."""
        babies, giants = self._steps(self.length)
        return frozenset(babies | giants)

    @property
    def rotations(self) -> int:
        """Rotations that are made: one for every baby step and every giant step but 0."""
        return len([b for b in self.babies if b]) + len([g for g in self.groups if g])

    @property
    def products(self) -> int:
        """Plaintext products: one for every diagonal."""
        return len(self.diagonals)

    def factor(self, giant: int, baby: int) -> Slots:
        """Return what a rotation by a baby step is multiplied by before the giant step: rot_-g(diag_(g + b)).

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

    def _steps(self, length: int) -> tuple[set[int], set[int]]:
        """Rotations for a baby length: baby steps and giant steps."""
        steps = {d % self.slots for d in self.diagonals}
        return {d % length for d in steps} - {0}, {d - d % length for d in steps} - {0}

    def _cost(self, length: int) -> float:
        babies, giants = self._steps(length)
        return len(babies) + self.giant * len(giants)


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
