"""Plans that compete: one block size everywhere is among them, the best score wins, swaps keep to the budget."""

import math

from hypothesis import given
from hypothesis import strategies as st

from privcirnet.blocksize_search.assignment import FREE, Cap, Constraints, Solution, total, uniform_sizes
from privcirnet.blocksize_search.candidates import UNIFORM, Candidate, best, refined, swaps, uniform_within

SIZES = (1, 2, 4, 8)


def tables(numbers: list[int]) -> tuple[dict, dict]:
    """Latencies that fall with the block size and sensitivities that rise, of a layer for each number."""
    latency = {f"l{i}": {b: (10 + n) / b for b in SIZES} for i, n in enumerate(numbers)}
    omega = {f"l{i}": {b: (n % 7 + 1) * (1 - 1 / b) for b in SIZES} for i, n in enumerate(numbers)}
    return latency, omega


NUMBERS = st.lists(st.integers(0, 50), min_size=1, max_size=5)


@given(NUMBERS, st.sampled_from(SIZES), st.dictionaries(st.integers(0, 10**6), st.floats(0, 10), max_size=20))
def test_a_plan_that_loses_to_uniform_by_the_score_is_impossible(numbers, b, scores):
    latency, omega = tables(numbers)
    budget = total(latency, uniform_sizes(latency, b))
    uniform = uniform_within(omega, latency, budget)
    assert uniform is not None
    assert uniform.block_sizes == uniform_sizes(latency, b)

    def score(sizes: dict[str, int]) -> float:
        return scores.get(hash(tuple(sizes.values())) % 10**6, 1.0 + len(set(sizes.values())))

    proposed = Candidate(
        "kfac", Solution(dict.fromkeys(latency, 8), 0.0, 0.0, "Optimal"), score(dict.fromkeys(latency, 8))
    )
    candidates = [proposed, Candidate(UNIFORM, uniform, score(uniform.block_sizes))]
    winner = best(candidates)
    assert winner.score <= candidates[1].score
    left = iter(range(15))
    found = refined(winner, omega, (latency, budget, FREE), score, lambda: next(left, None) is not None)
    assert found.score <= winner.score
    assert found.score == score(found.solution.block_sizes)
    assert found.solution.latency <= budget * (1 + 1e-9)
    assert found.proposed_by == winner.name


@given(NUMBERS, st.sampled_from(SIZES[1:]))
def test_swaps_differ_in_one_or_two_layers_and_meet_the_budget(numbers, b):
    latency, omega = tables(numbers)
    sizes = uniform_sizes(latency, b)
    budget = 1.01 * total(latency, sizes)
    found = list(swaps(sizes, omega, latency, budget))
    for plan in found:
        changed = [name for name in sizes if plan[name] != sizes[name]]
        assert 1 <= len(changed) <= 2
        assert any(plan[name] < sizes[name] for name in changed), "larger blocks alone are no gain"
        assert total(latency, plan) <= budget * (1 + 1e-9)
    sums = [total(omega, plan) for plan in found]
    assert sums == sorted(sums)


def test_rules_hold_for_uniform_and_for_swaps():
    latency, omega = tables([1, 2, 3])
    rules = Constraints(pinned={"l0": 1}, equal=[("l1", "l2")], caps=[Cap("bytes", latency, 25.0)])
    uniform = uniform_within(omega, latency, math.inf, rules)
    assert uniform is not None
    assert uniform.block_sizes == {"l0": 1, "l1": 2, "l2": 2}
    for plan in swaps(uniform.block_sizes, omega, latency, math.inf, rules):
        assert plan["l0"] == 1
        assert plan["l1"] == plan["l2"]
        assert total(latency, plan) <= 25
    assert uniform_within(omega, latency, 1.0, rules) is None


def test_without_scores_the_first_is_taken():
    first, second = (Candidate(name, Solution({"a": 1}, 0.0, 0.0, "Optimal")) for name in ("kfac", "fisher"))
    assert best([first, second]) is first


def test_a_race_decides_where_there_was_one():
    solution = Solution({"a": 1}, 0.0, 0.0, "Optimal")
    first, second = Candidate("kfac", solution, 0.1, 0.5), Candidate("fisher", solution, 0.2, 0.0)
    assert best([first, second]) is second
