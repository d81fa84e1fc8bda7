"""The rows as tables: for the terminal, and as the page papers/results.md."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from papers.reproduce.cells import Table
from papers.reproduce.rows import Row

_WHY = "why they differ"
_OPENING = """\
# The papers' tables, and ours

The printed tables of five papers, as far as they are at hand, beside what this project gives: the paper's value / ours
(ours over theirs). Made by

```bash
python reproduce.py table=quick page=papers/results.md                  # counts again, seconds and accuracies as stored
python reproduce.py table=all images=/images page=papers/results.md     # everything measured here; store=FILE keeps it
python reproduce.py table=privcirnet_table4                          # one table; privcirnet: all of that paper
```

Counts and bytes are computed exactly and depend on nothing but the code. Seconds are processor seconds of both parties,
as on one thread, on the machine named below each table, and those of the link; the papers' are of theirs, so their
ratio says more than either. Accuracies are those of [the committed networks](../checkpoints/README.md). A dash is a
value that the text at hand does not print, or that we do not have; the last column then says what would fill it.
`papers/reproduce/tables` has the data, one file for each table, and its name there is the one that
`table=` takes.
"""


def page(tables: Sequence[Table], rows: Sequence[Row], pictures: Sequence[str] = ()) -> str:
    """Return the page in Markdown.

    Args:
        tables: in order.
        rows: of all of them.
        pictures: names of tables that have a picture ``papers_<name>.png`` beside the page.
    """
    parts, left = [_OPENING], iter(rows)
    filled = sum(row.ours is not None for row in rows)
    parts.append(f"{len(rows)} cells, {filled} of them with a value of ours.\n")
    for paper, found in groupby(tables, key=lambda table: table.paper):
        parts.append(f"## {paper}\n")
        for table in found:
            picture = f"![{table.paper}, {table.table}](papers_{table.name}.png)\n" if table.name in pictures else ""
            parts += [_section(table, [next(left) for _ in table.cells]), *filter(None, [picture])]
    return "\n".join(parts)


def table_rows(table: Table, rows: Sequence[Row]) -> list[dict[str, str]]:
    """Return the rows of a table in words, a column for each heading; what is said of the whole table is left out.

    Args:
        rows: one for each cell.
    """
    found: list[dict[str, str]] = []
    before = ("", "")
    for cell, row in zip(table.cells, rows, strict=True):
        about = row.row, row.note if row.ours is None else cell.note
        name, why = ("", "") if about == before else about
        quantity = f"{row.quantity}, {row.unit}" if row.unit else row.quantity
        values = {"paper": _printed(row), "ours": number(row.ours), "ours / paper": _ratio(row)}
        found.append({"row": name, "quantity": quantity, **values, _WHY: why})
        before = about
    return found


def number(value: float | None) -> str:
    """Return a value of ours in words: whole, or with four digits.

    Args:
        value: None for a dash.

    >>> number(147456), number(0.84321), number(12345.6), number(None)
    ('147456', '0.8432', '12346', '-')
    """
    if value is None:
        return "-"
    return f"{value:.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.4g}"


def _section(table: Table, rows: Sequence[Row]) -> str:
    machines = sorted({row.machine for row in rows if row.machine})
    lines = [f"### {table.table}: {table.title}", "", f"`{table.name}`. The paper's setting: {table.setting}."]
    lines += [f"Measured here on: {'; '.join(machines)}."] if machines else []
    lines += [f"Why they differ: {table.note}."] if table.note else []
    cells = _by_row(table, rows)
    notes = {cell[_WHY] for cell in cells}
    if len(notes) == 1:  # one reason for all of them is said once
        note = notes.pop()
        filled = note.removeprefix("empty: ")
        said = "Why they differ" if filled == note else "What would fill the empty cells"
        lines += [f"{said}: {filled}."] if note else []
        cells = [{name: text for name, text in cell.items() if name != _WHY} for cell in cells]
    return "\n".join([*lines, "", *_markdown(cells), ""])


def _by_row(table: Table, rows: Sequence[Row]) -> list[dict[str, str]]:
    """A line for each row of the table, with a column for each quantity: printed / ours (ratio)."""
    quantities = dict.fromkeys(row.quantity + (f", {row.unit}" if row.unit else "") for row in rows)
    found: list[dict[str, str]] = []
    for name, group in groupby(zip(table.cells, rows, strict=True), key=lambda pair: pair[1].row):
        line, why = {"paper / ours (ratio)": name, **dict.fromkeys(quantities, "")}, dict[str, None]()
        for cell, row in group:
            ratio = "" if row.ratio is None else f" ({_ratio(row)})"
            quantity = row.quantity + (f", {row.unit}" if row.unit else "")
            line[quantity] = f"{_printed(row)} / {number(row.ours)}{ratio}"
            why |= {row.note if row.ours is None else cell.note: None}
        found.append({**line, _WHY: "; ".join(filter(None, why))})
    return found


def _ratio(row: Row) -> str:
    return "-" if row.ratio is None else f"{row.ratio:.3g}"


def _printed(row: Row) -> str:
    return "-" if row.published is None else f"{row.published:.10g}"


def _markdown(cells: Sequence[dict[str, str]]) -> Iterator[str]:
    for line in (list(cells[0]), ["---"] * len(cells[0]), *(list(cell.values()) for cell in cells)):
        yield f"| {' | '.join(line)} |"
