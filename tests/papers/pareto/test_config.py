import pytest

from papers.pareto.config import ParetoConfig
from privcirnet.config import RecipeConfig
from privcirnet.errors import RuleError

FINETUNE = RecipeConfig(stage="finetune", init="dense")


def names(**changes: object) -> list[str]:
    return [cell.name for cell in ParetoConfig(recipe=FINETUNE, **changes).cells()]  # type: ignore[arg-type]


def test_every_method_and_budget_has_a_cell_and_dense_has_one():
    found = names()
    assert len(found) == len(set(found)) == 1 + 4 + 4 * 6 * 2
    assert names(budgets=[2]) == [
        *("dense-b1", "uniform-b2", "weights-b2-all", "weights-b2-server"),
        *("loss_aware-b2-all", "loss_aware-b2-server", "kfac-b2-all", "kfac-b2-server"),
        *("energy-b2-all", "energy-b2-server", "searched-b2-all", "searched-b2-server"),
        *("pruning-b2-all", "pruning-b2-server"),
    ]


def test_a_job_may_have_one_of_them():
    assert names(method="pruning", b=4, budget_on="server") == ["pruning-b4-server"]
    assert names(method="uniform", b=4) == ["uniform-b4"]
    assert names(method="dense", b=4) == ["dense-b1"]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"method": "luck"}, "method must be a known one: got 'luck'; use one of dense, uniform"),
        ({"budget_on": "client"}, "budget_on must be a known one: got 'client'; use one of all, server, both"),
        ({"scores": "luck"}, "scores must be a known one"),
        ({"budgets": [3]}, r"budgets must be powers of two: got \[3\]"),
        ({"budgets": []}, "budgets must be powers of two"),
        ({"out": "/dev/null/x"}, "out must be a folder that can be written"),
        ({"train_images": -1}, "train_images must not be negative: got -1"),
        ({"b": 64}, r"must have 1 and those of the budgets: got .*; add \[64\]"),
        ({"recipe": RecipeConfig()}, "every cell is fine-tuned: got train; use recipe=finetune"),
        ({"seeds": []}, r"seeds must be different numbers, at least one: got \[\]; use \[0\], or \[0,1\]"),
        ({"seeds": [1, 1]}, r"seeds must be different numbers, at least one: got \[1, 1\]"),
        ({"samples": 0}, "samples must be positive: got 0"),
    ],
)
def test_settings_are_checked(changes, match):
    with pytest.raises(RuleError, match=match):
        ParetoConfig(**{"recipe": FINETUNE} | changes)
