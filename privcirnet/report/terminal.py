"""The short form of the report: two tables and the path of the long form."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privcirnet.artifact.summaries import AuditedInference, LayerRow
from privcirnet.report import quantities
from privcirnet.report.runs import LadderStep, Runs, ladder_steps, total


def print_tables(runs: Runs, console: Console) -> None:
    """Print the accuracy ladder, the cost of each layer, and one closing line with the path of the page."""
    whole, some = ladder_steps(runs)
    console.print(ladder_table([*whole, *some]))
    infer, audit = runs.infer, runs.infer.audit
    table = layer_table(infer.layers, audit.counted)
    if infer.rehearsal:
        table.title = "Layers of a rehearsal, NOTHING WAS ENCRYPTED, one image"
    console.print(table)
    if audit.mode == "ckks":
        near = f"The logits of {infer.images} images are right to {audit.logits_bits:.1f} bits of the largest one"
    else:
        unit = f", up to {audit.unit}" if audit.unit else ""
        near = f"{audit.logits_equal} of {infer.images} images have the integer network's logits{unit}"
    console.print(
        f"{near}; {quantities.seconds(infer.cost.seconds)} and {quantities.size(infer.cost.bytes)} an image. "
        f"{_prepared(infer)}Report: {runs.page_path}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _prepared(infer: AuditedInference) -> str:
    """Return both phases of an image, where there are two."""
    if (phases := infer.phases) is None:
        return ""
    online, before = phases.online, phases.offline
    first = f"after {quantities.seconds(before.seconds)} of preparation each" if before else "prepared before"
    whose = f"{phases.prepared} images" if phases.prepared else "Of that the online phase"
    return f"{whose} took {quantities.seconds(online.seconds)} and {quantities.size(online.bytes)}, {first}. "


def ladder_table(ladder: list[LadderStep]) -> Table:
    """Return the accuracy at each step as a table."""
    table = Table(
        "network", "on", title="Accuracy (top-1)", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0)
    )
    for heading in ("top-1", "parameters"):
        table.add_column(heading, justify="right")
    for step in ladder:
        cells = (
            step.name,
            step.images,
            quantities.percent(step.top1),
            "" if step.parameters is None else quantities.count(step.parameters),
        )
        table.add_row(*map(Text, cells))
    return table


def layer_table(layers: list[LayerRow], counted: bool = False) -> Table:
    """Return the cost of each layer for one image, with the totals in the last row; narrow enough for 80 columns.

    A column without figures is left out: levels are CKKS's, messages of layers those of shares.

    Args:
        counted: whether predictions are in the papers' units.
    """
    table = Table(title="Encrypted layers, one image", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    columns = _COLUMNS | {"predicted": lambda row: quantities.latency(row.seconds_predicted, counted)}
    filled = {heading: cell for heading, cell in columns.items() if any(re.search(r"\d", cell(row)) for row in layers)}
    for heading in filled:
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in [*layers, total(layers)]:
        cells = layer.name, *(cell(layer) for cell in filled.values())
        last = layer.name == "total"
        table.add_row(*map(Text, cells), style="bold" if last else None, end_section=layer is layers[-1])
    return table


def _sent(layer: LayerRow) -> int | None:
    sizes = [size for size in (layer.bytes_up, layer.bytes_down) if size is not None]
    return sum(sizes) if sizes else None


def _if(value: float | None, form: Callable[[Any], str]) -> str:
    return "" if value is None else form(value)


_count = quantities.count
_COLUMNS: dict[str, Callable[[LayerRow], str]] = {
    "b": lambda row: _if(row.block_size, _count),
    "level": lambda row: _if(row.level, _count),
    "bits": lambda row: _if(row.precision_bits, "{:.1f}".format),
    "HE-Rot": lambda row: _count(row.rotations),
    "HE-Pmult": lambda row: _count(row.pmults),
    "ct up+down": lambda row: f"{_count(row.ciphertexts_up)}+{_count(row.ciphertexts_down)}",
    "bytes": lambda row: quantities.size(_sent(row)),
    "predicted": lambda row: quantities.latency(row.seconds_predicted, False),
    "measured": lambda row: quantities.seconds(row.seconds),
}
"""Heading -> cell of a layer."""
