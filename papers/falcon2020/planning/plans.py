"""The plans by name, and the fastest one for a network."""

from collections.abc import Callable

from papers.falcon2020.circuits.plain_moduli import LeveledParameters
from papers.falcon2020.planning.batch import batch_plan
from papers.falcon2020.planning.exact_network import ExactNetwork
from papers.falcon2020.planning.lola import lola_plan
from papers.falcon2020.planning.maps import maps_plan
from papers.falcon2020.planning.packed import packed_plan
from papers.falcon2020.planning.parameters import plan_for
from papers.falcon2020.planning.periodic import periodic_plan
from papers.falcon2020.planning.plan import Plan
from privcirnet.errors import DoesNotFit, RuleError

Planner = Callable[[ExactNetwork, int], Plan]
PLANS: dict[str, Planner] = {
    "periodic": periodic_plan,
    "packed": packed_plan,
    "maps": maps_plan,
    "lola": lola_plan,
    "batch": batch_plan,
}
"""Network, n -> plan. "batch" is for many images at once."""
SQUARE = 4
"""Rotations that take as long as a square and its relinearisation."""
OWN = ("packed", "periodic", "maps", "lola")
"""Those that are tried if none is asked for, from the fastest as measured (papers/falcon2020.md)."""


def planner_of(name: str) -> Planner:
    """Return a planner; ``name``: of :data:`PLANS`."""
    if name not in PLANS:
        raise RuleError("the plan must be a known one", got=repr(name)[:80], remedy=f"use one of {', '.join(PLANS)}")
    return PLANS[name]


def fastest(
    network: ExactNetwork, names: tuple[str, ...] = OWN, engine: str = "kernel"
) -> tuple[str, Plan, LeveledParameters]:
    """Return the first plan that is for a network: its name, the plan and its parameters."""
    refused: list[RuleError] = []
    for name in names:
        try:
            return name, *plan_for(network, planner_of(name), engine)
        except RuleError as error:
            refused.append(error)
    raise next((error for error in refused if isinstance(error, DoesNotFit)), refused[-1])
