"""What a plan should be cheap under, and what was chosen: candidates side by side, as text."""

from collections.abc import Sequence
from dataclasses import dataclass

from privcirnet.errors import RuleError
from privcirnet.he.layers.layer import Layer
from privcirnet.he.planning.cost import Cost
from privcirnet.he.planning.latency import column_unit
from privcirnet.he.planning.profile import NetworkLink, Profile

SUMS = ("any", "encrypted", "shares")
"""Where sums of lanes may be done, see :class:`Goal`."""


@dataclass(frozen=True)
class Objective:
    """What a plan should be cheap under.

    Attributes:
        profile: seconds of operations at one (n, q).
        sums: of lanes: "any"; "encrypted" for plans without sums on shares; "shares" for plans without rotations.
        lengths: what every transform's length must divide, if it can; 0: those of tiles divide a number that a long t
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
    """What the planner found for a layer.

    Attributes:
        goal: under this.
        candidates: (predicted cost, layer) of the best plan for every tiling and number of lanes, cheapest first.
    """

    layer: Layer
    goal: Objective
    candidates: tuple[tuple[Cost, Layer], ...]

    def explain(self, most: int = 12) -> str:
        """Return the candidates side by side, cheapest first, and what sets them apart, as a table of text."""
        return table(self, most)


_PLAN = ("tile", "pieces", "lanes", "copies", "B", "sums")
_HEADINGS = ("encoding", *_PLAN, "HE-Rot", "HE-Pmult", "up", "down", "server", "total")


def table(choice: LayerChoice, most: int = 12) -> str:
    """A table of the cheapest candidates and a sentence on what decided.

    Returns:
        lines; the chosen candidate is the first row.
    """
    goal, (unlike, rest) = choice.goal, _unlike(choice.candidates, max(most, 2))
    shown, left_out = unlike[:most], rest + max(0, len(unlike) - most)
    shape, unit = choice.layer.shape, column_unit(goal.profile.counted)
    head = (
        f"{shape.kind} {shape.input_shape} -> {shape.output_shape}, kernel {shape.kernel}, stride {shape.stride}, "
        f"groups {shape.groups}, b = {choice.layer.block_size}, n = {choice.layer.ring_degree}; "
        f"profile {goal.profile.name}, server and total in {unit.name}, sums {goal.sums}"
    )
    rows = [_HEADINGS, *(_row(cost, layer, unit.scale) for cost, layer in shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    more = [f"... and {left_out} dearer candidates"] if left_out else []
    return "\n".join([head, *lines, *more, _reason(unlike)])


def _unlike(candidates: Sequence[tuple[Cost, Layer]], most: int) -> tuple[list[tuple[Cost, Layer]], int]:
    """(the cheapest that do not differ from a cheaper one in their tiles alone, how many were not looked at)."""
    found: dict[tuple[object, ...], tuple[Cost, Layer]] = {}
    for looked_at, (cost, layer) in enumerate(candidates):
        if len(found) == most:
            return list(found.values()), len(candidates) - looked_at
        counts = layer.rotations, layer.pmults, layer.ciphertexts_in, layer.ciphertexts_out
        found.setdefault((layer.encoding, *_plan_cells(layer)[1:], *counts), (cost, layer))
    return list(found.values()), 0


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
    """The choices of a layer under each heading, "-" where its encoding has no such choice."""
    return tuple(layer.choices.get(name, "-") for name in _PLAN)


def _reason(candidates: Sequence[tuple[Cost, Layer]]) -> str:
    """What the first candidate saves, or spends, against the next."""
    if len(candidates) < 2:
        return "the only candidate"
    (best, layer), (second, other) = candidates[:2]
    parts = {
        "HE-Rot": other.rotations - layer.rotations,
        "HE-Pmult": other.pmults - layer.pmults,
        "ciphertexts up": other.ciphertexts_in - layer.ciphertexts_in,
        "ciphertexts down": other.ciphertexts_out - layer.ciphertexts_out,
    }
    saved = ", ".join(f"{abs(n)} {'fewer' if n > 0 else 'more'} {name}" for name, n in parts.items() if n)
    share = 100 * (1 - best.total / second.total)
    return f"chosen over the next by {share:.1f} %: {saved or 'the same counts, cheaper transforms'}"
