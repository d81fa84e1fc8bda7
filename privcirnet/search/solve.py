"""One block size for each layer: the least loss within a latency budget.

An integer linear programme over binaries x[layer, b]::

    minimise    sum of sensitivity[layer, b] x[layer, b]
    subject to  sum of latency[layer, b] x[layer, b] <= budget,      sum over b of x[layer, b] = 1 for each layer
                and the same with other tables under their caps (bytes, memory)

Layers that must have equal block sizes are one layer here, with the sums of their numbers; a pinned layer has one
option.

Solvers work with absolute tolerances near 1e-6, while sensitivities span many orders of magnitude. So only what exceeds
each layer's least sensitivity is minimised, in units of its own optimum: the programme is solved again, without the
options that alone cost more than the last solution, until the unit and the solution agree within a factor of two.

Cost: tens of milliseconds for a hundred layers; the number of layers times block sizes is the number of binaries.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 3. Departure: options of a layer that are no better than
another in either respect are left out first, so that no latency is spent for nothing.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulp

from privcirnet.errors import RuleError

Table = Mapping[str, Mapping[int, float]]

BUDGET_SLACK = 1e-9
"""What latency may exceed the budget by, relative: above the rounding of sums, below any measurement."""

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


@dataclass(frozen=True)
class Solution:
    """An assignment of block sizes.

    Attributes:
        block_sizes: Block size for each layer name.
        sensitivity: Sum of the layers' sensitivities.
        latency: Sum of the layers' latencies, seconds.
        status: The solver's status, "Optimal".
        gap: What the sensitivity may exceed the optimum's by, relative, as the solver proved; 0 for the optimum.
        seconds: Time taken.
    """

    block_sizes: dict[str, int]
    sensitivity: float
    latency: float
    status: str
    gap: float = field(default=0.0, repr=False)
    seconds: float = field(default=0.0, repr=False, compare=False)


@dataclass(frozen=True)
class Cap:
    """A limit besides latency.

    Attributes:
        name: What is limited, for messages.
        table: Its amount by layer name and block size, for the same layers and block sizes.
        limit: For the sum over the network.
    """

    name: str
    table: Table
    limit: float


@dataclass(frozen=True)
class Rules:
    """What an assignment must obey besides the budget.

    Attributes:
        pinned: Block size by name, of layers that have no choice.
        equal: Groups of names whose layers must have the same block size; no layer in two of them.
        caps: Limits on other amounts.
    """

    pinned: Mapping[str, int] = field(default_factory=dict[str, int])
    equal: Sequence[Sequence[str]] = ()
    caps: Sequence[Cap] = ()


FREE = Rules()


def solve(sensitivity: Table, latency: Table, budget: float, rules: Rules = FREE, solver: str = "cbc") -> Solution:
    """Choose block sizes of least total sensitivity within a latency budget (PrivCirNet, Equation 3).

    Args:
        sensitivity: Omega by layer name and block size.
        latency: Seconds by layer name and block size, for the same layers and block sizes.
        budget: Seconds for the whole network.
        rules: What else it must obey.
        solver: "cbc", which comes with PuLP, or "highs", if highspy is installed.

    Returns:
        The optimal assignment.

    Raises:
        RuleError: The tables are empty, differ in their keys or hold numbers that are not finite and non-negative, the
            rules contradict them, or no assignment obeys the budget and the rules.
        RuntimeError: The solver failed.

    >>> omega = {"a": {1: 0.0, 2: 3.0}, "b": {1: 0.0, 2: 1.0}}
    >>> seconds = {"a": {1: 2.0, 2: 1.0}, "b": {1: 2.0, 2: 1.0}}
    >>> solve(omega, seconds, budget=3.0)
    Solution(block_sizes={'a': 1, 'b': 2}, sensitivity=1.0, latency=3.0, status='Optimal')
    >>> solve(omega, seconds, budget=3.0, rules=Rules(equal=[("a", "b")])).block_sizes
    {'a': 2, 'b': 2}
    """
    started = time.perf_counter()
    _check_tables("sensitivity", sensitivity, "latency", latency)
    for cap in rules.caps:
        _check_tables("latency", latency, cap.name, cap.table)
    groups = _groups(latency, rules)
    limits = [Cap("latency", latency, budget), *rules.caps]
    joint = [Cap(cap.name, _joined(cap.table, groups), cap.limit) for cap in limits]
    for cap in joint:
        _check_reachable(cap)
    omegas = _joined(sensitivity, groups)
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


def uniform_sizes(latency: Table, b: int) -> dict[str, int]:
    """Return one block size everywhere, the usual reference of a search.

    Args:
        latency: Anything by layer name and block size.
        b: Block size; a layer that does not admit it takes its largest admissible one below.

    Raises:
        RuleError: A layer has no block size up to b.

    >>> uniform_sizes({"a": {1: 8.0, 2: 4.0, 4: 2.0}, "b": {1: 1.0, 2: 0.5}}, b=4)
    {'a': 4, 'b': 2}
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
    return sizes


def uniform_latency(latency: Table, b: int) -> float:
    """Return the latency of :func:`uniform_sizes`, the usual budget of a search, in seconds.

    >>> uniform_latency({"a": {1: 8.0, 2: 4.0, 4: 2.0}, "b": {1: 1.0, 2: 0.5}}, b=4)
    2.5
    """
    return total(latency, uniform_sizes(latency, b))


def reach(latency: Table, rules: Rules = FREE) -> tuple[float, float]:
    """Return the latencies of the fastest and the slowest assignment that obey pins and equalities, in seconds."""
    rows = _joined(latency, _groups(latency, rules)).values()
    return math.fsum(min(row.values()) for row in rows), math.fsum(max(row.values()) for row in rows)


def total(table: Table, sizes: Mapping[str, int]) -> float:
    """Return the amount of an assignment: the sum of its entries in a table."""
    return math.fsum(table[name][b] for name, b in sizes.items())


def _check_tables(first_title: str, first: Table, title: str, table: Table) -> None:
    if not first or {name: set(row) for name, row in first.items()} != {name: set(row) for name, row in table.items()}:
        names = {**first, **table}
        different = [name for name in names if first.get(name, {}).keys() != table.get(name, {}).keys()]
        raise RuleError(
            f"{first_title} and {title} must list the same layers and block sizes, at least one",
            got=f"differences at {different}" if different else "no layers",
            remedy="build both tables from the same model",
        )
    for kind, rows in ((first_title, first), (title, table)):
        for name, row in rows.items():
            if not row or not all(math.isfinite(value) and value >= 0 for value in row.values()):
                raise RuleError(
                    f"{kind} must be finite and non-negative, for at least one block size",
                    got=f"{dict(row)} at {name!r}",
                    remedy="measure the layer again",
                )


def _groups(latency: Table, rules: Rules) -> dict[str, tuple[tuple[str, ...], tuple[int, ...]]]:
    """Layers that are decided together, by the first's name: all their names and the block sizes to choose from."""
    wanted = [name for group in rules.equal for name in group]
    unknown = [name for name in (*wanted, *rules.pinned) if name not in latency]
    if unknown or len(set(wanted)) < len(wanted):
        raise RuleError(
            "equal and pinned layers must be searched ones, each in at most one group",
            got=", ".join(unknown) or "a layer in two groups",
            remedy=f"use some of {', '.join(latency)}",
        )
    groups: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {}
    for names in [tuple(group) for group in rules.equal if group] + [(n,) for n in latency if n not in wanted]:
        allowed = [{rules.pinned[n]} & set(latency[n]) if n in rules.pinned else set(latency[n]) for n in names]
        sizes = sorted(set.intersection(*allowed))
        if not sizes:
            asked = [f"{n}: {rules.pinned.get(n) or sorted(latency[n])}" for n in names]
            remedy = "pin to a block size that each of them admits"
            raise RuleError("layers must have a block size in common", got="; ".join(asked), remedy=remedy)
        groups[names[0]] = names, tuple(sizes)
    return groups


def _joined(table: Table, groups: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]]) -> Table:
    """The table of groups: sums over their layers."""
    return {
        first: {b: math.fsum(table[name][b] for name in names) for b in sizes}
        for first, (names, sizes) in groups.items()
    }


def _check_reachable(cap: Cap) -> None:
    least = math.fsum(min(amounts.values()) for amounts in cap.table.values())
    if cap.limit * (1 + BUDGET_SLACK) >= least:
        return
    rule, unit = f"the cap on {cap.name} must be at least the least assignment's", ""
    if cap.name == "latency":
        rule, unit = "latency budget must be at least the fastest assignment's", " s"
    raise RuleError(rule, got=f"{cap.limit:g}{unit}", remedy=f"allow at least {least!r}{unit}")


def _useful(omegas: Mapping[int, float], amounts: Sequence[Mapping[int, float]]) -> dict[int, float]:
    """Return the options that no other beats in every respect, as what they exceed the layer's least sensitivity by."""
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
    """Solve the programme with the objective in units of `unit` and every amount in units of its limit."""
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
