import math

import torch
from hypothesis import given
from hypothesis import strategies as st

from papers.pruning.scores import best_of_each, kept_groups, mean_magnitudes, relative

SEEDS = st.integers(0, 10**6)


def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """(weight, group of each weight, output of each group, number of groups); some groups may have no weight."""
    generator = torch.Generator().manual_seed(seed)
    count = int(torch.randint(1, 9, (), generator=generator))
    shape = tuple(torch.randint(1, 5, (4,), generator=generator).tolist())
    weight = torch.randn(shape, generator=generator).round(decimals=1)
    groups = torch.randint(count, shape, generator=generator)
    outputs = torch.randint(3, (count,), generator=generator).unique(return_inverse=True)[1]
    return weight, groups, outputs, count


def slow_means(weight: torch.Tensor, groups: torch.Tensor, count: int) -> list[float]:
    found = []
    for group in range(count):
        own = [abs(w) for w, g in zip(weight.flatten().tolist(), groups.flatten().tolist(), strict=True) if g == group]
        found.append(sum(own) / len(own) if own else 0.0)
    return found


@given(SEEDS)
def test_scores_are_the_means_of_their_groups(seed: int) -> None:
    weight, groups, _, count = drawn(seed)
    found = mean_magnitudes(weight, groups, count)
    assert found.dtype == torch.float64
    assert all(
        math.isclose(*pair, abs_tol=1e-12)
        for pair in zip(found.tolist(), slow_means(weight, groups, count), strict=True)
    )


@given(SEEDS, st.floats(-1, 3))
def test_what_stays_is_above_the_threshold_or_the_best_of_its_output(seed: int, threshold: float) -> None:
    weight, groups, outputs, count = drawn(seed)
    scores = mean_magnitudes(weight, groups, count)
    kept = kept_groups(scores, outputs, threshold).tolist()
    for output in range(int(outputs.max()) + 1):
        own = [group for group in range(count) if outputs[group] == output]
        best = max(own, key=lambda group: (scores[group].item(), -group))
        assert [kept[group] for group in own] == [scores[group] > threshold or group == best for group in own]
    assert best_of_each(scores, outputs).sum() == outputs.max() + 1


@given(SEEDS)
def test_relative_scores_do_not_depend_on_the_scale_of_a_layer(seed: int) -> None:
    weight, groups, _, count = drawn(seed)
    before = relative(mean_magnitudes(weight, groups, count), weight)
    after = relative(mean_magnitudes(8 * weight, groups, count), 8 * weight)
    assert torch.allclose(before, after, rtol=1e-12)


def test_a_weight_of_zeros_has_scores_of_zero() -> None:
    zeros = torch.zeros(2, 2)
    assert relative(mean_magnitudes(zeros, zeros.long(), 1), zeros).tolist() == [0.0]
