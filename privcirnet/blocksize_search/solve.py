"""The integer linear program of a search: one block size for each layer, for the least loss within a latency budget.

With binaries x[layer, b]::

    minimise    sum of sensitivity[layer, b] x[layer, b]
    subject to  sum of latency[layer, b] x[layer, b] <= budget,      sum over b of x[layer, b] = 1 for each layer
                and the same with other tables under their caps (bytes, memory)

Layers that must have equal block sizes are one layer here, with the sums of their numbers; a pinned layer has one
option (:mod:`privcirnet.blocksize_search.assignment`). Two layers that may be composed have a binary y for each block
size of both, y <= x[first, b] and y <= x[second, b], which adds the change by composing to every limited amount.

Solvers work with absolute tolerances near 1e-6, while sensitivities span many orders of magnitude. Two things avoid a
loss of precision. Only the excess over each layer's least sensitivity is minimised. And the objective is scaled by its
own optimum: the program is solved again, without the options that alone cost more than the last solution, until the
scale and the solution agree within a factor of two.

CBC, the solver that comes with PuLP, runs in a folder of its own: PuLP writes its files into the folder for temporary
ones, whose name CBC reads from a line that it takes apart at spaces and percent signs, and leaves them there if the
solver fails or is interrupted. :func:`sweep` solves for many budgets at once.

Cost: tens of milliseconds for a hundred layers; the number of layers times block sizes is the number of binaries.

Source: PrivCirNet (NeurIPS 2024), Section 3.3, Equation 3. Departure: options of a layer that are no better than
another in any respect are left out first, so that no latency is spent for nothing.
"""

import math
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pulp

from privcirnet.blocksize_search.assignment import (
    FREE,
    LATENCY,
    Cap,
    Composable,
    Constraints,
    Groups,
    Solution,
    Table,
    check_tables,
    groups_of,
    joined,
    latency_range,
    least,
    total,
    uniform_sizes,
)
from privcirnet.errors import RuleError

_PROGRAMME, _SOLUTION = "programme.mps", "solution.txt"
OTHER = "pip install privcirnet[highs] and use solver=highs"


class Cbc(pulp.COIN_CMD):
    """CBC with exact gaps and no output; options are as on its command line, without the first dash."""

    def __init__(self, options: list[str]) -> None:
        super().__init__(path=pulp.PULP_CBC_CMD.pulp_cbc_path, msg=False, gapRel=0, options=options)

    def actualSolve(self, lp: pulp.LpProblem, **settings: Any) -> int:
        """Return PuLP's number for the outcome of a programme.

        Raises:
            RuleError: no folder for temporary files can be written, or CBC cannot be started.
            PulpSolverError: CBC ended without an answer.
        """
        try:
            with TemporaryDirectory(prefix="privcirnet-") as folder:
                return self._solve_in(Path(folder), lp)
        except OSError as error:
            rule, remedy = "the solver's files must have room", "set TMPDIR to a folder that can be written"
            raise RuleError(rule, got=str(error), remedy=remedy) from None

    def _solve_in(self, folder: Path, lp: pulp.LpProblem) -> int:
        names = lp.writeMPS(str(folder / _PROGRAMME), rename=1)[:3]
        options = [word for option in [*self.options, *self.getOptions()] for word in f"-{option}".split()]
        line = [self.path, _PROGRAMME, *options, "-solve", "-printingOptions", "all", "-solution", _SOLUTION]
        try:
            done = subprocess.run(line, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        except OSError as error:
            got, remedy = f"{self.path}: {error.strerror}", f"pip install --force-reinstall pulp, or {OTHER}"
            raise RuleError("the solver must be a program of this machine", got=got, remedy=remedy) from None
        if done.returncode or not (folder / _SOLUTION).exists():
            message = " ".join(
                [f"CBC ended with status {done.returncode}", *done.stderr.decode(errors="replace").splitlines()[-1:]]
            )
            raise pulp.PulpSolverError(message)
        status, values, *_, solution_status = self.readsol_MPS(str(folder / _SOLUTION), lp, *names)
        lp.assignVarsVals(values)
        lp.assignStatus(status, solution_status)
        return status


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


def solve(
    sensitivity: Table,
    latency: Table,
    budget: float,
    constraints: Constraints = FREE,
    solver: str = "cbc",
    unit: str = "s",
) -> Solution:
    """Choose block sizes of least total sensitivity within a latency budget (PrivCirNet, Equation 3).

    Args:
        sensitivity: Omega by layer name and block size.
        latency: Seconds by layer name and block size, for the same layers and block sizes.
        budget: Seconds for the whole network.
        constraints: Further rules that the assignment must obey.
        solver: "cbc", which comes with PuLP, or "highs", if highspy is installed.
        unit: Unit of latency and budget, in words.

    Returns:
        The optimal assignment.

    Raises:
        RuleError: The tables are empty, differ in their keys or hold numbers that are not finite and non-negative, the
            constraints contradict them, no assignment obeys them and the budget, or the solver cannot run or fails.
        RuntimeError: The solver's answer is not the optimum, or exceeds a limit.

    >>> omega = {"a": {1: 0.0, 2: 3.0}, "b": {1: 0.0, 2: 1.0}}
    >>> seconds = {"a": {1: 2.0, 2: 1.0}, "b": {1: 2.0, 2: 1.0}}
    >>> solve(omega, seconds, budget=3.0)
    Solution(block_sizes={'a': 1, 'b': 2}, sensitivity=1.0, latency=3.0, status='Optimal')
    >>> solve(omega, seconds, budget=3.0, constraints=Constraints(equal=[("a", "b")])).block_sizes
    {'a': 2, 'b': 2}
    """
    started = time.perf_counter()
    check_tables("sensitivity", sensitivity, "latency", latency)
    for cap in constraints.caps:
        check_tables("latency", latency, cap.name, cap.table)
    groups = groups_of(latency, constraints)
    limits = [Cap(LATENCY, latency, budget), *constraints.caps]
    for cap in limits:
        _check_reachable(cap, least(cap.name, cap.table, groups, constraints.pairs), unit)
    joint = [Cap(cap.name, joined(cap.table, groups), cap.limit) for cap in limits]
    links = _links(constraints.pairs, limits, groups)
    omegas = joined(sensitivity, groups)
    excess = {name: _useful(row, _at_best(name, joint, links)) for name, row in omegas.items()}
    scale = max(max(options.values()) for options in excess.values())
    while True:
        choice, composed, status = _minimise(excess, joint, links, scale or 1.0, solver)
        value = math.fsum(excess[name][b] for name, b in choice.items())
        if value >= scale / 2 or value == 0:
            break
        excess = {name: {b: x for b, x in options.items() if x <= value} for name, options in excess.items()}
        scale = value
    of_layer = {name: choice[group] for group, (names, _) in groups.items() for name in names}
    sizes = {name: of_layer[name] for name in latency}
    composed = _paying(links, choice, joint, composed)
    seconds = _amount(joint[0], choice, composed, 0) if composed else total(latency, sizes)
    names = tuple(link.name for link in composed)
    elapsed = time.perf_counter() - started
    return Solution(sizes, total(sensitivity, sizes), seconds, status, seconds=elapsed, composed=names)


_Binary = pulp.LpVariable
_Binaries = Mapping[tuple[str, int], _Binary]
"""Binaries by group and block size: whether the group has that size."""
_Amounts = tuple[Mapping[int, float], Mapping[int, float]]
"""Limited amount by block size: as it is, and at its best, with everything composed that can be."""


class _Link(NamedTuple):
    """Two groups with a layer each that may be composed, and the changes of each limited amount by block size."""

    name: str
    groups: tuple[str, str]
    gains: Mapping[int, tuple[float, ...]]


def _links(pairs: Sequence[Composable], caps: Sequence[Cap], groups: Groups) -> list[_Link]:
    of_layer = {name: first for first, (names, _) in groups.items() for name in names}
    links: list[_Link] = []
    for pair in pairs:
        of_pair = of_layer[pair.first], of_layer[pair.second]
        sizes = [b for b in pair.amounts[LATENCY] if all(b in groups[group][1] for group in of_pair)]
        gains = {b: tuple(pair.gain(cap.name, cap.table, b) for cap in caps) for b in sizes}
        links.append(_Link(pair.second, of_pair, gains))
    return links


def _at_best(group: str, caps: Sequence[Cap], links: Sequence[_Link]) -> list[_Amounts]:
    """Return every amount of a group by block size, and its least with everything composed that can be."""
    gains = [link.gains for link in links if group in link.groups]
    return [
        (
            cap.table[group],
            {b: x + sum(min(0.0, g[b][i]) for g in gains if b in g) for b, x in cap.table[group].items()},
        )
        for i, cap in enumerate(caps)
    ]


def _paying(links: Sequence[_Link], choice: Mapping[str, int], caps: Sequence[Cap], solved: list[_Link]) -> list[_Link]:
    """Return the links that save latency with these block sizes; the solver's own if another amount forbids those."""
    alike = [link for link in links if (b := _shared(link, choice)) in link.gains and link.gains[b][0] < 0]
    fits = all(_amount(cap, choice, alike, i) <= cap.limit * (1 + BUDGET_SLACK) for i, cap in enumerate(caps))
    return alike if fits else solved


def _shared(link: _Link, choice: Mapping[str, int]) -> int:
    """Return the block size that both groups have, or 0."""
    first, second = (choice[group] for group in link.groups)
    return first if first == second else 0


def _amount(cap: Cap, choice: Mapping[str, int], composed: Sequence[_Link], index: int) -> float:
    """Return a limited amount with these layers composed; ``index`` is the cap's among all."""
    return math.fsum([total(cap.table, choice), *(link.gains[_shared(link, choice)][index] for link in composed)])


def _check_reachable(cap: Cap, minimum: float, unit: str) -> None:
    if cap.limit * (1 + BUDGET_SLACK) >= minimum:
        return
    rule, of = f"the cap on {cap.name} must be at least the least assignment's", ""
    if cap.name == LATENCY:
        rule, of = "latency budget must be at least the fastest assignment's", f" {unit}"
    raise RuleError(rule, got=f"{cap.limit:g}{of}", remedy=f"allow at least {minimum!r}{of}")


def _useful(omegas: Mapping[int, float], amounts: Sequence[_Amounts]) -> dict[int, float]:
    """Return the options that no other beats in every respect, with their excess over the layer's least sensitivity.

    An option beats another only if its amounts, as they are, are no larger than the other's at their best.
    """
    ranked = sorted(omegas, key=lambda b: (omegas[b], *(amount[b] for amount, _ in amounts)))
    lowest = omegas[ranked[0]]
    undominated: dict[int, float] = {}
    for b in ranked:
        if not any(all(amount[rival] <= best[b] for amount, best in amounts) for rival in undominated):
            undominated[b] = omegas[b] - lowest
    return undominated


def _minimise(
    excess: Mapping[str, Mapping[int, float]], caps: Sequence[Cap], links: Sequence[_Link], unit: float, solver: str
) -> tuple[dict[str, int], list[_Link], str]:
    """Solve the program with the objective in units of `unit` and every amount in units of its limit."""
    problem = pulp.LpProblem("block_sizes", pulp.LpMinimize)
    binaries = {
        (name, b): problem.add_variable(f"x_{index}_{b}", cat=pulp.LpBinary)
        for index, (name, options) in enumerate(excess.items())
        for b in options
    }
    problem += pulp.lpSum(_OBJECTIVE_UNIT / unit * excess[name][b] * x for (name, b), x in binaries.items())
    composed_binaries = _together(problem, links, binaries)
    for index, cap in enumerate(caps):
        scale = _BUDGET_UNIT / cap.limit if cap.limit > 0 else 0.0
        allowed = scale * cap.limit * (1 + BUDGET_SLACK / 2)  # an assignment of exactly the limit is clearly within
        separate = [scale * cap.table[name][b] * x for (name, b), x in binaries.items()]
        gained = [scale * links[i].gains[b][index] * y for (i, b), y in composed_binaries.items()]
        problem += pulp.lpSum(separate + gained) <= allowed
    for name, options in excess.items():
        problem += pulp.lpSum(binaries[name, b] for b in options) == 1
    status = _status(problem, solver)
    sizes = {name: b for (name, b), x in binaries.items() if (x.value() or 0.0) > 0.5}
    composed = [links[i] for (i, _), y in composed_binaries.items() if (y.value() or 0.0) > 0.5]
    if status == "Infeasible" and (len(caps) > 1 or links):
        got = ", ".join(f"{cap.name} {cap.limit:g}" for cap in caps)
        remedy = "raise one of them, or pin fewer layers"
        raise RuleError("an assignment must obey the budget and all caps together", got=got, remedy=remedy)
    if problem.sol_status != pulp.LpSolutionOptimal or len(sizes) != len(excess):
        outcome = pulp.LpSolution[problem.sol_status]
        raise RuntimeError(f"the integer programme was not solved: {outcome}, {len(sizes)} of {len(excess)} layers")
    for index, cap in enumerate(caps):
        if (amount := _amount(cap, sizes, composed, index)) > cap.limit * (1 + BUDGET_SLACK):
            raise RuntimeError(f"the solver exceeded the {cap.name} budget: {amount!r} of {cap.limit!r}")
    return sizes, composed, status


def _together(problem: pulp.LpProblem, links: Sequence[_Link], binaries: _Binaries) -> dict[tuple[int, int], _Binary]:
    """Return the binaries of composed layers, by number of the link and block size, tied to those of both groups."""
    composed = {
        (i, b): problem.add_variable(f"y_{i}_{b}", cat=pulp.LpBinary)
        for i, link in enumerate(links)
        for b in link.gains
        if all((group, b) in binaries for group in link.groups)
    }
    for (i, b), y in composed.items():
        for group in dict.fromkeys(links[i].groups):
            problem += y <= binaries[group, b]
    return composed


def _status(problem: pulp.LpProblem, solver: str) -> str:
    """Solve a programme; return its outcome."""
    try:
        return pulp.LpStatus[problem.solve(_solver(solver))]
    except pulp.PulpSolverError as error:
        failure = str(error)
    with suppress(pulp.PulpSolverError):  # CBC aborts on some infeasible programmes when its preprocessing is off
        if problem.solve(Cbc([])) == pulp.LpStatusInfeasible:
            return pulp.LpStatus[pulp.LpStatusInfeasible]
    raise RuleError(
        "the solver must end with an answer", got=failure, remedy=OTHER if solver == "cbc" else "use solver=cbc"
    )


def _solver(name: str) -> pulp.LpSolver:
    if name == "cbc":
        return Cbc(_CBC_OPTIONS)
    solver = pulp.HiGHS(msg=False, gapRel=0, **_HIGHS_OPTIONS)
    if name not in SOLVERS or not solver.available():
        raise RuleError("the solver must be known and installed", got=name, remedy=f"use cbc, or {OTHER}")
    return solver


@dataclass(frozen=True)
class Point:
    """An assignment on the plane of latency and loss.

    Attributes:
        block_sizes: block sizes by layer name.
        latency: seconds.
    """

    block_sizes: dict[str, int]
    latency: float
    sensitivity: float


def uniform_points(sensitivity: Table, latency: Table) -> dict[int, Point]:
    """Return the assignments with one block size everywhere, for every size that some layer admits.

    A layer that does not admit the size takes its largest admissible one below.

    Args:
        latency: seconds by layer name and block size.

    Returns:
        An assignment for each block size.

    Raises:
        RuleError: a layer has no block size up to one of them.
    """
    sizes = sorted({b for row in latency.values() for b in row if b > 0})  # activations stay
    return {b: _point(uniform_sizes(latency, b), sensitivity, latency) for b in sizes}


def sweep(
    sensitivity: Table, latency: Table, count: int, constraints: Constraints = FREE, solver: str = "cbc"
) -> list[tuple[float, Solution]]:
    """Solve for budgets from the fastest assignment's latency to the slowest's.

    Args:
        latency: seconds by layer name and block size.
        count: number of budgets, in equal ratios; equal assignments appear once, with their least budget.
        constraints: further rules; budgets that no assignment meets under the caps are left out.

    Returns:
        (budget in seconds, its optimal assignment), with rising budgets.

    Raises:
        RuleError: the tables or rules are unsuitable, see :func:`privcirnet.blocksize_search.solve.solve`.
    """
    fastest, slowest = latency_range(latency, constraints)
    budgets = np.geomspace(fastest, slowest, count) if fastest > 0 else np.linspace(fastest, slowest, count)
    solutions: list[tuple[float, Solution]] = []
    for budget in budgets.tolist():
        try:
            solution = solve(sensitivity, latency, budget, constraints, solver)
        except RuleError:
            if constraints.caps or constraints.pairs:
                continue
            raise
        last = solutions[-1][1] if solutions else None
        if last is None or (solution.block_sizes, solution.composed) != (last.block_sizes, last.composed):
            solutions.append((budget, solution))
    return solutions


def _point(sizes: Mapping[str, int], sensitivity: Table, latency: Table) -> Point:
    return Point(dict(sizes), total(latency, sizes), total(sensitivity, sizes))
