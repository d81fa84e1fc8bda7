import numpy as np
import pytest
import torch

from papers.pruning.layer import DiagonalGroups
from papers.pruning.search import PrunedNetwork, Pruning
from privcirnet.blocksize_search.latency import CostPrediction, figure_table, figures_of_layer
from privcirnet.errors import RuleError
from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.planning.cost import Objective
from privcirnet.he.planning.network_links import LINKS
from privcirnet.he.planning.planner import cheapest_layer
from tests.he.planning.test_planner import PROFILES
from tests.papers.pruning.test_layer import assert_masked

PROFILE, LINK = PROFILES["all"], LINKS["local"]
SHAPES = {
    "stem": LinearShape(8, 8, 1, 8, 3, 1, 1),
    "down": LinearShape(8, 8, 8, 16, 3, 2, 1),
    "depthwise": LinearShape(4, 4, 16, 16, 3, 1, 1, groups=16),
    "classifier": LinearShape.gemm(1, 16, 10),
}


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    found = {name: torch.randn(shape.weight_shape(1)) for name, shape in SHAPES.items()}
    return found | {"classifier": found["classifier"][..., 0, 0]}


def pruning(scores: str = "magnitude") -> Pruning:
    return Pruning(weights(), SHAPES, PROFILE, LINK, scores)


def dense() -> CostPrediction:
    table = figure_table(SHAPES, [1], Objective(PROFILE, LINK))
    return sum((row[1] for row in table.values()), CostPrediction())


def test_a_budget_of_the_dense_latency_prunes_nothing() -> None:
    found = pruning().to_budget(dense().seconds * (1 + 1e-9))
    assert found.sparsity == 0
    assert found.figures.seconds == pytest.approx(dense().seconds)
    assert all(bool(mask.all()) for mask in found.masks.values())
    assert {name: mask.shape for name, mask in found.masks.items()} == {n: w.shape for n, w in weights().items()}


def scores_of(name: str) -> tuple[np.ndarray, DiagonalGroups]:
    groups = DiagonalGroups(cheapest_layer(SHAPES[name], 1, PROFILE, LINK))  # type: ignore[arg-type]
    magnitudes = weights()[name].abs().double().numpy().reshape(groups.weights.shape)
    return np.array([magnitudes[groups.weights == group].mean() for group in range(groups.count)]), groups


@pytest.mark.parametrize("what", ["seconds", "server"])
def test_it_prunes_as_little_as_meets_the_budget_by_one_threshold(what: str) -> None:
    """The binary search against a walk through all thresholds, and the masks against the groups' mean magnitudes."""
    search = pruning()
    everything = np.unique(np.concatenate([scores_of(name)[0] for name in SHAPES]))
    budget = (getattr(search.at(everything[-1]).figures, what) + getattr(dense(), what)) / 2
    found = search.to_budget(budget, what)
    walked = next(t for t in everything if getattr(search.at(t).figures, what) <= budget)
    assert found.threshold == pytest.approx(walked)
    assert 0 < found.sparsity < 1
    for name in SHAPES:
        scores, groups = scores_of(name)
        kept = np.array(
            [
                found.masks[name].numpy().reshape(groups.weights.shape)[groups.weights == g].all()
                for g in range(groups.count)
            ]
        )
        assert kept[scores > walked * (1 + 1e-9)].all()
        spared = np.flatnonzero(kept & (scores <= walked * (1 + 1e-9)))
        assert all(scores[i] == scores[groups.outputs == groups.outputs[i]].max() for i in spared)


def counted(found: PrunedNetwork) -> CostPrediction:
    return sum((figures_of_layer(layer, PROFILE, LINK) for layer in found.layers.values()), CostPrediction())


def test_predictions_are_those_of_plans_that_an_engine_follows() -> None:
    search = pruning()
    found = search.to_budget((search.at(np.inf).figures.seconds + dense().seconds) / 2)
    assert counted(found) == found.figures
    for name, layer in found.layers.items():
        mask = found.masks[name].numpy().reshape(SHAPES[name].weight_shape(1))
        assert_masked(layer, mask * np.random.default_rng(0).integers(1, 100, mask.shape))


def test_relative_scores_prune_layers_of_any_scale_alike() -> None:
    scaled = weights() | {"down": 100 * weights()["down"]}
    budget = 0.05 * pruning().at(np.inf).figures.seconds + 0.95 * dense().seconds  # beyond, every layer gives its share
    plain, large = (Pruning(w, SHAPES, PROFILE, LINK, "relative").to_budget(budget) for w in (weights(), scaled))
    assert all(torch.equal(plain.masks[name], large.masks[name]) for name in SHAPES)
    absolute = Pruning(scaled, SHAPES, PROFILE, LINK).to_budget(budget)
    assert absolute.masks["down"].float().mean() > plain.masks["down"].float().mean()


def test_a_budget_below_all_pruning_and_unknown_scores_are_refused() -> None:
    with pytest.raises(RuleError, match=r"a budget must be within reach of pruning: got .* s; use a larger budget"):
        pruning().to_budget(1e-9)
    with pytest.raises(RuleError, match="scores must be known ones: got 'luck'; use magnitude or relative"):
        pruning("luck")
