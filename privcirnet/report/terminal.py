"""The short form of the report: two tables and the path of the long form."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from privcirnet.artifact.summaries import Inference, LayerRow
from privcirnet.report import quantities
from privcirnet.report.runs import LadderStep, Runs, ladder_steps, total


def print_tables(runs: Runs, console: Console) -> None:
    """Print the accuracy ladder, the cost of each layer, and one closing line with the path of the page."""
    whole, some = ladder_steps(runs)
    console.print(ladder_table([*whole, *some]))
    infer, exact = runs.infer, "" if runs.export.leveled else ", up to the truncation unit"
    table = (level_table if runs.export.ckks else layer_table)(infer.layers)
    if infer.rehearsal:
        table.title = "Layers of a rehearsal, NOTHING WAS ENCRYPTED, one image"
    console.print(table)
    near = f"{infer.logits_equal} of {infer.images} images have the integer network's logits{exact}"
    if infer.logits_bits is not None:
        near = f"The logits of {infer.images} images are right to {infer.logits_bits:.1f} bits of the largest one"
    console.print(
        f"{near}; {quantities.seconds(infer.seconds_per_image)} and {quantities.size(infer.bytes_per_image)} an image. "
        f"{_prepared(infer)}Report: {runs.page_path}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def _prepared(infer: Inference) -> str:
    """What was done before the images."""
    online, before = infer.online, infer.preparation
    if online is None:
        return ""
    first = f"after {quantities.seconds(before.seconds_per_image)} of preparation each" if before else "prepared before"
    return (
        f"{infer.prepared} images took {quantities.seconds(online.seconds_per_image)} and "
        f"{quantities.size(online.bytes_per_image)}, {first}. "
    )


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


def layer_table(layers: list[LayerRow]) -> Table:
    """Return the cost of each layer for one image, with the totals in the last row; narrow enough for 80 columns."""
    table = Table(title="Encrypted layers, one image", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    for heading in ("b", "HE-Rot", "HE-Pmult", "ct up+down", "bytes", "predicted", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in layers:
        table.add_row(*map(Text, _row(layer)), end_section=layer is layers[-1])
    table.add_row(*map(Text, _row(total(layers))), style="bold")
    return table


def level_table(layers: list[LayerRow]) -> Table:
    """Return the cost of each layer on bootstrapped CKKS, with the levels and bits that are left behind it."""
    table = Table(title="Encrypted layers, one image", title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer", overflow="fold")
    for heading in ("level", "bits", "HE-Rot", "HE-Pmult", "predicted", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    for layer in [*layers, total(layers)]:
        last = layer.name == "total"
        cells = (
            layer.name,
            "" if layer.level is None else quantities.count(layer.level),
            "" if layer.precision_bits is None else f"{layer.precision_bits:.1f}",
            quantities.count(layer.rotations),
            quantities.count(layer.pmults),
            quantities.seconds(layer.seconds_predicted),
            quantities.seconds(layer.seconds),
        )
        table.add_row(*map(Text, cells), style="bold" if last else None, end_section=layer is layers[-1])
    return table


def _row(layer: LayerRow) -> tuple[str, ...]:
    count = quantities.count
    sent = [size for size in (layer.bytes_up, layer.bytes_down) if size is not None]
    return (
        layer.name,
        "" if layer.block_size is None else count(layer.block_size),
        count(layer.rotations),
        count(layer.pmults),
        f"{count(layer.ciphertexts_up)}+{count(layer.ciphertexts_down)}",
        quantities.size(sum(sent) if sent else None),
        quantities.seconds(layer.seconds_predicted),
        quantities.seconds(layer.seconds),
    )
