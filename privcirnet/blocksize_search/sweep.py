"""Solutions for many budgets at once, and the uniform assignments beside them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from privcirnet.blocksize_search.assignment import (
    FREE,
    Constraints,
    Solution,
    Table,
    latency_range,
    total,
    uniform_sizes,
)
from privcirnet.blocksize_search.solve import solve
from privcirnet.errors import RuleError


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
