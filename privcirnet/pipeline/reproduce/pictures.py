"""Pictures of tables: printed values and ours as pairs of bars."""

from collections.abc import Sequence
from pathlib import Path

from privcirnet import plots
from privcirnet.pipeline.reproduce.cells import Table
from privcirnet.pipeline.reproduce.rows import Row


def draw(tables: Sequence[Table], rows: Sequence[Row], folder: Path) -> list[str]:
    """Draw the tables that have a picture, as ``papers_<name>.png``; values that are missing or 0 are left out.

    Args:
        tables: in order.
        rows: of all of them.
        folder: for the pictures.

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
            plots.beside(folder / f"papers_{table.name}.png", pairs, unit, title)
            drawn.append(table.name)
    return drawn


def _label(table: Table, row: Row) -> str:
    return row.row if len(table.picture) == 1 else f"{row.row}: {row.quantity}"
