"""Structured pruning of a spectral layer: whole diagonals are left out, and with them products and rotations.

The weights of a layer with b = 1 fall into groups, one for each plaintext: the BSGS diagonals of each pair of an input
and an output ciphertext. A pruned diagonal is one HE-Pmult less. A baby step is spared when all products of a rotated
input are gone, and a giant step when its inner sum has none left. An output ciphertext must keep one product, because
no engine can make a ciphertext of zero out of none.

A client sends every input ciphertext, even one that no product reads. Which diagonals are pruned is public, as block
sizes are. Programs on disk have no pruned layers: they are for comparisons of layers and networks.

Source: the baseline SpENCNN (ICML 2023) as PrivCirNet compares with it (Section 4.1). Departure: groups are those of
this package's plans, which are better than the published ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.layers.bsgs import Booleans, BsgsPlan, Indices, Product
from privcirnet.he.layers.spectral_layer import SpectralLayer
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece, PieceLayout, place, plan_of

Diagonal = tuple[int, int, int]
"""(group of output blocks, diagonal k, input ciphertext) of a product, whatever the baby steps are."""


@dataclass(frozen=True)
class PrunedPlan(BsgsPlan):
    """The plan of one matrix over lanes of which some diagonals are zero."""

    pruned: frozenset[Diagonal] = field(default=frozenset(), repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        ranges = self.targets, self.diagonals, self.ciphertexts_in
        wrong = [d for d in self.pruned if any(not 0 <= i < size for i, size in zip(d, ranges, strict=True))]
        if wrong:
            raise RuleError("pruned diagonals must be the plan's", got=f"{wrong[0]} of {ranges}", remedy="group anew")
        empty = np.flatnonzero(~self.present.any(axis=(1, 2, 3))).tolist()
        if empty:
            raise RuleError(
                "an output ciphertext must keep a diagonal", got=f"none for {empty}", remedy="prune fewer diagonals"
            )

    @cached_property
    def present(self) -> Booleans:
        """(targets, giants, babies, sources): which products are made."""
        found = np.ones((self.targets, self.diagonals, self.ciphertexts_in), dtype=np.bool_)
        found[-1, :, -1] = self.corner.reshape(-1)
        if self.pruned:
            found[tuple(np.array(sorted(self.pruned)).T)] = False
        return found.reshape(self.targets, self.giant_steps, self.baby_steps, self.ciphertexts_in)

    @property
    def products(self) -> tuple[Product, ...]:
        """Every product that is made, ordered by (target, giant, baby, source)."""
        return tuple(Product(*indices) for indices in np.argwhere(self.present).tolist())

    @property
    def pmults(self) -> int:
        """HE-Pmult."""
        return int(self.present.sum())

    @cached_property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(target, giant) of each inner sum that has a product, in order."""
        return _pairs(self.present.any(axis=(2, 3)))

    @cached_property
    def rotated(self) -> tuple[tuple[int, int], ...]:
        """(source, baby) of each input ciphertext that is multiplied, rotated by ``baby`` lanes, in order."""
        return _pairs(self.present.any(axis=(0, 1)).T)

    @property
    def ciphertexts_out(self) -> int:
        """Ciphertexts that the server sends back."""
        return len(self.parts) if self.giants_on_shares else self.targets

    @property
    def products_per_sum(self) -> int:
        """Largest number of products that end up in one output ciphertext (for the noise)."""
        return int(self.present.sum(axis=(1, 2, 3)).max()) * (1 if self.folds_on_shares else self.fold)


@dataclass(frozen=True)
class PrunedLayer(SpectralLayer):
    """A spectral layer without some of its diagonals.

    Attributes:
        pruned: of each piece, the diagonals that are left out; pieces that are alike have the same.

    Raises:
        RuleError: an output ciphertext keeps no diagonal.
    """

    pruned: tuple[frozenset[Diagonal], ...] = field(default=(), repr=False)

    encoding = "pruned"

    def __post_init__(self) -> None:
        _ = self.placed  # whose plans check what is pruned of them

    @cached_property
    def placed(self) -> tuple[PieceLayout, ...]:
        """The pieces, each with its plan."""
        found: list[PieceLayout] = []
        first_out = 0
        for whole, pruned in zip(place(self.layout, self.ring_degree, self.pieces), self.pruned, strict=True):
            plan = pruned_plan(whole.plan, pruned)
            found.append(PieceLayout(whole.piece, plan, *_corner(whole), whole.first_in, first_out, whole.lane_slots))
            first_out += plan.ciphertexts_out
        return tuple(found)


@dataclass(frozen=True)
class DiagonalGroups:
    """The weights of a layer with b = 1, grouped by the plaintext that they are encoded in.

    Pieces of the same channel groups hold the same weights. Where their plans differ (65 tokens as 64 and 1), the
    first one's diagonals are the groups, and another's diagonal is zero if all of the groups that it meets are.

    Attributes:
        layer: a layer with b = 1.

    Raises:
        RuleError: the layer has larger blocks.
    """

    layer: SpectralLayer

    def __post_init__(self) -> None:
        if self.layer.block_size != 1:
            got = f"b = {self.layer.block_size}"
            raise RuleError("only dense layers are pruned by diagonals", got=got, remedy="plan the layer with b = 1")

    @cached_property
    def leaders(self) -> dict[int, PieceLayout]:
        """The piece whose diagonals are the groups, by its first channel group."""
        return {placed.first_group: placed for placed in reversed(self.layer.placed)}

    @cached_property
    def diagonals(self) -> tuple[tuple[int, Product], ...]:
        """(first channel group of its piece, product) of each group of weights."""
        return tuple((first, product) for first, placed in self.leaders.items() for product in placed.plan.products)

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.diagonals)

    @cached_property
    def outputs(self) -> Indices:
        """A number for the output ciphertext that each group goes into, shape (count,): one group of each must stay."""
        known: dict[tuple[int, int], int] = {}
        return np.array([known.setdefault((first, p.target), len(known)) for first, p in self.diagonals])

    @cached_property
    def blocks(self) -> Indices:
        """The number of the group of each pair of an output and an input block, shape (channel groups, q, p)."""
        layout = self.layer.layout
        found = np.full((layout.shape.groups, layout.blocks_out, layout.blocks_in), -1, dtype=np.int64)
        for number, (first, product) in enumerate(self.diagonals):
            placed = self.leaders[first]
            _, out_block, in_block = _blocks(placed.plan, product)
            found[placed.groups, out_block, in_block] = number
        if (found < 0).any():
            raise ValueError("every block must have a product")
        return found

    @cached_property
    def weights(self) -> Indices:
        """The number of the group of each weight, shape (K, C / groups, R, R)."""
        layout = self.layer.layout
        shape, phases = layout.shape, _phase_of_tap(layout)
        by_phase = self.blocks.reshape(shape.groups, layout.blocks_out, len(layout.phases), -1)
        taps = by_phase[:, :, phases]  # (groups, q, R, R, C / groups)
        return np.moveaxis(taps, -1, 2).reshape(shape.out_channels, -1, *phases.shape)

    def kept_of(self, mask: Booleans) -> Booleans:
        """Return which groups have a weight that stays, shape (count,).

        Args:
            mask: whether each weight stays, shape (K, C / groups, R, R).
        """
        kept = np.zeros(self.count, dtype=np.bool_)
        kept[self.weights[mask]] = True
        return kept

    def pruned_of(self, piece: Piece, first_group: int, kept: Booleans) -> frozenset[Diagonal]:
        """Return the diagonals of a piece that are zero.

        Args:
            piece: any that covers the same channel groups as one of the layer's.
            first_group: its first channel group.
            kept: whether each group stays, shape (count,).
        """
        met = self._met(piece, first_group)
        return frozenset(diagonal for diagonal, numbers in met.items() if not kept[numbers].any())

    def without(self, pieces: Sequence[Piece], kept: Booleans) -> PrunedLayer:
        """Return the layer without the groups that do not stay.

        Args:
            pieces: that cover the layer's grid, in order.
            kept: whether each group stays, shape (count,).

        Raises:
            RuleError: an output ciphertext keeps no diagonal.
        """
        layer = self.layer
        first = [placed.first_group for placed in place(layer.layout, layer.ring_degree, pieces)]
        pruned = tuple(self.pruned_of(*pair, kept) for pair in zip(pieces, first, strict=True))
        return PrunedLayer(layer.shape, 1, layer.ring_degree, layer.tile, tuple(pieces), pruned)

    def _met(self, piece: Piece, first_group: int) -> dict[Diagonal, Indices]:
        """The groups that each diagonal of a piece meets; they do not depend on its baby steps."""
        key = piece.lanes, piece.copies, piece.groups, first_group
        if key not in self._known:
            self._known[key] = dict(self._listed(plan_of(self.layer.layout, piece), slice(*_span(piece, first_group))))
        return self._known[key]

    def _listed(self, plan: BsgsPlan, groups: slice) -> Iterator[tuple[Diagonal, Indices]]:
        for product in plan.products:
            _, out_block, in_block = _blocks(plan, product)
            yield diagonal_of(plan, product), np.unique(self.blocks[groups, out_block, in_block])

    @cached_property
    def _known(self) -> dict[tuple[int, ...], dict[Diagonal, Indices]]:
        return {}


def pruned_plan(plan: BsgsPlan, pruned: frozenset[Diagonal]) -> PrunedPlan:
    """Return a plan without some of its diagonals.

    Raises:
        RuleError: they are not the plan's, or an output ciphertext keeps none.
    """
    sizes = plan.lanes, plan.blocks_in, plan.blocks_out, plan.baby_steps, plan.copies
    return PrunedPlan(*sizes, plan.giants_on_shares, plan.folds_on_shares, pruned)


def diagonal_of(plan: BsgsPlan, product: Product) -> Diagonal:
    """Return what a product is when the baby steps are left out of account."""
    return product.target, product.giant * plan.baby_steps + product.baby, product.source


def _blocks(plan: BsgsPlan, product: Product) -> tuple[Indices, Indices, Indices]:
    return plan.blocks_of(*diagonal_of(plan, product))


def _pairs(wanted: np.ndarray | np.bool_) -> tuple[tuple[int, int], ...]:
    return tuple((first, second) for first, second in np.argwhere(wanted).tolist())


def _corner(placed: PieceLayout) -> tuple[int, int]:
    return placed.first_group, placed.first_tile


def _span(piece: Piece, first_group: int) -> tuple[int, int]:
    return first_group, first_group + piece.groups


def _phase_of_tap(layout: SpectralLayout) -> Indices:
    """(R, S): the phase image that each tap of the kernel reads."""
    found = np.zeros(layout.shape.kernels, dtype=np.int64)
    for index, (row_phase, column_phase) in enumerate(layout.phases):
        rows = [r for r, _ in layout.shape.rows.taps[row_phase]]
        columns = [s for s, _ in layout.shape.columns.taps[column_phase]]
        found[np.ix_(rows, columns)] = index
    return found
