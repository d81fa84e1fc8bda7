"""The plans by name, and the cheapest one for a network."""

from collections.abc import Callable

from privcirnet.errors import DoesNotFit, RuleError
from privcirnet.he.leveled.batch import batch_plan
from privcirnet.he.leveled.circuit import Circuit
from privcirnet.he.leveled.falcon import falcon_plan
from privcirnet.he.leveled.lola import lola_plan
from privcirnet.he.leveled.moduli import LeveledParameters
from privcirnet.he.leveled.network import LeveledNetwork
from privcirnet.he.leveled.packed import packed_plan
from privcirnet.he.leveled.parameters import plan_for
from privcirnet.he.leveled.periodic import periodic_plan
from privcirnet.he.leveled.plan import Plan

Planner = Callable[[LeveledNetwork, int], Plan]
PLANS: dict[str, Planner] = {
    "periodic": periodic_plan,
    "packed": packed_plan,
    "falcon": falcon_plan,
    "lola": lola_plan,
    "batch": batch_plan,
}
"""Network, n -> plan. "batch" is for many images at once."""
SQUARE = 4
"""Rotations that take as long as a square and its relinearisation."""
OWN = ("packed", "periodic", "lola")
"""Those that compete if none is asked for: Falcon's takes more than ours wherever both fit."""


def planner_of(name: str) -> Planner:
    """Return a planner.

    Args:
        name: of :data:`PLANS`.

    Raises:
        RuleError: there is none of that name.
    """
    if name not in PLANS:
        raise RuleError("the plan must be a known one", got=repr(name)[:80], remedy=f"use one of {', '.join(PLANS)}")
    return PLANS[name]


def cheapest(
    network: LeveledNetwork, names: tuple[str, ...] = OWN, engine: str = "kernel"
) -> tuple[str, Plan, LeveledParameters]:
    """Return the name of the cheapest plan of a network, the plan and its parameters, by :func:`work`.

    Args:
        network: what is computed.
        names: of the plans that compete.
        engine: that it is for, see :func:`leveled.parameters.plan_for`.

    Raises:
        DoesNotFit: none of n = 8192, 16384, 32768 carries the network with any of the plans.
        RuleError: none of the plans is for such a network.
    """
    found: list[tuple[float, str, Plan, LeveledParameters]] = []
    refused: list[RuleError] = []
    for name in names:
        try:
            plan, parameters = plan_for(network, planner_of(name), engine)
        except RuleError as error:
            refused.append(error)
        else:
            found.append((work(plan.circuit, parameters), name, plan, parameters))
    if not found:
        raise next((error for error in refused if isinstance(error, DoesNotFit)), refused[-1])
    _, name, plan, parameters = min(found, key=lambda each: each[0])
    return name, plan, parameters


def work(circuit: Circuit, parameters: LeveledParameters) -> float:
    """Return the words that a circuit touches, for all plain moduli: what plans are compared by.

    A key switch reads a polynomial pair modulo every prime for each digit, a product and a sum a pair once.

    Args:
        circuit: of a network.
        parameters: for it.
    """
    counts, primes = circuit.counts, len(parameters.coefficient_bits)
    switches = (counts["rotate"] + SQUARE * counts["square"]) * 2 * primes * (primes - 1)
    return len(parameters.moduli) * parameters.ring_degree * (switches + 2 * primes * (counts["pmult"] + counts["add"]))
