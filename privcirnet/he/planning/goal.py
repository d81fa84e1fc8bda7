"""The objective of a plan, and the choice: candidates side by side, as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.cost import Cost
from privcirnet.he.planning.profile import NetworkLink, Profile, column_unit

SUMS = ("any", "encrypted", "shares")
"""Places where sums of lanes may be done, see :class:`Objective`."""


@dataclass(frozen=True)
class Objective:
    """The objective of a plan.

    Attributes:
        profile: seconds of operations at one (n, q).
        sums: sums of lanes: "any"; "encrypted" for plans without sums on shares; "shares" for plans without rotations.
        lengths: number that every transform's length must divide, if it can; 0: those of tiles divide one that a long t
            carries.
    """

    profile: Profile
    link: NetworkLink
    sums: str = "any"
    lengths: int = 0

    def __post_init__(self) -> None:
        if self.sums not in SUMS:
            raise RuleError("sums must be of a known kind", got=repr(self.sums), remedy=f"use {', '.join(SUMS)}")


@dataclass(frozen=True)
class LayerChoice:
    """The planner's choice for a layer.

    Attributes:
        goal: objective of the choice.
        candidates: (predicted cost, layer) of the best plan for every tiling and number of lanes, cheapest first.
    """

    layer: Layer
    goal: Objective
    candidates: tuple[tuple[Cost, Layer], ...]

    def explain(self, limit: int = 12) -> str:
        """Return the candidates side by side, cheapest first, with their differences, as a table of text."""
        return table(self, limit)


_PLAN = ("tile", "pieces", "lanes", "copies", "B", "sums")
_HEADINGS = ("encoding", *_PLAN, "HE-Rot", "HE-Pmult", "up", "down", "server", "total")


def table(choice: LayerChoice, limit: int = 12) -> str:
    """Return a table of the cheapest candidates and a sentence on the deciding difference.

    Returns:
        lines; the chosen candidate is the first row.
    """
    goal, (unlike, rest) = choice.goal, _unlike(choice.candidates, max(limit, 2))
    printed, left_out = unlike[:limit], rest + max(0, len(unlike) - limit)
    shape, unit = choice.layer.shape, column_unit(goal.profile.counted)
    head = (
        f"{shape.kind} {shape.input_shape} -> {shape.output_shape}, kernel {shape.kernel}, stride {shape.stride}, "
        f"groups {shape.groups}, b = {choice.layer.block_size}, n = {choice.layer.ring_degree}; "
        f"profile {goal.profile.name}, server and total in {unit.name}, sums {goal.sums}"
    )
    rows = [_HEADINGS, *(_row(cost, layer, unit.scale) for cost, layer in printed)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    more = [f"... and {left_out} dearer candidates"] if left_out else []
    return "\n".join([head, *lines, *more, _reason(unlike)])


def _unlike(candidates: Sequence[tuple[Cost, Layer]], limit: int) -> tuple[list[tuple[Cost, Layer]], int]:
    """Return (the cheapest that do not differ from a cheaper one in their tiles alone, the number not looked at)."""
    cheapest: dict[tuple[object, ...], tuple[Cost, Layer]] = {}
    for looked_at, (cost, layer) in enumerate(candidates):
        if len(cheapest) == limit:
            return list(cheapest.values()), len(candidates) - looked_at
        counts = layer.rotations, layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out
        cheapest.setdefault((layer.encoding, *_plan_cells(layer)[1:], *counts), (cost, layer))
    return list(cheapest.values()), 0


def _row(cost: Cost, layer: Layer, scale: float) -> tuple[str, ...]:
    return (
        layer.encoding,
        *_plan_cells(layer),
        str(layer.rotations),
        str(layer.pmults),
        str(layer.ciphertexts_in),
        str(layer.ciphertexts_out),
        *(f"{scale * part:.1f}" for part in (cost.server, cost.total)),
    )


def _plan_cells(layer: Layer) -> tuple[str, ...]:
    """Return the choices of a layer under each heading, "-" where its encoding has no such choice."""
    return tuple(layer.choices.get(name, "-") for name in _PLAN)


def _reason(candidates: Sequence[tuple[Cost, Layer]]) -> str:
    """Return the savings of the first candidate against the next, or its excess."""
    if len(candidates) < 2:
        return "the only candidate"
    (best, layer), (second, runner_up) = candidates[:2]
    parts = {
        "HE-Rot": runner_up.rotations - layer.rotations,
        "HE-Pmult": runner_up.pmults - layer.pmults,
        "ciphertexts up": runner_up.ciphertexts_in - layer.ciphertexts_in,
        "ciphertexts down": runner_up.ciphertexts_out - layer.ciphertexts_out,
    }
    saved = ", ".join(f"{abs(n)} {'fewer' if n > 0 else 'more'} {name}" for name, n in parts.items() if n)
    share = 100 * (1 - best.total / second.total)
    return f"chosen over the next by {share:.1f} %: {saved or 'the same counts, cheaper transforms'}"
