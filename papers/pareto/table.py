"""The table and the picture of a comparison, from whatever is complete."""

import csv
import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from papers.pareto.accuracy_over_latency import trade_off
from papers.pareto.cells import CELL, SUMMARY
from papers.pareto.config import METHODS
from papers.pareto.paid import PAID
from papers.pareto.prepare import Prepared, read
from privcirnet.artifact.records import read_json, write_text

TITLES = {
    "dense": "dense (Bolt, NeuJeans)",
    "uniform": "uniform",
    "weights": "integer program on weight errors",
    "loss_aware": "loss-aware integer program",
    "kfac": "integer program on K-FAC errors",
    "energy": "integer program on energies",
    "searched": "searched: the best of them by the score",
    "pruning": "structured pruning (SpENCNN-style)",
}
KINDS = {"server": "seconds of the server", "all": "seconds in all: server, client, network"}
PAPER = "4.2 (MobileNetV2, ImageNet), 4.1 (ResNet-18, Tiny ImageNet), 12 (ViT, Tiny ImageNet)"
"""PrivCirNet's margins over SpENCNN at equal latency, points of top-1 (abstract and Section 1)."""
COLUMNS: tuple[str, ...] = (
    "budget_on",
    "b",
    "method",
    "top1",
    "spread",
    "seeds",
    "start",
    "chosen",
    "server_s",
    "all_s",
    "budget_s",
    *PAID,
    "bytes",
    "sparsity",
    "run",
    "problem",
)


@dataclass(frozen=True)
class Row:
    """A cell as one kind of seconds sees it.

    Attributes:
        kind: of seconds, a key of :data:`KINDS`.
        tops: percent of the held-out images, of each seed whose run is complete.
        start: percent before training; None while no run is complete.
    """

    facts: Mapping[str, Any]
    kind: str
    tops: Sequence[float]
    start: float | None = None

    @property
    def top1(self) -> float | None:
        """Their mean; None while there is none."""
        return statistics.fmean(self.tops) if self.tops else None

    @property
    def spread(self) -> float:
        """Points between the best and the worst seed."""
        return max(self.tops) - min(self.tops) if self.tops else 0.0

    @property
    def seconds(self) -> float:
        """Predicted, of its kind."""
        return self.facts[f"{self.kind}_s"]


def draw(out: Path) -> str:
    """Write pareto.md, pareto.csv and pareto.png from whatever is complete.

    Returns:
        The table as Markdown.

    Raises:
        RuleError: nothing was prepared there.
    """
    prepared, rows = read(out), collect(out)
    text = markdown(prepared, rows)
    write_text(out / "pareto.md", text)
    write_text(out / "pareto.csv", table(rows))
    done = [row for row in rows if row.tops]
    panels = {
        title: {
            TITLES[method]: [
                (row.seconds, row.top1 or 0.0, row.spread / 2)
                for row in done
                if (row.kind, row.facts["method"]) == (kind, method)
            ]
            for method in METHODS
        }
        for kind, title in KINDS.items()
    }
    if done:
        trade_off(out / "pareto.png", panels, prepared.top1, prepared.model)
    return text


def collect(out: Path) -> list[Row]:
    """Return every cell that has a plan, in order of method and budget.

    Both kinds see what has no kind of its own. A kind without budgets of its own sees the cells of the other.
    """
    found: list[Row] = []
    cells = [read_json(path, "a cell", "remove its folder") for path in sorted((out / "cells").glob(f"*/{CELL}"))]
    budgeted = {facts["budget_on"] for facts in cells}
    for facts in cells:
        complete = sorted((out / "runs" / facts["run"]).glob(f"*/{SUMMARY}")) if facts["run"] else []
        summaries = [read_json(summary, "a run", "remove its folder") for summary in complete]
        tops, start = [each["top1"] for each in summaries], next((each["top1_before"] for each in summaries), None)
        own = facts["budget_on"]
        found += [Row(facts, kind, tops, start) for kind in KINDS if own in ("", kind) or kind not in budgeted]
    return sorted(found, key=lambda row: (METHODS.index(row.facts["method"]), row.facts["b"]))


def table(rows: Sequence[Row]) -> str:
    """Return the cells as CSV.

    Args:
        rows: from :func:`collect`.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n", extrasaction="ignore", restval="")
    writer.writeheader()
    for row in rows:
        tops = {"top1": f"{row.top1:.2f}", "spread": f"{row.spread:.2f}", "seeds": len(row.tops)} if row.tops else {}
        tops |= {} if row.start is None else {"start": f"{row.start:.2f}"}
        writer.writerow({**row.facts, "budget_on": row.kind, **tops})
    return text.getvalue()


def markdown(prepared: Prepared, rows: Sequence[Row]) -> str:
    """Return one table for each kind of seconds, with the margins of the searched plans, and one of what users pay.

    Args:
        prepared: what all cells share.
        rows: from :func:`collect`.
    """
    complete, several = len({row.facts["run"] for row in rows if row.tops}), max(len(row.tops) for row in rows) > 1
    head = (
        f"{prepared.model}, dense {prepared.top1:.2f} %: top-1 before -> after training "
        f"(predicted seconds of the linear layers, at n = {prepared.profile.ring_degree}). "
        f"{complete} of {len({row.facts['run'] for row in rows if row.facts['run']})} plans are trained."
        f"{' Behind +- half of what the seeds lie apart.' if several else ''}"
    )
    shown = {row.kind for row in rows if row.facts["method"] != "dense"}
    parts = [head, *(_section(kind, [row for row in rows if row.kind == kind]) for kind in KINDS if kind in shown)]
    note = f"PrivCirNet's margins over SpENCNN at equal latency, in points: {PAPER}."
    return "\n\n".join([*parts, _as_paid(rows), note]) + "\n"


def _as_paid(rows: Sequence[Row]) -> str:
    """What an image takes in all, however its user runs it; pruned layers run in no program."""
    first = {row.facts["run"]: row for row in reversed(rows) if row.facts.get("aespa_s")}
    lines = [
        "**seconds an image, client, server and network, predicted: all layers, at the n that each program needs**",
        "",
        f"| plan | {' | '.join(PAID.values())} |",
        "|---" * (len(PAID) + 1) + "|",
    ]
    for row in reversed(first.values()):
        name = f"{TITLES[row.facts['method']]}, b = {row.facts['b']}"
        lines.append(f"| {name} | {' | '.join(f'{row.facts[key]:.3g}' for key in PAID)} |")
    return "\n".join(lines)


def _section(kind: str, rows: Sequence[Row]) -> str:
    methods = [method for method in METHODS if method != "dense"]
    by_cell = {(row.facts["method"], row.facts["b"]): row for row in rows}
    columns = [*(TITLES[method] for method in methods), "over uniform", "over pruning"]
    others = [KINDS[row.facts["budget_on"]] for row in rows if row.facts["budget_on"] not in ("", kind)]
    lines = [
        f"**{KINDS[kind]}**{f' (budgets are of {others[0]})' if others else ''}",
        "",
        f"| budget, as uniform | {' | '.join(columns)} |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for b in sorted({row.facts["b"] for row in rows if row.facts["method"] != "dense"}):
        found = {method: by_cell.get((method, b)) for method in methods}
        cells = [_cell(row) for row in found.values()]
        ours = found["searched"] or found["loss_aware"]
        margins = [_margin(ours, found[other]) for other in ("uniform", "pruning")]
        lines.append(f"| b = {b} | {' | '.join([*cells, *margins])} |")
    if dense := by_cell.get(("dense", 1)):
        lines += ["", f"{TITLES['dense']}, fine-tuned alike: {_cell(dense)}."]
    return "\n".join(lines)


def _cell(row: Row | None) -> str:
    if row is None:
        return "-"
    if row.facts["problem"]:
        return "out of reach"
    apart = f" +- {row.spread / 2:.2f}" if len(row.tops) > 1 else ""
    start = "" if row.start is None else f"{row.start:.2f} -> "
    return f"{'-' if row.top1 is None else f'{start}{row.top1:.2f}{apart} %'} ({row.seconds:.3g} s)"


def _margin(ours: Row | None, theirs: Row | None) -> str:
    if ours is None or theirs is None or ours.top1 is None or theirs.top1 is None:
        return "-"
    return f"{ours.top1 - theirs.top1:+.2f}"
