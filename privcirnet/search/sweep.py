"""Many budgets at once: the least loss for each, and the uniform assignments beside them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.search.solve import FREE, Rules, Solution, Table, reach, solve, total, uniform_sizes


@dataclass(frozen=True)
class Point:
    """An assignment on the plane of latency and loss.

    Attributes:
        block_sizes: by layer name.
        latency: seconds.
        sensitivity: total Omega.
    """

    block_sizes: dict[str, int]
    latency: float
    sensitivity: float


def uniform_points(sensitivity: Table, latency: Table) -> dict[int, Point]:
    """One block size everywhere, as far as layers admit it, for every size that some layer admits."""
    sizes = sorted({b for row in latency.values() for b in row})
    return {b: _point(uniform_sizes(latency, b), sensitivity, latency) for b in sizes}


def sweep(
    sensitivity: Table, latency: Table, count: int, rules: Rules = FREE, solver: str = "cbc"
) -> list[tuple[float, Solution]]:
    """(budget, its optimal assignment) for budgets from the fastest assignment's latency to the slowest's.

    Args:
        sensitivity: see :func:`privcirnet.search.solve.solve`.
        latency: likewise.
        count: budgets, in equal ratios; equal assignments appear once, with their least budget.
        rules: likewise; budgets that no assignment meets under the caps are left out.
        solver: likewise.
    """
    fastest, slowest = reach(latency, rules)
    budgets = np.geomspace(fastest, slowest, count) if fastest > 0 else np.linspace(fastest, slowest, count)
    found: list[tuple[float, Solution]] = []
    for budget in budgets.tolist():
        try:
            solution = solve(sensitivity, latency, budget, rules, solver)
        except RuleError:
            if rules.caps:
                continue
            raise
        if not found or solution.block_sizes != found[-1][1].block_sizes:
            found.append((budget, solution))
    return found


def _point(sizes: Mapping[str, int], sensitivity: Table, latency: Table) -> Point:
    return Point(dict(sizes), total(latency, sizes), total(sensitivity, sizes))
