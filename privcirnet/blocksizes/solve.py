"""The integer linear program of a search: one block size for each layer, for the least loss within a latency budget.

With binaries x[layer, b]::

    minimise    sum of sensitivity[layer, b] x[layer, b]
    subject to  sum of latency[layer, b] x[layer, b] <= budget,      sum over b of x[layer, b] = 1 for each layer
                and the same with other tables under their caps (bytes, memory)

Layers that must have equal block sizes are one layer here, with the sums of their numbers; a pinned layer has one
option (:mod:`privcirnet.blocksizes.assignment`).

Solvers work with absolute tolerances near 1e-6, while sensitivities span many orders of magnitude. Two things avoid a
loss of precision. Only the excess over each layer's least sensitivity is minimised. And the objective is scaled by its
own optimum: the program is solved again, without the options that alone cost more than the last solution, until the
scale and the solution agree within a factor of two.

Cost: tens of milliseconds for a hundred layers; the number of layers times block sizes is the number of binaries.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 3. Departure: options of a layer that are no better than
another in any respect are left out first, so that no latency is spent for nothing.
"""

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pulp

from privcirnet.blocksizes.assignment import FREE, Cap, Rules, Solution, Table, check_tables, groups_of, joined, total
from privcirnet.errors import RuleError

BUDGET_SLACK = 1e-9
"""Relative excess of latency over the budget that is tolerated: above the rounding of sums, below any measurement."""

SOLVERS = ("cbc", "highs")
_OBJECTIVE_UNIT = 1e4
_BUDGET_UNIT = 1e4
_CBC_OPTIONS = ["integerTolerance 1e-9", "primalTolerance 1e-9", "preprocess off"]
_HIGHS_OPTIONS: dict[str, Any] = {
    "mip_feasibility_tolerance": 1e-10,
    "primal_feasibility_tolerance": 1e-10,
    "mip_abs_gap": 0.0,
}
"""Binaries exact beyond the budget's slack. CBC's integer preprocessing works with looser tolerances of its own: with
it, budgets that an assignment misses by 1e-7 were answered with "infeasible" or with a worse assignment."""


def solve(sensitivity: Table, latency: Table, budget: float, rules: Rules = FREE, solver: str = "cbc") -> Solution:
    """Choose block sizes of least total sensitivity within a latency budget (PrivCirNet, Equation 3).

    Args:
        sensitivity: Omega by layer name and block size.
        latency: Seconds by layer name and block size, for the same layers and block sizes.
        budget: Seconds for the whole network.
        rules: Further rules that the assignment must obey.
        solver: "cbc", which comes with PuLP, or "highs", if highspy is installed.

    Returns:
        The optimal assignment.

    Raises:
        RuleError: The tables are empty, differ in their keys or hold numbers that are not finite and non-negative, the
            rules contradict them, no assignment obeys the budget and the rules, or the solver is not installed.
        RuntimeError: The solver failed.

    >>> omega = {"a": {1: 0.0, 2: 3.0}, "b": {1: 0.0, 2: 1.0}}
    >>> seconds = {"a": {1: 2.0, 2: 1.0}, "b": {1: 2.0, 2: 1.0}}
    >>> solve(omega, seconds, budget=3.0)
    Solution(block_sizes={'a': 1, 'b': 2}, sensitivity=1.0, latency=3.0, status='Optimal')
    >>> solve(omega, seconds, budget=3.0, rules=Rules(equal=[("a", "b")])).block_sizes
    {'a': 2, 'b': 2}
    """
    started = time.perf_counter()
    check_tables("sensitivity", sensitivity, "latency", latency)
    for cap in rules.caps:
        check_tables("latency", latency, cap.name, cap.table)
    groups = groups_of(latency, rules)
    limits = [Cap("latency", latency, budget), *rules.caps]
    joint = [Cap(cap.name, joined(cap.table, groups), cap.limit) for cap in limits]
    for cap in joint:
        _check_reachable(cap)
    omegas = joined(sensitivity, groups)
    excess = {name: _useful(row, [cap.table[name] for cap in joint]) for name, row in omegas.items()}
    unit = max(max(options.values()) for options in excess.values())
    while True:
        chosen, status = _minimise(excess, joint, unit or 1.0, solver)
        value = math.fsum(excess[name][b] for name, b in chosen.items())
        if value >= unit / 2 or value == 0:
            break
        excess = {name: {b: x for b, x in options.items() if x <= value} for name, options in excess.items()}
        unit = value
    of_layer = {name: chosen[group] for group, (names, _) in groups.items() for name in names}
    sizes = {name: of_layer[name] for name in latency}
    taken = time.perf_counter() - started
    return Solution(sizes, total(sensitivity, sizes), total(latency, sizes), status, seconds=taken)


def _check_reachable(cap: Cap) -> None:
    least = math.fsum(min(amounts.values()) for amounts in cap.table.values())
    if cap.limit * (1 + BUDGET_SLACK) >= least:
        return
    rule, unit = f"the cap on {cap.name} must be at least the least assignment's", ""
    if cap.name == "latency":
        rule, unit = "latency budget must be at least the fastest assignment's", " s"
    raise RuleError(rule, got=f"{cap.limit:g}{unit}", remedy=f"allow at least {least!r}{unit}")


def _useful(omegas: Mapping[int, float], amounts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the options that no other beats in every respect, with their excess over the layer's least sensitivity."""
    ranked = sorted(omegas, key=lambda b: (omegas[b], *(amount[b] for amount in amounts)))
    least = omegas[ranked[0]]
    kept: dict[int, float] = {}
    for b in ranked:
        if not any(all(amount[other] <= amount[b] for amount in amounts) for other in kept):
            kept[b] = omegas[b] - least
    return kept


def _minimise(
    excess: Mapping[str, Mapping[int, float]], caps: Sequence[Cap], unit: float, solver: str
) -> tuple[dict[str, int], str]:
    """Solve the program with the objective in units of `unit` and every amount in units of its limit."""
    problem = pulp.LpProblem("block_sizes", pulp.LpMinimize)
    chosen = {
        (name, b): problem.add_variable(f"x_{index}_{b}", cat=pulp.LpBinary)
        for index, (name, options) in enumerate(excess.items())
        for b in options
    }
    problem += pulp.lpSum(_OBJECTIVE_UNIT / unit * excess[name][b] * x for (name, b), x in chosen.items())
    for cap in caps:
        scale = _BUDGET_UNIT / cap.limit if cap.limit > 0 else 0.0
        allowed = scale * cap.limit * (1 + BUDGET_SLACK / 2)  # an assignment of exactly the limit is clearly within
        problem += pulp.lpSum(scale * cap.table[name][b] * x for (name, b), x in chosen.items()) <= allowed
    for name, options in excess.items():
        problem += pulp.lpSum(chosen[name, b] for b in options) == 1
    try:
        status = pulp.LpStatus[problem.solve(_solver(solver))]
    except pulp.PulpSolverError:  # CBC aborts on some infeasible programmes when its preprocessing is off
        status = pulp.LpStatus[problem.solve(_cbc([]))]
        if status != "Infeasible":
            raise
    sizes = {name: b for (name, b), x in chosen.items() if (x.value() or 0.0) > 0.5}
    if status == "Infeasible" and len(caps) > 1:
        got = ", ".join(f"{cap.name} {cap.limit:g}" for cap in caps)
        remedy = "raise one of them, or pin fewer layers"
        raise RuleError("an assignment must obey the budget and all caps together", got=got, remedy=remedy)
    if problem.sol_status != pulp.LpSolutionOptimal or len(sizes) != len(excess):
        outcome = pulp.LpSolution[problem.sol_status]
        raise RuntimeError(f"the integer programme was not solved: {outcome}, {len(sizes)} of {len(excess)} layers")
    for cap in caps:
        if (taken := total(cap.table, sizes)) > cap.limit * (1 + BUDGET_SLACK):
            raise RuntimeError(f"the solver exceeded the {cap.name} budget: {taken!r} of {cap.limit!r}")
    return sizes, status


def _solver(name: str) -> pulp.LpSolver:
    if name == "cbc":
        return _cbc(_CBC_OPTIONS)
    solver = pulp.HiGHS(msg=False, gapRel=0, **_HIGHS_OPTIONS)
    if name not in SOLVERS or not solver.available():
        raise RuleError(
            "the solver must be known and installed", got=name, remedy="use cbc, or pip install privcirnet[highs]"
        )
    return solver


def _cbc(options: list[str]) -> pulp.LpSolver:
    return pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, gapRel=0, options=options)
