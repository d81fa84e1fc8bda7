"""One block size for each layer: the least loss within a latency budget.

An integer linear programme over binaries x[layer, b]::

    minimise    sum of sensitivity[layer, b] x[layer, b]
    subject to  sum of latency[layer, b] x[layer, b] <= budget,      sum over b of x[layer, b] = 1 for each layer

Solvers work with absolute tolerances near 1e-6, while sensitivities span many orders of magnitude. So only what exceeds
each layer's least sensitivity is minimised, in units of its own optimum: the programme is solved again, without the
options that alone cost more than the last solution, until the unit and the solution agree within a factor of two.

Cost: tens of milliseconds for a hundred layers; the number of layers times block sizes is the number of binaries.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 3. Departure: options of a layer that are no better than
another in either respect are left out first, so that no latency is spent for nothing.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pulp

from privcirnet.errors import RuleError

Table = Mapping[str, Mapping[int, float]]

BUDGET_SLACK = 1e-9
"""What latency may exceed the budget by, relative: above the rounding of sums, below any measurement."""

_OBJECTIVE_UNIT = 1e4
_BUDGET_UNIT = 1e4
_SOLVER_OPTIONS = ["integerTolerance 1e-9", "primalTolerance 1e-9", "preprocess off"]
"""Binaries exact beyond the budget's slack. CBC's integer preprocessing works with looser tolerances of its own: with
it, budgets that an assignment misses by 1e-7 were answered with "infeasible" or with a worse assignment."""


@dataclass(frozen=True)
class Solution:
    """An assignment of block sizes.

    Attributes:
        block_sizes: Block size for each layer name.
        sensitivity: Sum of the layers' sensitivities.
        latency: Sum of the layers' latencies, seconds.
        status: The solver's status, "Optimal".
    """

    block_sizes: dict[str, int]
    sensitivity: float
    latency: float
    status: str


def solve(sensitivity: Table, latency: Table, budget: float) -> Solution:
    """Choose block sizes of least total sensitivity within a latency budget (PrivCirNet, Equation 3).

    Args:
        sensitivity: Omega by layer name and block size.
        latency: Seconds by layer name and block size, for the same layers and block sizes.
        budget: Seconds for the whole network.

    Returns:
        The optimal assignment.

    Raises:
        RuleError: The tables are empty, differ in their keys or hold numbers that are not finite and non-negative, or
            the budget is less than the fastest assignment takes.
        RuntimeError: The solver failed.

    >>> omega = {"a": {1: 0.0, 2: 3.0}, "b": {1: 0.0, 2: 1.0}}
    >>> seconds = {"a": {1: 2.0, 2: 1.0}, "b": {1: 2.0, 2: 1.0}}
    >>> solve(omega, seconds, budget=3.0)
    Solution(block_sizes={'a': 1, 'b': 2}, sensitivity=1.0, latency=3.0, status='Optimal')
    """
    _check_tables(sensitivity, latency)
    fastest = math.fsum(min(times.values()) for times in latency.values())
    if not budget * (1 + BUDGET_SLACK) >= fastest:
        raise RuleError(
            "latency budget must be at least the fastest assignment's",
            got=f"{budget:g} s",
            remedy=f"allow at least {fastest!r} s",
        )
    excess = {name: _useful(omegas, latency[name]) for name, omegas in sensitivity.items()}
    unit = max(max(options.values()) for options in excess.values())
    while True:
        sizes, status = _minimise(excess, latency, budget, unit or 1.0)
        value = math.fsum(excess[name][b] for name, b in sizes.items())
        if value >= unit / 2 or value == 0:
            break
        excess = {name: {b: x for b, x in options.items() if x <= value} for name, options in excess.items()}
        unit = value
    return Solution(sizes, _total(sensitivity, sizes), _total(latency, sizes), status)


def uniform_latency(latency: Table, b: int) -> float:
    """Return the latency of the network with one block size everywhere, the usual budget of a search.

    Args:
        latency: Seconds by layer name and block size.
        b: Block size; a layer that does not admit it takes its largest admissible one below.

    Returns:
        Seconds.

    Raises:
        RuleError: A layer has no block size up to b.

    >>> uniform_latency({"a": {1: 8.0, 2: 4.0, 4: 2.0}, "b": {1: 1.0, 2: 0.5}}, b=4)
    2.5
    """
    sizes: dict[str, int] = {}
    for name, times in latency.items():
        admissible = [size for size in times if size <= b]
        if not admissible:
            raise RuleError(
                "a layer must admit a block size up to the uniform one",
                got=f"{b} for {name!r} with {sorted(times)}",
                remedy=f"use at least {min(times, default=1)}",
            )
        sizes[name] = max(admissible)
    return _total(latency, sizes)


def _total(table: Table, sizes: Mapping[str, int]) -> float:
    return math.fsum(table[name][b] for name, b in sizes.items())


def _check_tables(sensitivity: Table, latency: Table) -> None:
    if not sensitivity or {name: set(row) for name, row in sensitivity.items()} != {
        name: set(row) for name, row in latency.items()
    }:
        different = [
            name
            for name in {**sensitivity, **latency}
            if sensitivity.get(name, {}).keys() != latency.get(name, {}).keys()
        ]
        raise RuleError(
            "sensitivity and latency must list the same layers and block sizes, at least one",
            got=f"differences at {different}" if different else "no layers",
            remedy="build both tables from the same model",
        )
    for title, table in (("sensitivity", sensitivity), ("latency", latency)):
        for name, row in table.items():
            if not row or not all(math.isfinite(value) and value >= 0 for value in row.values()):
                raise RuleError(
                    f"{title} must be finite and non-negative, for at least one block size",
                    got=f"{dict(row)} at {name!r}",
                    remedy="measure the layer again",
                )


def _useful(omegas: Mapping[int, float], times: Mapping[int, float]) -> dict[int, float]:
    """Return the options that no other beats, as what they exceed the layer's least sensitivity by."""
    ranked = sorted(omegas, key=lambda b: (omegas[b], times[b]))
    least = omegas[ranked[0]]
    kept: dict[int, float] = {}
    fastest = math.inf
    for b in ranked:
        if times[b] < fastest:
            kept[b], fastest = omegas[b] - least, times[b]
    return kept


def _minimise(
    excess: Mapping[str, Mapping[int, float]], latency: Table, budget: float, unit: float
) -> tuple[dict[str, int], str]:
    """Solve the programme with the objective in units of `unit` and the latency in units of the budget."""
    problem = pulp.LpProblem("block_sizes", pulp.LpMinimize)
    chosen = {
        (name, b): problem.add_variable(f"x_{index}_{b}", cat=pulp.LpBinary)
        for index, (name, options) in enumerate(excess.items())
        for b in options
    }
    problem += pulp.lpSum(_OBJECTIVE_UNIT / unit * excess[name][b] * x for (name, b), x in chosen.items())
    scale = _BUDGET_UNIT / budget if budget > 0 else 0.0
    allowed = scale * budget * (1 + BUDGET_SLACK / 2)  # an assignment that takes exactly the budget is clearly within
    problem += pulp.lpSum(scale * latency[name][b] * x for (name, b), x in chosen.items()) <= allowed
    for name, options in excess.items():
        problem += pulp.lpSum(chosen[name, b] for b in options) == 1
    solver = pulp.COIN_CMD(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, gapRel=0, options=_SOLVER_OPTIONS)
    status = pulp.LpStatus[problem.solve(solver)]
    sizes = {name: b for (name, b), x in chosen.items() if (x.value() or 0.0) > 0.5}
    if problem.sol_status != pulp.LpSolutionOptimal or len(sizes) != len(excess):
        outcome = pulp.LpSolution[problem.sol_status]
        raise RuntimeError(f"the integer programme was not solved: {outcome}, {len(sizes)} of {len(excess)} layers")
    if (taken := _total(latency, sizes)) > budget * (1 + BUDGET_SLACK):
        raise RuntimeError(f"the solver exceeded the latency budget: {taken!r} s of {budget!r} s")
    return sizes, status
