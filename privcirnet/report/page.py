"""The report as one HTML file that needs nothing else: no script, no font, no picture from outside.

Here the runs become the rows that ``page.html`` shows; the template lays them out and escapes every text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from privcirnet.artifact.summaries import ExportSummary, InferenceSummary, Prediction
from privcirnet.he.planning.latency import column_unit
from privcirnet.report import block_sizes, levels, pictures, quantities
from privcirnet.report.pictures import Bar
from privcirnet.report.runs import STAGES, LadderStep, Runs, ladder_steps, total

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
    layers, counted = runs.infer.layers, runs.infer.counted
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
            **(block_sizes.facts(runs.search) if runs.search else {}),
            level_chart=levels.level_chart(layers),
            precision_chart=levels.precision_chart(layers),
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
    infer = runs.infer
    agree = sum(p.encrypted == p.clear for p in infer.predictions) if infer.argmax_equal is None else infer.argmax_equal
    last, clear = runs.qat or runs.finetune or runs.train, "network" if runs.export.ckks else "integer network"
    model = last.model or runs.train.model
    network = f"The network {model}" if model else "A block-circulant network"
    data = last.data or runs.train.data
    right = round(infer.top1_encrypted * infer.images / 100)
    same = f"all {agree}" if agree == infer.images else f"{agree} of {infer.images}"
    whose = f"{infer.images}{'' if infer.rehearsal else ' encrypted'} images{f' of {data}' if data else ''}"
    how = "in a rehearsal (NOTHING WAS ENCRYPTED)" if infer.rehearsal else "without seeing them"
    return (
        f"{network} classified {whose} {how}: "
        f"{right} answers are right, and {same} are what the same {clear} says in clear."
    )


def tiles(infer: InferenceSummary) -> list[Tile]:
    """Return the four big numbers."""
    rounds = [] if infer.rounds is None else [f"in {infer.rounds} rounds"]
    of_time, of_size = _phases(infer)
    keys = [] if infer.bytes_keys is None else [f"and {quantities.size(infer.bytes_keys)} of keys, once"]
    network = "integer network" if infer.exact else "same"
    return [
        Tile(
            quantities.percent(infer.top1_encrypted, 1),
            f"accuracy, {infer.done}",
            f"on {infer.images} images; the {network} in clear: {quantities.percent(infer.top1_clear, 1)}",
        ),
        Tile(
            quantities.seconds(infer.seconds_per_image),
            "per image",
            "; ".join([f"client and server together, {place(infer)}", *of_time]),
        ),
        Tile(quantities.size(infer.bytes_per_image), "exchanged per image", "; ".join(rounds + of_size + keys)),
        _nearness(infer),
    ]


def _phases(infer: InferenceSummary) -> tuple[list[str], list[str]]:
    """Return an image's time and bytes of the other kind: without its preparation, or with it."""
    online, before = infer.online, infer.preparation
    if online is None:
        return [], []
    if not infer.prepared:
        size = f"{quantities.size(online.bytes_per_image)} in {online.rounds} rounds of it in the online phase"
        return [f"{quantities.seconds(online.seconds_per_image)} of it in the online phase, after its preparation"], [
            size
        ]
    if before is None:
        return ["all encrypted work was done before"], []
    size = f"{quantities.size(before.bytes_per_image)} before it, for its preparation"
    return [f"{quantities.seconds(before.seconds_per_image)} before it, for its preparation"], [size]


def _nearness(infer: InferenceSummary) -> Tile:
    """Return the nearness of the encrypted logits to those in clear."""
    if infer.logits_bits is not None:
        moved, beyond = quantities.tiny(infer.logit_max_difference), len(infer.beyond or ())
        note = f"of the largest logit, in the worst image; a logit moved by {moved} at most"
        note += f"; {beyond} images are beyond the bounds" if beyond else ""
        equal = infer.images if infer.argmax_equal is None else infer.argmax_equal
        return Tile(f"{infer.logits_bits:.1f} bits", "logits are right to", note, equal < infer.images)
    equal = infer.logits_equal or 0
    label = "logits equal the integer network’s"
    return Tile(f"{equal} / {infer.images}", label, exactness(infer), alarm=equal < infer.images)


def exactness(infer: InferenceSummary) -> str:
    """Return the meaning of equal logits, in words."""
    moved = quantities.tiny(infer.logit_max_difference)
    return f"{infer.in_words_exact}; rounding moved a logit by {moved} at most" if infer.unit else infer.in_words_exact


def place(infer: InferenceSummary) -> str:
    """Return the place of client and server, in words."""
    return "in two processes, gRPC on loopback in between" if infer.processes == 2 else "in one process"


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
    """Return the foundation of the bound on values, in words; empty where the run does not say."""
    if export.bounds == "proved":
        return "Proved for every image."
    if export.ckks:
        return "Twice the largest values of some training images, not proved: larger ones are answered less rightly."
    if export.bounds_exceeded is None:
        return ""
    measured = export.bounds_exceeded
    return (
        f"Measured on training images, not proved: an image whose values go beyond is answered wrongly. "
        f"{measured.beyond} of {measured.images} held-out images do."
    )


def truncation_words(export: ExportSummary) -> str:
    """Return the cost of truncation on shares, in words."""
    truncation = export.truncation
    if export.ckks:
        return CKKS
    if truncation is None:
        return "The runs do not say how values are truncated."
    if truncation.exact:
        return "Truncation is exact: every value is the integer network's, by two-party computation in prepared images."
    words = [
        "Masks are uniform over the plain modulus, so a share alone says nothing about the value; "
        "a truncation goes wrong where the shares happen to wrap."
    ]
    if truncation.failure_per_image_log2 is not None:
        words.append(
            f"The chance that any truncation of one image fails is {_power(truncation.failure_per_image_log2)}."
        )
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
