"""Rows: the printed value, ours, and their ratio; ours is counted now, or measured now or before."""

import json
import os
import platform
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from papers.reproduce.cells import Cell, Table, Values
from papers.reproduce.counts import COUNTS
from papers.reproduce.seconds import SCRIPTS, SECONDS
from privcirnet.artifact.records import read_json, write_json
from privcirnet.he.system import threads
from privcirnet.runs.progress import ProgressBar, silent

STORED = Path(__file__).parent / "measured.json"
"""What was measured before, with the machine: key of a cell -> :class:`Measured`."""

SCALES = {"ms": 1e3, "KB": 1e3, "GB": 1e-3}
"""Unit of a printed value -> how many of it one of ours is: we have seconds and MB."""


UNMEASURED = "measured by python reproduce.py table=all images=IMAGES"
"""What fills a cell that nobody has measured yet."""


class Measured(NamedTuple):
    """What one function measured.

    Attributes:
        values: quantity -> value.
        machine: where.
    """

    values: Values
    machine: str


class Row(NamedTuple):
    """A printed value beside ours.

    Attributes:
        published: printed value; None where the text at hand has none.
        ours: our value; None for an empty cell.
        ratio: ours over the printed one; None where either is missing or the printed one is 0.
        note: why they differ, or what would fill the cell.
        source: where it is printed.
        machine: where ours was measured; "" for a count.
    """

    paper: str
    table: str
    row: str
    quantity: str
    unit: str
    published: float | None
    ours: float | None
    ratio: float | None
    note: str
    source: str
    machine: str


def stored() -> dict[str, Measured]:
    """Return what was measured before."""
    found = json.loads(STORED.read_text(encoding="utf-8")) if STORED.is_file() else {}
    return {key: Measured(each["values"], each["machine"]) for key, each in found.items()}


def store(path: Path, found: Mapping[str, Measured]) -> None:
    """Add measurements to a file of them, in the place of older ones.

    Args:
        path: of the file, which need not exist.
        found: by key of a cell.

    Raises:
        RuleError: the file holds something else.
    """
    known = read_json(path, "a file of measurements", "name another with store=") if path.is_file() else {}
    write_json(path, dict(sorted({**known, **{key: each._asdict() for key, each in found.items()}}.items())))


def measured_cells(tables: Iterable[Table]) -> dict[str, Cell]:
    """Return a cell for each measurement that tables need, by its key."""
    cells = (cell for table in tables for cell in table.cells)
    return {cell.key: cell for cell in cells if cell.by and cell.by not in COUNTS}


def measure(
    tables: Iterable[Table], images: str, keep: Path | None = None, bar: ProgressBar = silent
) -> dict[str, Measured]:
    """Return what is measured now, on this machine.

    Args:
        images: folder of the data sets' files; "" to leave out what needs images.
        keep: file that each measurement is added to when it is done; None for none.
        bar: advanced at each measurement.

    Raises:
        RuleError: images or networks are missing, or an encrypted result is wrong.
    """
    cells, found, here = measured_cells(tables), {}, machine()
    with bar("measuring", len(cells)) as advance:
        for key, cell in cells.items():
            if cell.by in SECONDS or (images and cell.by not in SCRIPTS):
                found[key] = Measured(_value(cell, images), here)
                if keep:
                    store(keep, {key: found[key]})
            advance(cell.row)
    return found


def _value(cell: Cell, images: str) -> Values:
    if cell.by in SECONDS:
        return SECONDS[cell.by](**(cell.arguments or {}))
    from papers.reproduce.trained import TRAINED

    return TRAINED[cell.by](images, **(cell.arguments or {}))


def machine() -> str:
    """Return this machine in words: processor, cores of this process, threads in use, and how busy it is."""
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    busy = f"load average {os.getloadavg()[0]:.0f}"
    return f"{next(names, platform.machine())}, cores: {cores}, threads: {threads.count()}, {busy}"


def rows(tables: Iterable[Table], measured: Mapping[str, Measured]) -> list[Row]:
    """Return a row for every cell, in order; counts are computed now.

    Args:
        measured: by key of a cell.

    Raises:
        RuleError: a measurement is missing.
    """
    counted: dict[str, Values] = {}
    return [_row(table, cell, counted, measured) for table in tables for cell in table.cells]


def _row(table: Table, cell: Cell, counted: dict[str, Values], measured: Mapping[str, Measured]) -> Row:
    ours, where = None, ""
    if cell.by in COUNTS:
        if cell.key not in counted:
            counted[cell.key] = COUNTS[cell.by](**(cell.arguments or {}))
        ours = counted[cell.key][cell.quantity]
    elif cell.by and cell.key in measured:
        ours, where = measured[cell.key].values[cell.quantity], measured[cell.key].machine
    if ours is not None:
        ours *= SCALES.get(cell.unit, 1)
    ratio = ours / cell.published if ours is not None and cell.published else None
    note = "; ".join(filter(None, (cell.note, table.note)))
    if ours is None:
        note = f"empty: {cell.empty or UNMEASURED}"
    about = (cell.row, cell.quantity, cell.unit, cell.published, ours, ratio, note, cell.source, where)
    return Row(table.paper, table.table, *about)
