"""A linear layer's plan as data: which rotations, products and sums an engine performs. No weights, no ciphertexts.

Diagonal method with baby steps and giant steps (BSGS) over lanes (he.md 2.2; PrivCirNet section 3.2 and Bolt). With
input block i in lane i mod G of ciphertext i // G, output lane l collects, for diagonals k = g B + j,

    y[l] = sum over g of rot_(g B) ( sum over j of D'_(g,j) * rot_j(x) ) [l]

where rot_k turns the lanes left by k and D'_(g,j) is the k-th diagonal of the weight, turned right by g B.

Beyond the papers, all of it decided by public shapes alone:

* p < G: the client repeats the input with period P = next power of two >= p, so P diagonals do instead of G.
* q < P: only Q = next power of two >= q diagonals are needed; the P / Q groups of lanes hold partial sums (a *fold*).
* Sums of output lanes need no rotation at all if they are done on shares: every lane that is sent carries its own
  uniform mask, and each party adds its own shares. This can replace the fold's rotations (free) and the giant steps
  (one more output ciphertext for each). Both are fields of the plan; turned off, the counts are the papers'.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layout import next_power_of_two


@dataclass(frozen=True, order=True)
class Product:
    """One HE-Pmult: input ciphertext ``source`` turned by ``baby`` lanes, times a diagonal, into (target, giant)."""

    target: int
    giant: int
    baby: int
    source: int


@dataclass(frozen=True)
class LinearPlan:
    """The plan of one layer.

    Attributes:
        lanes: G, lanes of a ciphertext.
        blocks_in: p.
        blocks_out: q.
        baby_steps: B, divides the number of diagonals.
        giants_on_shares: send every giant step as a ciphertext of its own instead of rotating and adding it.
        folds_on_shares: add the partial sums of a fold on shares instead of rotating and adding them.
    """

    lanes: int
    blocks_in: int
    blocks_out: int
    baby_steps: int
    giants_on_shares: bool = False
    folds_on_shares: bool = True

    def __post_init__(self) -> None:
        if self.baby_steps < 1 or self.diagonals % self.baby_steps:
            raise RuleError(
                "baby steps must divide the number of diagonals",
                got=f"{self.baby_steps} for {self.diagonals}",
                remedy=f"use a power of two up to {self.diagonals}",
            )

    @property
    def period(self) -> int:
        """P: the input repeats every P lanes."""
        return min(next_power_of_two(self.blocks_in), self.lanes)

    @property
    def diagonals(self) -> int:
        """Diagonals of each (input ciphertext, output ciphertext) pair."""
        return min(self.period, next_power_of_two(self.blocks_out))

    @property
    def fold(self) -> int:
        """Groups of lanes that hold partial sums of the same output blocks (1: none)."""
        return self.period // self.diagonals

    @property
    def giant_steps(self) -> int:
        """Diagonals / B."""
        return self.diagonals // self.baby_steps

    @property
    def ciphertexts_in(self) -> int:
        """Ciphertexts that the client sends."""
        return -(-self.blocks_in // self.lanes)

    @property
    def targets(self) -> int:
        """Groups of G output blocks."""
        return -(-self.blocks_out // self.lanes)

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """Every product whose diagonal is not zero by shape, ordered by (target, giant, baby, source)."""
        return tuple(
            Product(target, giant, baby, source)
            for target in range(self.targets)
            for giant in range(self.giant_steps)
            for baby in range(self.baby_steps)
            for source in range(self.ciphertexts_in)
            if self._is_populated(target, giant * self.baby_steps + baby, source)
        )

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each inner sum, in order."""
        return tuple(sorted({(p.target, p.giant) for p in self.products}))

    @cached_property
    def outputs(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each ciphertext that is sent back; giant is 0 if giant steps were rotated and added."""
        return self.parts if self.giants_on_shares else tuple((target, 0) for target in range(self.targets))

    @property
    def baby_rotations(self) -> tuple[tuple[int, int], ...]:
        """(source, baby) of each rotation of an input ciphertext."""
        return tuple(sorted({(p.source, p.baby) for p in self.products if p.baby}))

    @property
    def giant_rotations(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each rotation of an inner sum."""
        return () if self.giants_on_shares else tuple(part for part in self.parts if part[1])

    @property
    def fold_rotations(self) -> tuple[int, ...]:
        """Lane steps of the rotate-and-add that folds one output ciphertext."""
        if self.folds_on_shares:
            return ()
        return tuple(self.diagonals << i for i in reversed(range(self.fold.bit_length() - 1)))

    @property
    def rotation_steps(self) -> set[int]:
        """Lane steps for which the server needs a Galois key."""
        giants = {giant * self.baby_steps for _, giant in self.giant_rotations}
        return {baby for _, baby in self.baby_rotations} | giants | set(self.fold_rotations)

    @property
    def rotations(self) -> int:
        """HE-Rot."""
        folds = len(self.fold_rotations) * len(self.outputs)
        return len(self.baby_rotations) + len(self.giant_rotations) + folds

    @property
    def pmults(self) -> int:
        """HE-Pmult."""
        return len(self.products)

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends back."""
        return len(self.outputs)

    @property
    def products_per_sum(self) -> int:
        """Largest number of products that end up in one output ciphertext (for the noise)."""
        return self.ciphertexts_in * self.diagonals * (1 if self.folds_on_shares else self.fold)

    def blocks_of(self, target: int, diagonal: int, source: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Lanes that a diagonal fills, before the giant step's turn.

        Returns:
            (lane, output block, input block), three integer arrays of the same length.
        """
        width = max(self.period, min(next_power_of_two(self.blocks_out), self.lanes))
        lane = np.arange(width)
        out_period = self.diagonals if self.fold > 1 else self.lanes
        out_block = target * self.lanes + lane % out_period
        in_block = source * self.lanes + (lane + diagonal) % self.period
        valid = (out_block < self.blocks_out) & (in_block < self.blocks_in)
        return lane[valid], out_block[valid], in_block[valid]

    def input_blocks(self) -> np.ndarray:
        """Block in each lane of each input ciphertext, (ciphertexts_in, G); -1 where a lane is empty."""
        source, lane = np.indices((self.ciphertexts_in, self.lanes))
        block = source * self.lanes + lane % self.period
        return np.where(block < self.blocks_in, block, -1)

    @cached_property
    def output_terms(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For each output block the (output ciphertext, lane) places whose shares add up to it."""
        terms: list[list[tuple[int, int]]] = [[] for _ in range(self.blocks_out)]
        groups = self.fold if self.folds_on_shares else 1
        for index, (target, giant) in enumerate(self.outputs):
            turn = giant * self.baby_steps if self.giants_on_shares else 0
            in_target = range(target * self.lanes, min((target + 1) * self.lanes, self.blocks_out))
            for block in in_target:
                for group in range(groups):
                    lane = block % self.lanes + group * self.diagonals
                    terms[block].append((index, (lane + turn) % self.lanes))
        return tuple(tuple(t) for t in terms)

    def _is_populated(self, target: int, diagonal: int, source: int) -> bool:
        """Whether a diagonal meets a block; between the last input and the last output ciphertext it may not."""
        whole = (target + 1) * self.lanes <= self.blocks_out or source * self.lanes + self.period <= self.blocks_in
        return whole or self.blocks_of(target, diagonal, source)[0].size > 0


def candidates(lanes: int, blocks_in: int, blocks_out: int) -> list[LinearPlan]:
    """Every plan of a layer: all baby-step counts, giant steps rotated or on shares."""
    diagonals = LinearPlan(lanes, blocks_in, blocks_out, 1).diagonals
    steps = [1 << i for i in range(diagonals.bit_length())]
    plans = [LinearPlan(lanes, blocks_in, blocks_out, baby) for baby in steps]
    on_shares = [LinearPlan(lanes, blocks_in, blocks_out, baby, giants_on_shares=True) for baby in steps[:-1]]
    return plans + on_shares


def paper_plan(lanes: int, blocks_in: int, blocks_out: int) -> LinearPlan:
    """The plan with the fewest rotations and every sum under encryption, as the papers count (PrivCirNet, table 4)."""
    diagonals = LinearPlan(lanes, blocks_in, blocks_out, 1).diagonals
    steps = [1 << i for i in range(diagonals.bit_length())]
    plans = [LinearPlan(lanes, blocks_in, blocks_out, baby, folds_on_shares=False) for baby in steps]
    return min(plans, key=lambda plan: (plan.rotations, plan.baby_steps))
