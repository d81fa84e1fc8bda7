"""The report as one HTML file that needs nothing else: no script, no font, no picture from outside.

Here the runs become the rows that ``page.html`` shows; the template lays them out and escapes every text. Two parts
have charts: the search's block sizes, and the levels and precision of a network on bootstrapped CKKS.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privcirnet.artifact.summaries import AuditedInference, ExportSummary, LayerRow, Prediction, Search
from privcirnet.he.planning.profile import column_unit
from privcirnet.report import pictures, quantities
from privcirnet.report.pictures import Bar, Column, Heat
from privcirnet.report.runs import STAGES, LadderStep, Runs, ladder_steps, total


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
    seconds: float
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
    times = {name: search.latency[name] for name in search.block_sizes}
    rows: list[tuple[str, int | str, float, float | None]]
    rows = [(name, b, times[name][b], times[name].get(1)) for name, b in search.block_sizes.items()]
    for name, activation in search.activations.items():
        options, original = activation.options, activation.options.get("own")
        rows.append((name, activation.becomes, options[activation.becomes].latency, original and original.latency))
    longest = max((t for row in times.values() for t in row.values()), default=0.0)

    def bars(predicted: float, dense: float | None) -> Markup:
        return pictures.bar_strip([("dense", dense), ("predicted", predicted)], longest)

    return [ChosenBlockSize(*row, bars(*row[2:])) for row in rows]


def latency_chart(search: Search) -> Markup:
    """Return a chart of predicted latencies: the plan, one block size everywhere, and the budget."""
    times = {
        f"b = {size} everywhere": (uniform.latency_predicted_s, "uniform")
        for size, uniform in sorted(search.uniform.items())
    }
    times["the plan found"] = (search.latency_predicted_s, "predicted")
    in_words = partial(quantities.latency, counted=search.counted)
    bars, budget = [Bar(label, s, in_words(s), style) for label, (s, style) in times.items()], search.budget_s
    return pictures.bar_chart(
        bars,
        title="Predicted latency per image with one block size everywhere and with the plan; the text has the budget",
        axis=[(s, in_words(s)) for s in pictures.ticks(max(budget, *(bar.value for bar in bars)))],
        marker=(budget, f"budget {in_words(budget)}"),
    )


STYLES = {"convolution": "predicted", "linear": "predicted", "bootstrapping": "measured"}
"""Kind of a layer -> its class in the style sheet; others are pale."""
_LEAST_SHARE = 0.06
"""Least share of the width at which a group of layers has its name."""


def level_chart(layers: Sequence[LayerRow]) -> Markup | None:
    """Return a chart of the levels that are left behind each layer; None where the run does not say."""
    return _chart(
        layers, lambda layer: layer.level, "level", "Levels that are left behind each layer; the table has them"
    )


def precision_chart(layers: Sequence[LayerRow]) -> Markup | None:
    """Return a chart of the precision of every slot, in bits, behind each layer; None where the run does not say."""
    title = "Bits that are right behind each layer, by the simulator; the table has them"
    return _chart(layers, lambda layer: layer.precision_bits, "bits", title)


def _chart(
    layers: Sequence[LayerRow], value: Callable[[LayerRow], float | None], unit: str, title: str
) -> Markup | None:
    measured = [(layer, figure) for layer in layers if (figure := value(layer)) is not None]
    if not measured:
        return None
    columns = [
        Column(max(figure, 0.0), STYLES.get(layer.kind or "", "whole"), f"{layer.name}: {figure:.3g} {unit}")
        for layer, figure in measured
    ]
    top = pictures.ticks(max(column.value for column in columns))
    return pictures.column_chart(
        columns,
        title=title,
        axis=[(tick, f"{tick:g}") for tick in top],
        groups=_groups([layer for layer, _ in measured]),
    )


def _groups(layers: Sequence[LayerRow]) -> list[tuple[int, str]]:
    """Return the starts of groups of layers with one name before the first dot, for groups that are large enough."""
    groups, start = list[tuple[int, str]](), 0
    for name, some in groupby(layer.name.split(".")[0] for layer in layers):
        count = len([*some])
        if count > _LEAST_SHARE * len(layers):
            groups.append((start, name))
        start += count
    return groups


MOST_PICTURES = 96
"""Largest number of images shown; those that are wrong or disagree take precedence."""
MOST_LOGITS = 10
"""Number of logits shown for each image."""

CKKS = "None: values are approximate and rescaled under encryption, and each image takes one request and one answer."


@dataclass(frozen=True)
class Tile:
    """A big number: ``label`` is its name, ``note`` stands under it, ``alarm`` marks a broken promise."""

    value: str
    label: str
    note: str
    alarm: bool = False


@dataclass(frozen=True)
class Picture:
    """An encrypted image with its classification; ``marks`` is empty where everything is right."""

    uri: str
    prediction: Prediction
    marks: tuple[str, ...]
    logits: list[tuple[int, float | None, float | None]]


def build_page(runs: Runs) -> str:
    """Return the whole report as the text of an HTML file; a pure function of ``runs``."""
    whole, some = ladder_steps(runs)
    layers, counted = runs.infer.layers, runs.infer.audit.counted
    bars = [{"predicted": None if counted else layer.seconds_predicted, "measured": layer.seconds} for layer in layers]
    longest = max((s for entry in bars for s in entry.values() if s), default=0.0)
    return (
        _environment()
        .get_template("page.html")
        .render(
            runs=runs,
            headline=headline(runs),
            tiles=tiles(runs.infer),
            ladder=[*whole, *some],
            ladder_chart=ladder_chart(whole, some),
            pictures=show_pictures(runs),
            **(facts(runs.search) if runs.search else {}),
            level_chart=level_chart(layers),
            precision_chart=precision_chart(layers),
            layers=[
                (layer, pictures.bar_strip([*entry.items()], longest))
                for layer, entry in zip(layers, bars, strict=True)
            ],
            total=total(layers),
            predicted_unit=column_unit(counted),
            place=place(runs.infer),
            truncation=truncation_words(runs.export),
            bounds=bounds_words(runs.export),
            stages=[entry for name in STAGES for entry in runs.of_stage(name)],
        )
    )


def headline(runs: Runs) -> str:
    """Return one sentence on the outcome."""
    infer, agree = runs.infer, runs.infer.audit.argmax_equal
    last = runs.qat or runs.finetune or runs.train
    clear = "network" if runs.export.mode == "ckks" else "integer network"
    right = round(infer.top1_encrypted * infer.images / 100)
    same = f"all {agree}" if agree == infer.images else f"{agree} of {infer.images}"
    whose = f"{infer.images}{'' if infer.rehearsal else ' encrypted'} images of {last.data}"
    how = "in a rehearsal (NOTHING WAS ENCRYPTED)" if infer.rehearsal else "without seeing them"
    return (
        f"The network {last.model} classified {whose} {how}: "
        f"{right} answers are right, and {same} are what the same {clear} says in clear."
    )


def tiles(infer: AuditedInference) -> list[Tile]:
    """Return the four big numbers."""
    cost, audit = infer.cost, infer.audit
    of_time, of_size = _phases(infer)
    rounds, keys = f"in {cost.rounds:.0f} rounds", f"and {quantities.size(infer.bytes_keys)} of keys, once"
    network = "integer network" if audit.mode == "integer" else "same"
    return [
        Tile(
            quantities.percent(infer.top1_encrypted, 1),
            f"accuracy, {infer.done}",
            f"on {infer.images} images; the {network} in clear: {quantities.percent(audit.top1_clear, 1)}",
        ),
        Tile(
            quantities.seconds(cost.seconds),
            "per image",
            "; ".join([f"client and server together, {place(infer)}", *of_time]),
        ),
        Tile(quantities.size(cost.bytes), "exchanged per image", "; ".join([rounds, *of_size, keys])),
        _nearness(infer),
    ]


def _phases(infer: AuditedInference) -> tuple[list[str], list[str]]:
    """Return an image's time and bytes of the other kind: without its preparation, or with it."""
    if (phases := infer.phases) is None:
        return [], []
    if not phases.prepared:
        part = phases.online
        size = f"{quantities.size(part.bytes)} in {part.rounds:.0f} rounds of it in the online phase"
        return [f"{quantities.seconds(part.seconds)} of it in the online phase, after its preparation"], [size]
    if (part := phases.offline) is None:
        return ["all encrypted work was done before"], []
    when = "before it, for its preparation"
    return [f"{quantities.seconds(part.seconds)} {when}"], [f"{quantities.size(part.bytes)} {when}"]


def _nearness(infer: AuditedInference) -> Tile:
    """Return the nearness of the encrypted logits to those in clear."""
    audit, moved = infer.audit, quantities.tiny(infer.audit.logit_max_difference)
    if audit.mode == "integer":
        note = f"{audit.in_words}; rounding moved a logit by {moved} at most" if audit.unit else audit.in_words
        equal, label = audit.logits_equal, "logits equal the integer network’s"
        return Tile(f"{equal} / {infer.images}", label, note, alarm=equal < infer.images)
    note = f"of the largest logit, in the worst image; a logit moved by {moved} at most"
    note += f"; {len(audit.beyond)} images are beyond the bounds" if audit.beyond else ""
    return Tile(f"{audit.logits_bits:.1f} bits", "logits are right to", note, audit.argmax_equal < infer.images)


def place(infer: AuditedInference) -> str:
    """Return the place of client and server, in words."""
    return "in two processes, gRPC on loopback in between" if infer.audit.processes == 2 else "in one process"


def shown_logits(prediction: Prediction) -> list[tuple[int, float | None, float | None]]:
    """Return the logits of a prediction, the largest encrypted ones first; none of a refused one, or where none are.

    Returns:
        (class, logit in clear, encrypted logit) each.

    >>> shown_logits(Prediction(1, 1, 1, logits=[0.5, 2.0], logits_clear=[0.5, 2.25]))
    [(1, 2.25, 2.0), (0, 0.5, 0.5)]
    """
    logits = [] if prediction.refused else prediction.logits or []
    exact = prediction.logits_clear
    order = sorted(range(len(logits)), key=lambda index: _order(logits[index]))[:MOST_LOGITS]
    return [(index, None if exact is None else exact[index], logits[index]) for index in order]


def _order(logit: float | None) -> float:
    """Return a key that sorts the largest first, None last."""
    return math.inf if logit is None else -logit


def ladder_chart(whole: Iterable[LadderStep], some: Iterable[LadderStep]) -> Markup:
    """Return a chart of top-1 at each step, on an axis from 0 to 100 percent."""
    bars = [Bar(f"{r.name} · {r.images}", r.top1, quantities.percent(r.top1), "whole") for r in whole]
    bars += [Bar(f"{r.name} · {r.images}", r.top1, quantities.percent(r.top1), "some", r.interval) for r in some]
    return pictures.bar_chart(
        bars,
        title="Top-1 accuracy at each step, from 0 to 100 percent; the table has the numbers",
        axis=[(x, quantities.percent(x, 0)) for x in (0, 25, 50, 75, 100)],
    )


def show_pictures(runs: Runs) -> list[Picture]:
    """Return the encrypted images in their order; beyond ``MOST_PICTURES`` the unremarkable ones are dropped first."""
    marked = [(i, p, marks(p)) for i, p in enumerate(runs.infer.predictions)]
    selected = sorted(sorted(marked, key=lambda entry: not entry[2])[:MOST_PICTURES], key=lambda entry: entry[0])
    return [Picture(pictures.png_data_uri(runs.images[i]), p, words, shown_logits(p)) for i, p, words in selected]


def marks(prediction: Prediction) -> tuple[str, ...]:
    """Return the remarkable properties of a prediction, in words.

    >>> marks(Prediction(label=7, clear=7, encrypted=1))
    ('wrong', 'differs from clear')
    """
    if prediction.refused:
        return ("refused: the result was wider than right ones are",)
    remarks = {
        "wrong": prediction.encrypted != prediction.label,
        "differs from clear": prediction.encrypted != prediction.clear,
        f"float says {prediction.float}": prediction.float not in (None, prediction.clear),
    }
    return tuple(words for words, holds in remarks.items() if holds)


def bounds_words(export: ExportSummary) -> str:
    """Return the foundation of the bound on values, in words."""
    if export.mode == "ckks":
        return "Twice the largest values of some training images, not proved: larger ones are answered less rightly."
    if (measured := export.bounds_exceeded) is None:
        return "Proved for every image."
    return (
        f"Measured on training images, not proved: an image whose values go beyond is answered wrongly. "
        f"{measured.beyond} of {measured.images} held-out images do."
    )


def truncation_words(export: ExportSummary) -> str:
    """Return the cost of truncation on shares, in words."""
    if export.mode == "ckks":
        return CKKS
    if (truncation := export.truncation) is None:
        return "Truncation is exact: every value is the integer network's, by two-party computation in prepared images."
    words = [
        "Masks are uniform over the plain modulus, so a share alone says nothing about the value; "
        "a truncation goes wrong where the shares happen to wrap.",
        f"The chance that any truncation of one image fails is {_power(truncation.failure_per_image_log2)}.",
    ]
    if (tried := export.rehearsal) is not None:
        words.append(
            f"Rounding at random, with {export.guard_bits} guard bits, changes the class of {tried.changed} of "
            f"{tried.images} held-out images."
        )
    return " ".join(words)


def _power(log2: float) -> str:
    """Return a probability given as its log2, as a bound in words."""
    return f"at most 2^{log2:.1f}, about 1 in {2.0**-log2:,.0f}" if -30 <= log2 < 0 else f"at most 2^{log2:.1f}"


def _environment() -> Environment:
    loader = PackageLoader("privcirnet.report", ".")
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    names = ("seconds", "latency", "size", "percent", "count", "scaled", "tiny")
    environment.filters |= {name: getattr(quantities, name) for name in names}
    return environment
