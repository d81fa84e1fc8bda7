"""Pictures of tables: printed values and ours as pairs of bars."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from papers.reproduce.cells import Table
from papers.reproduce.rows import Row
from privcirnet.report.plots import save

_PAPER, _OURS, _WIDTH = "#9aa5b1", "#1c4587", 0.38


def draw(tables: Sequence[Table], rows: Sequence[Row], folder: Path) -> list[str]:
    """Draw the tables that have a picture, as ``papers_<name>.png``; values that are missing or 0 are left out.

    Args:
        tables: in order.
        rows: of all of them.

    Returns:
        names of the tables that were drawn.
    """
    left, drawn = iter(rows), list[str]()
    for table in tables:
        found = [next(left) for _ in table.cells]
        bars = {_label(table, row): (row.published, row.ours) for row in found if row.quantity in table.picture}
        pairs = {label: (paper, ours) for label, (paper, ours) in bars.items() if paper and ours}
        if pairs:
            unit = next(row.unit for row in found if row.quantity in table.picture) or "times"
            title = f"{table.paper}, {table.table}: {table.title}"
            _beside(folder / f"papers_{table.name}.png", pairs, unit, title)
            drawn.append(table.name)
    return drawn


def _label(table: Table, row: Row) -> str:
    return row.row if len(table.picture) == 1 else f"{row.row}: {row.quantity}"


def _beside(path: Path, bars: Mapping[str, tuple[float, float]], unit: str, title: str) -> None:
    """Printed values and ours, label -> (printed, ours), as pairs of bars on a logarithmic axis."""
    figure = Figure(figsize=(8.6, 1.4 + 0.42 * len(bars)), layout="constrained")
    axes = figure.subplots()
    for index, (name, color) in enumerate((("paper", _PAPER), ("ours", _OURS))):
        values = [pair[index] for pair in bars.values()]
        places = [place + (index - 0.5) * _WIDTH for place in range(len(bars))]
        drawn = axes.barh(places, values, _WIDTH, label=name, color=color)
        axes.bar_label(drawn, [f"{value:.3g}" for value in values], fontsize=7, padding=2)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter("")
    axes.margins(x=0.12)
    axes.set_yticks(range(len(bars)), list(bars), fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(f"{unit} (log)")
    figure.suptitle(title, fontsize=9)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, loc="lower right")
    save(figure, path)
