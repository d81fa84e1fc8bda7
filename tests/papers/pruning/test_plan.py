from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from papers.pruning.layer import DiagonalGroups
from papers.pruning.plan import cheapest_pruned
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import linear_cost
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from tests.he.planning.test_planner import PROFILES
from tests.papers.pruning.test_layer import assert_masked, masked_rows, some_kept

LOCAL = LINKS["local"]
SHAPES = [
    LinearShape.gemm(65, 24, 16),
    LinearShape(6, 6, 16, 24, 3, 2, 1),
    LinearShape(5, 5, 12, 12, 3, 1, 1, groups=3),
    LinearShape(4, 4, 6, 6, 3, 1, 1, groups=6),
]
IDS = ["tokens", "stride", "groups", "depthwise"]


def planned(shape: LinearShape, name: str) -> DiagonalGroups:
    layer = cheapest_layer(shape, 1, PROFILES[name], LOCAL)
    return DiagonalGroups(layer)  # type: ignore[arg-type]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_what_is_planned_is_what_is_done(shape: LinearShape, profile: str) -> None:
    groups = planned(shape, profile)
    for share in (0.0, 0.2, 0.7):
        kept = some_kept(groups, share, 3)
        assert_masked(cheapest_pruned(groups, kept, PROFILES[profile], LOCAL), masked_rows(groups, kept))


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("shape", SHAPES, ids=IDS)
def test_nothing_pruned_costs_what_the_dense_layer_costs(shape: LinearShape, profile: str) -> None:
    groups = planned(shape, profile)
    layer = cheapest_pruned(groups, np.ones(groups.count, dtype=bool), PROFILES[profile], LOCAL)
    dense = linear_cost(groups.layer, PROFILES[profile], LOCAL).total
    assert linear_cost(layer, PROFILES[profile], LOCAL).total == pytest.approx(dense, rel=1e-12)


@given(st.sampled_from(SHAPES), st.sampled_from(sorted(PROFILES)), st.integers(0, 50))
def test_never_dearer_than_with_the_dense_plan_and_less_for_fewer_groups(
    shape: LinearShape, profile: str, seed: int
) -> None:
    groups = planned(shape, profile)
    before = np.inf
    for share in (1.0, 0.8, 0.5, 0.2, 0.0):
        kept = some_kept(groups, share, seed)
        seconds = linear_cost(cheapest_pruned(groups, kept, PROFILES[profile], LOCAL), PROFILES[profile], LOCAL).total
        assert seconds <= before * (1 + 1e-12)
        before = seconds
        leader = groups.leaders[0].piece
        pieces = [replace(leader, groups=p.groups, tiles=p.tiles) for p in groups.layer.pieces]
        same = groups.without(pieces, kept)
        assert seconds <= linear_cost(same, PROFILES[profile], LOCAL).total * (1 + 1e-12)


def test_an_output_that_keeps_nothing_is_refused() -> None:
    groups = planned(SHAPES[0], "all")
    with pytest.raises(RuleError, match="an output ciphertext must keep a diagonal"):
        cheapest_pruned(groups, np.zeros(groups.count, dtype=bool), PROFILES["all"], LOCAL)
