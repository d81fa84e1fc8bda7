import itertools
import math
import random
import subprocess
import sys

import pulp
import pytest

from privcirnet.blocksize_search.assignment import Cap, Composable, Constraints, Table, latency_range, uniform_latency
from privcirnet.blocksize_search.solve import BUDGET_SLACK, SOLVERS, solve
from privcirnet.errors import RuleError
from tests.blocksize_search.instances import SIZES
from tests.conftest import WHOLE


def exhaustive(omegas: Table, seconds: Table, budget: float) -> float:
    """Least total sensitivity over all assignments within the budget."""
    return min(
        math.fsum(omegas[name][b] for name, b in zip(omegas, sizes, strict=True))
        for sizes in itertools.product(*omegas.values())
        if math.fsum(seconds[name][b] for name, b in zip(omegas, sizes, strict=True)) <= budget * (1 + BUDGET_SLACK)
    )


@pytest.mark.parametrize("seed", range(30 if WHOLE else 5))
def test_matches_exhaustive_search_at_the_edge_of_an_assignment(seed):
    """Whole numbers make many ties, and budgets just under an assignment's latency are the solver's hardest."""
    chance = random.Random(seed)
    names = "abcde"[: chance.randint(2, 5)]
    omegas = {n: {b: float(chance.randint(0, 9) * (b - 1)) for b in SIZES} for n in names}
    seconds = {n: {b: chance.randint(1, 20) / b for b in SIZES} for n in names}
    totals = [math.fsum(times) for times in itertools.product(*(row.values() for row in seconds.values()))]
    budget = max(min(totals), chance.choice(totals) * (1 - chance.choice((0, 1e-5, 1e-6, 1e-7, 1e-8))))
    assert solve(omegas, seconds, budget).sensitivity == exhaustive(omegas, seconds, budget)


def dynamic_programme(omegas: Table, seconds: Table, budget: int) -> float:
    """Least total sensitivity for whole numbers of seconds, by filling a table of budgets."""
    best = [0.0] * (budget + 1)
    for name, row in omegas.items():
        options = [(omega, int(seconds[name][b])) for b, omega in row.items()]
        best = [
            min((best[left - taken] + omega for omega, taken in options if taken <= left), default=math.inf)
            for left in range(budget + 1)
        ]
    return best[budget]


@pytest.mark.parametrize("unit", [1e-15, 1.0, 1e9])
@pytest.mark.parametrize("clock", [1e-9, 1.0, 1e5])
def test_matches_dynamic_programming_in_any_unit(unit, clock):
    """Forty layers whose budget binds: one more second of two hundred would buy a better assignment."""
    chance = random.Random(0)
    names = [str(i) for i in range(40)]
    omegas = {n: {b: unit * (b - 1) * 10 ** chance.uniform(-3, 0) for b in SIZES} for n in names}
    whole = {n: {b: float(chance.randint(8, 16) // b) for b in SIZES} for n in names}
    seconds = {n: {b: clock * v for b, v in row.items()} for n, row in whole.items()}
    expected = dynamic_programme(omegas, whole, 200)
    assert dynamic_programme(omegas, whole, 201) < expected
    solution = solve(omegas, seconds, 200 * clock)
    assert solution.sensitivity == pytest.approx(expected, rel=1e-12, abs=0)
    assert solution.latency <= 200 * clock * (1 + BUDGET_SLACK)


@pytest.mark.parametrize("miss", [1e-6, 1e-7, 1e-8])
def test_a_budget_missed_by_little_is_missed(miss):
    omegas = {name: {1: 0.0, 2: 1.0, 4: 3.0} for name in "abc"}
    seconds = {name: {1: 1.0, 2: 0.5, 4: 0.25} for name in "abc"}
    assert solve(omegas, seconds, 3.0).sensitivity == 0
    assert solve(omegas, seconds, 3.0 * (1 - miss)).sensitivity == 1


def test_differences_far_below_the_sensitivities_count():
    omegas = {"a": {1: 1.0, 2: 1.0 + 4e-13}, "b": {1: 1.0, 2: 1.0 + 2e-13}, "c": {1: 1.0, 2: 1.0 + 3e-13}}
    seconds = {name: {1: 1.0, 2: 0.5} for name in omegas}
    assert solve(omegas, seconds, 2.5).block_sizes == {"a": 1, "b": 2, "c": 1}


def test_small_sensitivities_beside_huge_ones_are_still_told_apart():
    omegas = {"huge": {1: 0.0, 2: 1e9}, "a": {1: 2e-9, 2: 3e-9}, "b": {1: 0.0, 2: 2e-9}, "c": {1: 0.0, 2: 5e-10}}
    seconds = {"huge": {1: 1.0, 2: 0.5}} | {name: {1: 1.0, 2: 0.5} for name in "abc"}
    solution = solve(omegas, seconds, 3.5)
    assert solution.block_sizes == {"huge": 1, "a": 1, "b": 1, "c": 2}


def test_no_latency_is_spent_for_nothing():
    omegas = {"a": {1: 1.0, 2: 1.0, 4: 1.0}, "b": {1: 2.0, 2: 1.0}}
    seconds = {"a": {1: 3.0, 2: 1.0, 4: 2.0}, "b": {1: 1.0, 2: 1.0}}
    assert solve(omegas, seconds, 100.0).block_sizes == {"a": 2, "b": 2}


def test_the_uniform_network_meets_its_own_budget():
    """The budget is a rounded sum of the very numbers that have to stay below it."""
    seconds = {f"l{i}": {b: 0.1 / b + 0.01 * i for b in SIZES} for i in range(30)}
    omegas = {name: {1: 7.0, 2: 7.0, 4: 0.0, 8: 7.0} for name in seconds}
    assert set(solve(omegas, seconds, uniform_latency(seconds, 4)).block_sizes.values()) == {4}


def test_free_layers_need_no_budget():
    assert solve({"a": {1: 1.0}}, {"a": {1: 0.0}}, 0.0).latency == 0


@pytest.mark.parametrize("budget", [2.9, 0.0, -1.0, float("nan")])
def test_a_budget_that_cannot_be_met(budget):
    seconds = {name: {1: 4.0, 4: 1.0} for name in "abc"}
    message = rf"latency budget must be at least the fastest assignment's: got {budget:g} s; allow at least 3\.0 s"
    with pytest.raises(RuleError, match=message):
        solve({name: {1: 0.0, 4: 1.0} for name in "abc"}, seconds, budget)


@pytest.mark.parametrize(
    ("omegas", "seconds", "message"),
    [
        ({}, {}, "same layers and block sizes, at least one: got no layers"),
        ({"a": {1: 0.0}}, {"b": {1: 0.0}}, r"same layers and block sizes.*: got differences at \['a', 'b'\]"),
        ({"a": {1: 0.0, 2: 1.0}}, {"a": {1: 0.0}}, r"same layers and block sizes.*: got differences at \['a'\]"),
        ({"a": {}}, {"a": {}}, r"sensitivity must be finite and non-negative.*: got \{\} at 'a'"),
        ({"a": {1: float("nan")}}, {"a": {1: 1.0}}, r"sensitivity must be finite and non-negative.*at 'a'"),
        ({"a": {1: 0.0}}, {"a": {1: -1.0}}, r"latency must be finite and non-negative.*: got \{1: -1.0\} at 'a'"),
        ({"a": {1: 0.0}}, {"a": {1: float("inf")}}, "latency must be finite and non-negative"),
    ],
)
def test_tables_that_do_not_fit(omegas, seconds, message):
    with pytest.raises(RuleError, match=message):
        solve(omegas, seconds, 10.0)


def test_a_solver_that_finds_nothing_is_an_error(monkeypatch):
    monkeypatch.setattr(pulp.LpProblem, "solve", lambda *_: pulp.LpStatusNotSolved)
    with pytest.raises(RuntimeError, match="was not solved: No Solution Found, 0 of 1 layers"):
        solve({"a": {1: 1.0}}, {"a": {1: 1.0}}, 1.0)


def test_a_solver_that_stops_early_is_an_error(monkeypatch):
    run = pulp.LpProblem.solve

    def stop(problem: pulp.LpProblem, solver: pulp.LpSolver) -> int:
        status = run(problem, solver)
        problem.sol_status = pulp.LpSolutionIntegerFeasible
        return status

    monkeypatch.setattr(pulp.LpProblem, "solve", stop)
    with pytest.raises(RuntimeError, match="was not solved: Solution Found, 1 of 1 layers"):
        solve({"a": {1: 1.0}}, {"a": {1: 1.0}}, 1.0)


def test_a_solver_that_exceeds_the_budget_is_an_error(monkeypatch):
    run = pulp.LpProblem.solve

    def overspend(problem: pulp.LpProblem, solver: pulp.LpSolver) -> int:
        status = run(problem, solver)
        for variable in problem.variables():
            variable.varValue = float(variable.name.endswith("_1"))
        return status

    monkeypatch.setattr(pulp.LpProblem, "solve", overspend)
    with pytest.raises(RuntimeError, match=r"exceeded the latency budget: 2\.0 of 1\.0"):
        solve({"a": {1: 0.0, 2: 1.0}}, {"a": {1: 2.0, 2: 1.0}}, 1.0)


def test_nothing_is_printed(capfd):
    solve({"a": {1: 1.0, 2: 2.0}}, {"a": {1: 1.0, 2: 0.5}}, 1.0)
    assert capfd.readouterr() == ("", "")


def test_solving_needs_no_torch():
    code = "import sys, privcirnet.blocksize_search.solve; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


ALL_SIZES = (1, 2, 4, 8, 16, 32)


def ruled(seed: int) -> tuple[Table, Table, float, Constraints]:
    """Up to six layers with all block sizes, and pins, equal layers and a cap at random; something obeys them."""
    chance = random.Random(seed)
    names = [f"l{i}" for i in range(chance.randint(2, 6))]
    sizes = {n: ALL_SIZES[: chance.randint(3, 6)] for n in names}
    omegas = {n: {b: (b - 1) * 10 ** chance.uniform(-3, 1) for b in sizes[n]} for n in names}
    seconds = {n: {b: chance.uniform(0.5, 1.5) / b for b in sizes[n]} for n in names}
    amounts = {n: {b: chance.uniform(1, 9) for b in sizes[n]} for n in names}
    shuffled = chance.sample(names, len(names))
    equal = [tuple(shuffled[:2])] if chance.random() < 0.6 else []
    pinned = {shuffled[-1]: chance.choice((2, 4))} if chance.random() < 0.5 else {}
    free = [s for s in assignments(omegas, Constraints(pinned, equal))]
    some = chance.choice(free)
    cap = math.fsum(amounts[n][b] for n, b in some.items())
    caps = [Cap("bytes", amounts, cap)] if chance.random() < 0.6 else []
    return omegas, seconds, math.fsum(seconds[n][b] for n, b in some.items()), Constraints(pinned, equal, caps)


def assignments(table: Table, constraints: Constraints):
    for sizes in itertools.product(*table.values()):
        found = dict(zip(table, sizes, strict=True))
        if all(found[n] == b for n, b in constraints.pinned.items()) and all(
            len({found[n] for n in group}) == 1 for group in constraints.equal
        ):
            yield found


def obeys(sizes: dict[str, int], seconds: Table, budget: float, constraints: Constraints) -> bool:
    limits = [(seconds, budget), *((cap.table, cap.limit) for cap in constraints.caps)]
    return all(math.fsum(t[n][b] for n, b in sizes.items()) <= limit * (1 + BUDGET_SLACK) for t, limit in limits)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(25))
def test_rules_match_exhaustive_search(seed, solver):
    if solver == "highs":
        pytest.importorskip("highspy")
    omegas, seconds, budget, constraints = ruled(seed)
    found = [a for a in assignments(omegas, constraints) if obeys(a, seconds, budget, constraints)]
    best = min(math.fsum(omegas[n][b] for n, b in a.items()) for a in found)
    solution = solve(omegas, seconds, budget, constraints, solver)
    assert solution.block_sizes in found
    assert solution.sensitivity == pytest.approx(best, rel=1e-12, abs=0)
    assert solution.sensitivity == math.fsum(omegas[n][b] for n, b in solution.block_sizes.items())
    assert solution.latency == math.fsum(seconds[n][b] for n, b in solution.block_sizes.items())
    assert list(solution.block_sizes) == list(omegas)
    assert (solution.status, solution.gap) == ("Optimal", 0.0)
    assert solution.seconds > 0


TWO = {"a": {1: 0.0, 2: 1.0}, "b": {1: 0.0, 2: 1.0, 4: 2.0}}


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(pinned={"c": 2}), "equal and pinned layers must be searched ones.*: got c"),
        (Constraints(equal=[("a", "b"), ("b",)]), "each in at most one group: got a layer in two groups"),
        (Constraints(pinned={"a": 4}), "must have a block size in common: got a: 4"),
        (Constraints(pinned={"a": 1, "b": 2}, equal=[("a", "b")]), r"in common: got a: 1; b: 2; pin to"),
        (
            Constraints(caps=[Cap("bytes", TWO, -1.0)]),
            "the cap on bytes must be at least .*: got -1; allow at least 0.0",
        ),
        (Constraints(caps=[Cap("bytes", {"a": {1: 1.0}}, 1.0)]), r"latency and bytes must list the same layers"),
    ],
)
def test_rules_that_cannot_be_obeyed(constraints, message):
    with pytest.raises(RuleError, match=message):
        solve(TWO, TWO, 10.0, constraints)


def test_a_budget_and_a_cap_that_exclude_each_other():
    rising = {"a": {1: 1.0, 2: 2.0}}
    falling = {"a": {1: 2.0, 2: 1.0}}
    message = "obey the budget and all caps together: got latency 1.5, bytes 1.5"
    with pytest.raises(RuleError, match=message):
        solve(rising, falling, 1.5, Constraints(caps=[Cap("bytes", rising, 1.5)]))


def test_unknown_solvers():
    with pytest.raises(RuleError, match="the solver must be known and installed: got gurobi"):
        solve(TWO, TWO, 10.0, solver="gurobi")


def best_with_pairs(omegas: Table, seconds: Table, budget: float, constraints: Constraints) -> float:
    """Least total sensitivity over all assignments, each with everything composed that saves seconds."""
    found = math.inf
    for choice in itertools.product(*omegas.values()):
        sizes = dict(zip(omegas, choice, strict=True))
        if any(len({sizes[name] for name in group}) > 1 for group in constraints.equal):
            continue
        taken = math.fsum(seconds[name][b] for name, b in sizes.items())
        for pair in constraints.pairs:
            b = sizes[pair.first]
            if b == sizes[pair.second] and b in pair.amounts["latency"]:
                taken += min(0.0, pair.gain("latency", seconds, b))
        if taken <= budget * (1 + BUDGET_SLACK):
            found = min(found, math.fsum(omegas[name][b] for name, b in sizes.items()))
    return found


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("seed", range(6))
def test_composed_layers_match_exhaustive_search(seed, solver):
    chance = random.Random(seed)
    names = "abcde"
    omegas = {n: {b: 10 ** chance.uniform(-2, 0) * (b - 1) for b in SIZES} for n in names}
    seconds = {n: {b: chance.uniform(0.5, 1.5) / b for b in SIZES} for n in names}
    amounts = [{b: chance.uniform(0.3, 2.2) / b for b in SIZES[: chance.randint(1, 4)]} for _ in range(2)]
    pairs = [Composable(*ab, {"latency": row}) for ab, row in zip((("a", "b"), ("d", "e")), amounts, strict=True)]
    constraints = Constraints(pairs=pairs, equal=[("b", "c")] if seed % 3 == 0 else ())
    for budget in (1.2, 2.0, 50.0):
        solution = solve(omegas, seconds, budget, constraints, solver)
        expected = best_with_pairs(omegas, seconds, budget, constraints)
        assert solution.sensitivity == pytest.approx(expected, rel=1e-12, abs=0)
        sizes = solution.block_sizes
        paying = [p for p in pairs if sizes[p.first] == sizes[p.second] and sizes[p.first] in p.amounts["latency"]]
        paying = [p for p in paying if p.gain("latency", seconds, sizes[p.first]) < 0]
        assert solution.composed == tuple(p.second for p in paying)
        gained = math.fsum(p.gain("latency", seconds, sizes[p.first]) for p in paying)
        assert solution.latency == pytest.approx(math.fsum(seconds[n][b] for n, b in sizes.items()) + gained)
        assert solution.latency <= budget * (1 + BUDGET_SLACK)


def test_the_fastest_assignment_may_be_a_composed_one():
    """The budget's own check, the sweep's range and the solver agree on it; under a cap it may be out of reach."""
    omegas = {name: {1: 0.0, 2: 1.0} for name in "ab"}
    seconds = {name: {1: 4.0, 2: 3.0} for name in "ab"}
    pair = Composable("a", "b", {"latency": {1: 5.0, 2: 7.0}, "traffic": {1: 9.0, 2: 9.0}})
    constraints = Constraints(pairs=[pair])
    assert latency_range(seconds, constraints) == (5.0, 8.0)
    found = solve(omegas, seconds, 5.0, constraints)
    assert (found.block_sizes, found.composed, found.latency) == ({"a": 1, "b": 1}, ("b",), 5.0)
    with pytest.raises(RuleError, match=r"the fastest assignment's: got 4\.9 s; allow at least 5\.0 s"):
        solve(omegas, seconds, 4.9, constraints)
    traffic = {name: {1: 4.0, 2: 2.0} for name in "ab"}
    capped = Constraints(pairs=[pair], caps=[Cap("traffic", traffic, 8.0)])
    assert solve(omegas, seconds, 8.0, capped).composed == ()
    with pytest.raises(RuleError, match="budget and all caps together"):
        solve(omegas, seconds, 5.5, capped)
