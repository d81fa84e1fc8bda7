"""The search's part of the page: sensitivities as a heat map, the chosen block sizes and predicted latencies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from markupsafe import Markup

from privcirnet.artifact.summaries import Priced, Search
from privcirnet.he.planning.latency import column_unit
from privcirnet.report import pictures, quantities
from privcirnet.report.pictures import Bar, Heat


@dataclass(frozen=True)
class Cell:
    """A heat map cell; ``heat`` is None for a block size that the layer cannot have."""

    text: str
    heat: Heat | None
    chosen: bool


@dataclass(frozen=True)
class ChosenBlockSize:
    """A layer's chosen block size, or an activation's replacement, with its predicted latency now and before."""

    name: str
    block_size: int | str
    seconds: float | None
    dense: float | None
    bars: Markup


def facts(search: Search) -> dict[str, Any]:
    """Return the contents of the page's two sections on block sizes."""
    return {
        "heat_sizes": heat_sizes(search),
        "heat_rows": heat_rows(search),
        "heat_range": heat_range(search),
        "heat_ramps": (", ".join(pictures.HEAT_LIGHT), ", ".join(pictures.HEAT_DARK)),
        "choices": choices(search),
        "latency_chart": latency_chart(search),
        "latency_unit": column_unit(search.counted),
    }


def heat_sizes(search: Search) -> list[int]:
    """Return the columns of the heat map: every block size that was considered anywhere."""
    considered = {size for row in search.sensitivity.values() for size in row}
    return sorted({1} | considered | set(search.block_sizes.values()))


def heat_range(search: Search) -> tuple[float, float] | None:
    """Return the smallest and largest positive sensitivity; None where there is none."""
    positive = [v for row in search.sensitivity.values() for v in row.values() if v is not None and v > 0]
    return (min(positive), max(positive)) if positive else None


def heat_rows(search: Search) -> list[tuple[str, list[Cell]]]:
    """Return the rows of the heat map, by module name; block size 1 changes nothing, so its sensitivity is 0."""
    names = list(dict.fromkeys([*search.sensitivity, *search.block_sizes]))
    low, high = heat_range(search) or (1.0, 1.0)

    def cell(name: str, size: int) -> Cell:
        value = search.sensitivity.get(name, {}).get(size, 0.0 if size == 1 else None)
        colours = None if value is None else pictures.heat(pictures.log_fraction(value, low, high))
        return Cell(quantities.tiny(value), colours, search.block_sizes.get(name) == size)

    return [(name, [cell(name, size) for size in heat_sizes(search)]) for name in names]


def choices(search: Search) -> list[ChosenBlockSize]:
    """Return the chosen block sizes, and the replacements of activations, with the cost model's latencies."""
    times = {name: search.latency.get(name, {}) for name in search.block_sizes}
    rows: list[tuple[str, int | str, float | None, float | None]]
    rows = [(name, b, times[name].get(b), times[name].get(1)) for name, b in search.block_sizes.items()]
    for name, activation in search.activations.items():
        replaced, original = (activation.options.get(kind, Priced()).latency for kind in (activation.becomes, "own"))
        rows.append((name, activation.becomes, replaced, original))
    longest = max((t for row in times.values() for t in row.values() if t is not None), default=0.0)

    def bars(predicted: float | None, dense: float | None) -> Markup:
        return pictures.bar_strip([("dense", dense), ("predicted", predicted)], longest)

    return [ChosenBlockSize(*row, bars(*row[2:])) for row in rows]


def latency_chart(search: Search) -> Markup | None:
    """Return a chart of predicted latencies: the plan, one block size everywhere, and the budget; None if unknown."""
    times = {
        f"b = {size} everywhere": (uniform.latency_predicted_s, "uniform")
        for size, uniform in sorted(search.uniform.items())
    }
    times["the plan found"] = (search.latency_predicted_s, "predicted")
    in_words = partial(quantities.latency, counted=search.counted)
    bars = [Bar(label, s, in_words(s), style) for label, (s, style) in times.items() if s is not None]
    if not bars:
        return None
    budget = search.budget_s
    return pictures.bar_chart(
        bars,
        title="Predicted latency per image with one block size everywhere and with the plan; the text has the budget",
        axis=[(s, in_words(s)) for s in pictures.ticks(max([bar.value for bar in bars] + [budget or 0.0]))],
        marker=None if budget is None else (budget, f"budget {in_words(budget)}"),
    )
