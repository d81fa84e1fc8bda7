"""The printed cells: data files, one for each table or figure, and the choice of tables by name.

A file of tables/ is JSON: ``paper``, ``table``, ``title``, ``setting`` (machine and parameters of the paper),
``source``, ``units`` (quantity -> unit), ``note`` (why all of its rows differ), ``picture`` (the quantities that are
drawn) and ``rows``. A row has ``row`` (its name), ``cells`` (quantity -> printed value, null where the text at hand has
none), ``where`` (where in the source, if the row's name does not say it), ``note`` (why the two differ), and either
``ours`` (``by``, the name of a function, and its arguments) or ``empty`` (what would fill it).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from privcirnet.errors import RuleError

TABLES = Path(__file__).parent / "tables"
"""Folder of the data files; a file's stem is the table's name."""

PAPERS = ("privcirnet", "falcon2023", "ensei", "neujeans", "falcon2020")
"""First words of the names of tables."""

Values = dict[str, float]
"""Quantity -> value; latencies in seconds, traffic in MB, shares in percent."""

ALL, QUICK = "all", "quick"
"""Every table with everything measured here, and every table with what was measured before."""


@dataclass(frozen=True)
class Cell:
    """A printed value and what is to be held beside it.

    Attributes:
        quantity: what it is, as "HE-Pmult".
        unit: of the value; "" for a count.
        published: the value; None where the text at hand does not print it.
        by: name of the function that computes ours; "" for an empty cell.
    """

    row: str
    quantity: str
    unit: str
    published: float | None
    source: str
    note: str = ""
    by: str = ""
    arguments: Mapping[str, Any] | None = None
    empty: str = ""

    @property
    def key(self) -> str:
        """What ours is stored under: function and arguments, the same for all cells of one computation."""
        return json.dumps({"by": self.by, **(self.arguments or {})}, sort_keys=True)


@dataclass(frozen=True)
class Table:
    """A printed table or figure.

    Attributes:
        note: why all of its rows differ; "" if each has a reason of its own.
        picture: quantities that are drawn, one picture of them all; empty for none.
        cells: row by row.
    """

    name: str
    paper: str
    table: str
    title: str
    setting: str
    note: str
    picture: tuple[str, ...]
    cells: tuple[Cell, ...]


@cache
def tables() -> tuple[Table, ...]:
    """Return all tables: papers in the order of :data:`PAPERS`; of each first tables, then figures, then the rest."""
    return tuple(_table(path) for path in sorted(TABLES.glob("*.json"), key=_place))


def select(name: str) -> tuple[Table, ...]:
    """Return tables by name.

    Args:
        name: of a table, of all tables of a paper ("falcon2023"), "all" or "quick".

    Raises:
        RuleError: there is no such table.
    """
    if name in (ALL, QUICK):
        return tables()
    found = tuple(table for table in tables() if name in (table.name, table.name.split("_")[0]))
    if not found:
        known = ", ".join([ALL, QUICK, *(table.name for table in tables())])
        raise RuleError("the table must be a known one", got=repr(name), remedy=f"use one of {known}")
    return found


def _place(path: Path) -> tuple[int, int, str]:
    paper, name = path.stem.split("_")
    kinds = [name.startswith(kind) for kind in ("table", "figure", "")]
    return PAPERS.index(paper), kinds.index(True), name


def _table(path: Path) -> Table:
    found = json.loads(path.read_text(encoding="utf-8"))
    cells = (cell for row in found["rows"] for cell in _cells(row, found["source"], found.get("units", {})))
    paper, table, title, setting = (found[name] for name in ("paper", "table", "title", "setting"))
    picture = tuple(found.get("picture", ()))
    return Table(path.stem, paper, table, title, setting, found.get("note", ""), picture, tuple(cells))


def _cells(row: Mapping[str, Any], source: str, units: Mapping[str, str]) -> Iterator[Cell]:
    ours = dict(row.get("ours", {}))
    by = ours.pop("by", "")
    for quantity, published in row["cells"].items():
        place = ", ".join((source, *filter(None, [row.get("where", "")])))
        unit, note, empty = units.get(quantity, ""), row.get("note", ""), row.get("empty", "")
        yield Cell(row["row"], quantity, unit, published, place, note, by, ours, empty)
