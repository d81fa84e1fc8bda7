"""A matrix over lanes as data: which rotations, products and sums an engine performs. No weights, no ciphertexts.

Diagonal method with baby steps and giant steps (BSGS; PrivCirNet, section 3.2; Bolt; docs/mathematics.md, "Lanes and
counts"). With input block i in lane i mod G of ciphertext i // G, output lane l collects, for diagonals k = g B + j,

    y[l] = sum over g of rot_(g B) ( sum over j of D'_(g,j) * rot_j(x) ) [l]

where rot_k turns the lanes left by k and D'_(g,j) is the k-th diagonal of the weight, rotated right by g B. Rotations
by j share the digits of x (hoisting). The cut into baby and giant steps (:func:`groups`, :func:`cheapest`) is that of
any linear transform by its diagonals, in CKKS, too. Here the D diagonals are 0, ..., D - 1. Copies and sums on shares
are a :class:`BsgsPlan`'s, and a planner prices every baby length because both change what a giant step costs.

Beyond the papers, all of it decided by public shapes alone:

* p < G: the client repeats the input with period P = next power of two >= p, so P diagonals do instead of G.
* q < P: only Q = next power of two >= q diagonals are needed; the P / Q groups of lanes hold partial sums.
* Spare lanes: where W = max(P, Q) < G, up to G / W *copies* of the input stand side by side, copy c rotated left by
  c D lanes, so that each of D diagonals does the work of as many as there are copies: again partial sums.
* Partial sums are *folded*: rotated and added, or for free on shares (below).
* Sums of output lanes need no rotation at all if they are done on shares: every lane that is sent carries its own
  uniform mask, and each party adds its own shares. This can replace the fold's rotations (free) and the giant steps
  (one more output ciphertext for each). Both are fields of the plan; switched off, the counts are the papers'.

Counts are closed forms, so that a planner can look at many plans; the tests hold them against the enumerated products.
"""

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privcirnet.errors import RuleError
from privcirnet.he.layers.spectral_layout import next_power_of_two


def powers_of_two(limit: int) -> list[int]:
    """Return the powers of two up to a number, ascending: every baby length of so many diagonals in a row."""
    return [1 << i for i in range(limit.bit_length())]


def groups(steps: Collection[int], length: int) -> dict[int, list[int]]:
    """Return giant step g -> its baby steps b, both ascending.

    Args:
        steps: rotation d of each diagonal, also negative.
        length: B.
    """
    babies: dict[int, list[int]] = {}
    for d in sorted(steps):
        babies.setdefault(d - d % length, []).append(d % length)
    return babies


def rotations(steps: Collection[int], length: int) -> tuple[set[int], set[int]]:
    """Return the baby steps and the giant steps that rotate, those but 0: each takes a key.

    Args:
        steps: rotation d of each diagonal.
        length: B.
    """
    return {d % length for d in steps} - {0}, {d - d % length for d in steps} - {0}


def cheapest(steps: Collection[int], baby: float = 1.0, giant: float = 1.0) -> int:
    """Return the baby length of the least work.

    Args:
        steps: rotation d of each diagonal.
        baby: cost of a baby step.
        giant: cost of a giant step.
    """

    def cost(length: int) -> float:
        babies, giants = rotations(steps, length)
        return baby * len(babies) + giant * len(giants)

    return min(powers_of_two(2 * max(map(abs, steps)) + 1), key=cost)


Booleans = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True, order=True)
class Product:
    """One HE-Pmult: input ciphertext ``source`` rotated by ``baby`` lanes, times a diagonal, into (target, giant)."""

    target: int
    giant: int
    baby: int
    source: int


@dataclass(frozen=True)
class BsgsPlan:
    """The plan of one matrix over lanes.

    Attributes:
        lanes: G, lanes of a ciphertext, a power of two.
        blocks_in: p.
        blocks_out: q.
        baby_steps: B, divides the number of diagonals.
        copies: copies of the input that share the diagonals, a power of two.
        giants_on_shares: send every giant step as a ciphertext of its own instead of rotating and adding it.
        folds_on_shares: add partial sums on shares instead of rotating and adding them.
    """

    lanes: int
    blocks_in: int
    blocks_out: int
    baby_steps: int
    copies: int = 1
    giants_on_shares: bool = False
    folds_on_shares: bool = True

    def __post_init__(self) -> None:
        if self.lanes < 1 or self.lanes & (self.lanes - 1):
            raise RuleError("lanes must be a power of two", got=self.lanes, remedy="use a power of two up to n / 2")
        if self.copies not in copy_counts(self.lanes, self.blocks_in, self.blocks_out):
            raise RuleError(
                "copies must be a power of two that fits the spare lanes and divides the diagonals",
                got=f"{self.copies} of {self.width} lanes in {self.lanes}",
                remedy="use 1",
            )
        if self.baby_steps < 1 or self.diagonals % self.baby_steps:
            raise RuleError(
                "baby steps must divide the number of diagonals",
                got=f"{self.baby_steps} for {self.diagonals}",
                remedy=f"use a power of two up to {self.diagonals}",
            )

    @property
    def period(self) -> int:
        """Input blocks of a ciphertext as a power of two, P."""
        return min(next_power_of_two(self.blocks_in), self.lanes)

    @property
    def out_period(self) -> int:
        """Output blocks of a ciphertext as a power of two, Q; lanes that far apart hold partial sums."""
        return min(next_power_of_two(self.blocks_out), self.lanes)

    @property
    def width(self) -> int:
        """Lanes of a copy, W."""
        return max(self.period, self.out_period)

    @cached_property
    def diagonals(self) -> int:
        """Diagonals of each (input ciphertext, output ciphertext) pair, D."""
        return min(self.period, self.out_period) // self.copies

    @property
    def fold(self) -> int:
        """Lanes that hold partial sums of the same output block (1: none)."""
        return self.copies * self.width // self.out_period

    @property
    def giant_steps(self) -> int:
        """Number of giant steps, D / B."""
        return self.diagonals // self.baby_steps

    @property
    def ciphertexts_in(self) -> int:
        """Ciphertexts that the client sends."""
        return -(-self.blocks_in // self.lanes)

    @property
    def targets(self) -> int:
        """Groups of up to G output blocks."""
        return -(-self.blocks_out // self.lanes)

    def input_blocks(self) -> Indices:
        """Return the block in each lane of each input ciphertext, (ciphertexts_in, G); -1 where a lane is empty."""
        return self._inputs_of(np.arange(self.ciphertexts_in)[:, None])

    def _inputs_of(self, source: int | Indices) -> Indices:
        lane = np.arange(self.lanes)
        turn = lane // self.width % self.copies * self.diagonals
        block = source * self.lanes + (lane % self.width + turn) % self.period
        return np.where(block < self.blocks_in, block, -1)

    def output_blocks(self, target: int) -> Indices:
        """Return the block whose (partial) sum ends up in each lane of an output ciphertext, (G,); -1 for none."""
        lane = np.arange(self.lanes)
        block = target * self.lanes + lane % self.out_period
        return np.where((lane < self.copies * self.width) & (block < self.blocks_out), block, -1)

    def blocks_of(self, target: int, diagonal: int, source: int) -> tuple[Indices, Indices, Indices]:
        """Return the lanes that a diagonal fills, before the giant step rotates it.

        Args:
            diagonal: k, in [0, D).

        Returns:
            (lane, output block, input block), three integer arrays of the same length.
        """
        out_block, in_block = self.output_blocks(target), np.roll(self._inputs_of(source), -diagonal)
        lane = np.flatnonzero((out_block >= 0) & (in_block >= 0))
        return lane, out_block[lane], in_block[lane]

    @cached_property
    def corner(self) -> Booleans:
        """Flags, shape (giants, babies): whether the diagonals between the last input and the last output meet a block.

        All others do: a full ciphertext on either side has a block in every lane.
        """
        out_valid = self.output_blocks(self.targets - 1) >= 0
        in_valid = self._inputs_of(self.ciphertexts_in - 1) >= 0
        spectra = np.conj(np.fft.rfft(out_valid)), np.fft.rfft(in_valid)
        meetings = np.fft.irfft(spectra[0] * spectra[1], self.lanes)[: self.diagonals]
        return (meetings > 0.5).reshape(self.giant_steps, self.baby_steps)

    @property
    def products(self) -> tuple[Product, ...]:
        """Every product whose diagonal is not zero by shape, ordered by (target, giant, baby, source)."""
        corner = self.corner
        last = self.targets - 1, self.ciphertexts_in - 1
        return tuple(
            Product(target, giant, baby, source)
            for target in range(self.targets)
            for giant in range(self.giant_steps)
            for baby in range(self.baby_steps)
            for source in range(self.ciphertexts_in)
            if (target, source) != last or corner[giant, baby]
        )

    @property
    def pmults(self) -> int:
        """HE-Pmult."""
        pairs = self.targets * self.ciphertexts_in
        return (pairs - 1) * self.diagonals + int(self.corner.sum())

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each inner sum, in order."""
        everywhere = self.ciphertexts_in > 1
        last = [giant for giant in range(self.giant_steps) if everywhere or self.corner[giant].any()]
        full = [(target, giant) for target in range(self.targets - 1) for giant in range(self.giant_steps)]
        return (*full, *((self.targets - 1, giant) for giant in last))

    @cached_property
    def rotated(self) -> tuple[tuple[int, int], ...]:
        """(source, baby) of each input ciphertext that is multiplied, rotated by ``baby`` lanes, in order."""
        everywhere = self.targets > 1
        last = [baby for baby in range(self.baby_steps) if everywhere or self.corner[:, baby].any()]
        full = [(source, baby) for source in range(self.ciphertexts_in - 1) for baby in range(self.baby_steps)]
        return (*full, *((self.ciphertexts_in - 1, baby) for baby in last))

    @cached_property
    def outputs(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each ciphertext that is sent back; giant is 0 if giant steps were rotated and added."""
        return self.parts if self.giants_on_shares else tuple((target, 0) for target in range(self.targets))

    @property
    def baby_rotations(self) -> tuple[tuple[int, int], ...]:
        """(source, baby) of each rotation of an input ciphertext."""
        return tuple(pair for pair in self.rotated if pair[1])

    @property
    def giant_rotations(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each rotation of an inner sum."""
        return () if self.giants_on_shares else tuple(part for part in self.parts if part[1])

    @property
    def fold_rotations(self) -> tuple[int, ...]:
        """Lane steps of the rotate-and-add that folds one output ciphertext."""
        if self.folds_on_shares:
            return ()
        return tuple(self.out_period << i for i in reversed(range(self.fold.bit_length() - 1)))

    @property
    def rotation_steps(self) -> set[int]:
        """Lane steps for which the server needs a Galois key."""
        giants = {giant * self.baby_steps for _, giant in self.giant_rotations}
        return {baby for _, baby in self.baby_rotations} | giants | set(self.fold_rotations)

    @property
    def rotations(self) -> int:
        """HE-Rot."""
        folds = len(self.fold_rotations) * self.ciphertexts_out
        return len(self.baby_rotations) + len(self.giant_rotations) + folds

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends back."""
        if not self.giants_on_shares:
            return self.targets
        everywhere = self.ciphertexts_in > 1
        last = self.giant_steps if everywhere else int(self.corner.any(axis=1).sum())
        return (self.targets - 1) * self.giant_steps + last

    @property
    def products_per_sum(self) -> int:
        """Largest number of products that end up in one output ciphertext (for the noise)."""
        return self.ciphertexts_in * self.diagonals * (1 if self.folds_on_shares else self.fold)

    @cached_property
    def output_terms(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Places (output ciphertext, lane) whose shares add up to an output block, for each block."""
        terms: list[list[tuple[int, int]]] = [[] for _ in range(self.blocks_out)]
        groups = self.fold if self.folds_on_shares else 1
        for index, (target, giant) in enumerate(self.outputs):
            turn = giant * self.baby_steps if self.giants_on_shares else 0
            for block in range(target * self.lanes, min((target + 1) * self.lanes, self.blocks_out)):
                for group in range(groups):
                    lane = block % self.lanes + group * self.out_period
                    terms[block].append((index, (lane + turn) % self.lanes))
        return tuple(tuple(t) for t in terms)


def copy_counts(lanes: int, blocks_in: int, blocks_out: int) -> list[int]:
    """Return every number of copies that a plan may have.

    Args:
        lanes: G.
        blocks_in: p.
        blocks_out: q.
    """
    period, out_period = (min(next_power_of_two(blocks), lanes) for blocks in (blocks_in, blocks_out))
    limit = min(lanes // max(period, out_period), period, out_period)
    return powers_of_two(limit)


def candidates(lanes: int, blocks_in: int, blocks_out: int, *, on_shares: bool) -> list[BsgsPlan]:
    """Return every plan of a matrix: all numbers of copies and baby steps, giant steps rotated or on shares.

    Args:
        lanes: G.
        on_shares: whether sums may be done on shares; False gives the plans that the papers count.
    """
    plans: list[BsgsPlan] = []
    for copies in copy_counts(lanes, blocks_in, blocks_out):
        diagonals = BsgsPlan(lanes, blocks_in, blocks_out, 1, copies).diagonals
        for baby in powers_of_two(diagonals):
            plans.append(BsgsPlan(lanes, blocks_in, blocks_out, baby, copies, folds_on_shares=on_shares))
            if on_shares and baby < diagonals:
                plans.append(BsgsPlan(lanes, blocks_in, blocks_out, baby, copies, giants_on_shares=True))
    return plans
