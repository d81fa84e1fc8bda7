"""The printed tables and figures of five papers, beside ours. `python reproduce.py --help`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from papers.reproduce import cells, page, pictures, rows
from papers.reproduce.cells import Table
from papers.reproduce.rows import Row
from papers.reproduce.settings import ReproduceConfig
from privcirnet.artifact.records import write_json, write_text
from privcirnet.cli.console import progress_bar, show, show_rows, show_text
from privcirnet.cli.settings import script
from privcirnet.he.system import threads


@script(ReproduceConfig, "reproduce")
def main(config: ReproduceConfig) -> None:
    """Compute or measure what the chosen tables need; write summary.json, the page and its pictures."""
    threads.use(config.threads)
    chosen, measured = cells.select(config.table), rows.stored()
    if config.table != cells.QUICK:
        keep = Path(config.store) if config.store else None
        measured |= rows.measure(chosen, config.images, keep, progress_bar)
    every = rows.rows(chosen, measured)
    _show(chosen, every)
    folder = Path(config.page).parent
    drawn = pictures.draw(chosen, every, folder)
    write_text(Path(config.page), page.page(chosen, every, drawn))
    summary = {"stage": "reproduce", "table": config.table, "rows": [row._asdict() for row in every]}
    path = Path(config.out) / "summary.json"
    write_json(path, summary | {"config": asdict(config)})
    show("written", {"page": config.page, "figures": path, "pictures": f"{len(drawn)} in {folder}"})


def _show(tables: Sequence[Table], every: Sequence[Row]) -> None:
    left = iter(every)
    for table in tables:
        found = page.table_rows(table, [next(left) for _ in table.cells])
        wide = max(len(row["why they differ"]) for row in found)
        found = [row | {"why they differ": row["why they differ"].ljust(wide)} for row in found]
        show_rows(f"{table.paper}, {table.table}: {table.title}", found)
        if table.note:
            show_text(f"  {table.note}")
