"""Competing plans: each sensitivity's best one and one block size everywhere, until a score has chosen.

A sensitivity adds up layers as if each were changed alone. A score looks at the whole network
(:mod:`privcirnet.train.race`), as it starts or after a race. One block size everywhere is always among the plans,
so that by the score a search never loses to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from privcirnet.blocksize_search.assignment import FREE, LATENCY, Cap, Constraints, Solution, Table, groups_of, total
from privcirnet.blocksize_search.solve import BUDGET_SLACK

UNIFORM = "uniform"
Rules = tuple[Table, float, Constraints]
"""Latency, budget and constraints."""
_REFINED = ", refined"


@dataclass(frozen=True)
class Candidate:
    """A plan that competes.

    Attributes:
        name: sensitivity that proposes it, or :data:`UNIFORM`; with a mark if it was refined.
        score: score of the whole network as it starts, less is better; None if it has none.
        raced: score after some steps of training; None without a race.
    """

    name: str
    solution: Solution
    score: float | None = None
    raced: float | None = None

    @property
    def proposed_by(self) -> str:
        """Sensitivity that proposed it, or :data:`UNIFORM`."""
        return self.name.removesuffix(_REFINED)


def uniform_within(
    sensitivity: Table, latency: Table, budget: float, constraints: Constraints = FREE
) -> Solution | None:
    """Return the smallest block size everywhere that meets a budget; pinned layers and equal groups have their own.

    Args:
        sensitivity: table whose sum the solution has.
        latency: seconds by layer name and block size.

    Returns:
        None if no block size meets budget and caps.

    >>> seconds = {"a": {1: 4.0, 2: 2.0, 4: 1.0}, "b": {1: 2.0, 2: 1.0}}
    >>> uniform_within(seconds, seconds, budget=3.5).block_sizes
    {'a': 2, 'b': 2}
    """
    groups = groups_of(latency, constraints)
    for size in sorted({b for _, sizes in groups.values() for b in sizes}):
        of_group = {first: max([b for b in sizes if b <= size] or [min(sizes)]) for first, (_, sizes) in groups.items()}
        by_layer = {name: of_group[first] for first, (names, _) in groups.items() for name in names}
        sizes = {name: by_layer[name] for name in latency}
        if _meets(sizes, latency, budget, constraints):
            return Solution(sizes, total(sensitivity, sizes), total(latency, sizes), "Uniform")
    return None


def best(candidates: Sequence[Candidate]) -> Candidate:
    """Return the winner of the race, else the first candidate of least score, else the first."""
    raced = [(candidate.raced, index) for index, candidate in enumerate(candidates) if candidate.raced is not None]
    scored = [(candidate.score, index) for index, candidate in enumerate(candidates) if candidate.score is not None]
    return candidates[min(raced or scored or [(0.0, 0)])[1]]


def swaps(
    sizes: Mapping[str, int], sensitivity: Table, latency: Table, budget: float, constraints: Constraints = FREE
) -> Iterator[dict[str, int]]:
    """Yield plans that differ in one layer, or in one with larger and one with smaller blocks, the best first.

    Those that only enlarge blocks are left out. Layers of an equal group change together.

    Args:
        sizes: block sizes of a plan that meets the budget.
        sensitivity: table by which plans are ordered.
    """
    groups = groups_of(latency, constraints)
    moves = [
        (dict.fromkeys(names, to), to > sizes[first])
        for first, (names, options) in groups.items()
        for to in _neighbours(options, sizes[first])
    ]
    smaller = [move for move, larger in moves if not larger]
    changes = [
        *smaller,
        *(up | down for up, larger in moves if larger for down in smaller if up.keys().isdisjoint(down)),
    ]
    plans = [dict(sizes) | change for change in changes]
    yield from sorted(
        (plan for plan in plans if _meets(plan, latency, budget, constraints)),
        key=lambda plan: total(sensitivity, plan),
    )


def refined(
    candidate: Candidate,
    sensitivity: Table,
    rules: Rules,
    score: Callable[[Mapping[str, int]], float],
    more: Callable[[], bool],
) -> Candidate:
    """Return a candidate after a local search by :func:`swaps`, each of which has lowered the score.

    Args:
        sensitivity: table by which swaps are ordered.
        score: function that scores a plan; less is better.
        more: function that tells whether another plan may be scored.
    """
    scored = [candidate.solution.block_sizes]
    while True:
        assert candidate.score is not None
        sizes = candidate.solution.block_sizes
        for plan in swaps(sizes, sensitivity, *rules):
            if plan in scored:
                continue
            if not more():
                return candidate
            scored.append(plan)
            if (plan_score := score(plan)) < candidate.score:
                solution = Solution(plan, total(sensitivity, plan), total(rules[0], plan), "Refined")
                candidate = Candidate(candidate.proposed_by + _REFINED, solution, plan_score)
                break
        else:
            return candidate


def _neighbours(options: Sequence[int], size: int) -> list[int]:
    """Return the next smaller and the next larger option."""
    place = options.index(size)
    return [*options[max(place - 1, 0) : place], *options[place + 1 : place + 2]]


def _meets(sizes: Mapping[str, int], latency: Table, budget: float, constraints: Constraints) -> bool:
    limits = [Cap(LATENCY, latency, budget), *constraints.caps]
    return all(total(cap.table, sizes) <= cap.limit * (1 + BUDGET_SLACK) for cap in limits)
