"""The plan of a pruned layer: baby steps and pieces chosen anew for the diagonals that are left.

With many diagonals gone, other baby steps may spare more rotations, and what is left over of a map may be cheaper in
the lanes of the other pieces, where the same diagonals are zero. So a pruned layer never costs more than it would with
the dense layer's plan.
"""

from dataclasses import replace

from papers.pruning.layer import DiagonalGroups, PrunedLayer, pruned_plan
from privcirnet.errors import RuleError
from privcirnet.he.layers.bsgs import Booleans, powers_of_two
from privcirnet.he.layers.spectral_pieces import Piece, plan_of
from privcirnet.he.planning.cost import plan_cost
from privcirnet.he.planning.network_links import NetworkLink
from privcirnet.he.planning.profile import Profile


def cheapest_pruned(groups: DiagonalGroups, kept: Booleans, profile: Profile, link: NetworkLink) -> PrunedLayer:
    """Return a layer without pruned diagonals, with the plan of least predicted time.

    Args:
        groups: of the weights of a planned dense layer.
        kept: whether each group stays, shape (count,).
        profile: seconds of operations at one (n, q).
        link: the network between the parties.

    Raises:
        RuleError: an output ciphertext keeps no diagonal.
    """
    chosen: dict[tuple[Piece, int], Piece] = {}
    pieces: list[Piece] = []
    for placed in groups.layer.placed:
        key = placed.piece, placed.first_group
        if key not in chosen:
            chosen[key] = _cheapest(groups, key, kept, profile, link)
        pieces.append(chosen[key])
    return groups.without(pieces, kept)


def _cheapest(
    groups: DiagonalGroups, placed: tuple[Piece, int], kept: Booleans, profile: Profile, link: NetworkLink
) -> Piece:
    """The best piece for the channel groups and tiles of a dense layer's one."""
    piece, first_group = placed
    leader = groups.leaders[first_group].piece
    found: list[tuple[float, Piece]] = []
    problem: RuleError | None = None
    for kind in dict.fromkeys((piece, replace(leader, tiles=piece.tiles))):
        pruned = groups.pruned_of(kind, first_group, kept)
        for option in _baby_steps(groups, kind):
            try:
                plan = pruned_plan(plan_of(groups.layer.layout, option), pruned)
            except RuleError as error:
                problem = error
                continue
            found.append((plan_cost(plan, profile, link).total, option))
    if not found:
        assert problem is not None
        raise problem
    return min(found, key=lambda pair: pair[0])[1]


def _baby_steps(groups: DiagonalGroups, piece: Piece) -> list[Piece]:
    """A piece with every number of baby steps, its own first."""
    diagonals = plan_of(groups.layer.layout, piece).diagonals
    others = [steps for steps in powers_of_two(diagonals) if steps != piece.baby_steps]
    usable = [steps for steps in others if not piece.giants_on_shares or steps < diagonals]
    return [replace(piece, baby_steps=steps) for steps in (piece.baby_steps, *usable)]
