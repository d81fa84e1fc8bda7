"""Pictures of results; those of the papers' tables are in :mod:`papers.reproduce.pictures`."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

from privcirnet.he.planning.profile import Unit
from privcirnet.he.system.files import replacing

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.patches import Rectangle
from matplotlib.ticker import LogLocator, MaxNLocator

_SHADES = ("#9aa5b1", "#7fb3d5", "#3d85c6", "#1c4587", "#0b2447")
_MARKERS = "osD^vP"
_RATIO_SPACE = 1.35
_MANY_EPOCHS = 80


def grouped_bars(path: Path, rows: Sequence[Mapping[str, Any]], title: str) -> None:
    """Draw the seconds of each contestant on each layer, on a logarithmic axis, with speed-ups over the first one.

    Args:
        path: PNG or SVG to write.
        rows: records with keys layer, name, seconds_total, speedup.
    """
    groups = list(dict.fromkeys(row["layer"] for row in rows))
    names = list(dict.fromkeys(row["name"] for row in rows))
    series = {name: {row["layer"]: row for row in rows if row["name"] == name} for name in names}
    width = 0.84 / len(names)
    figure, axes = plt.subplots(figsize=(1.6 + 1.5 * len(groups), 4.8), layout="constrained")
    for index, name in enumerate(names):
        places = [place for place, group in enumerate(groups) if group in series[name]]
        present = [series[name][groups[place]] for place in places]
        x = np.array(places) + (index - (len(names) - 1) / 2) * width
        color = _SHADES[index % len(_SHADES)]
        bars = axes.bar(x, [1e3 * row["seconds_total"] for row in present], width, label=name, color=color)
        axes.bar_label(bars, [f"{row['speedup']:.1f}x" for row in present], fontsize=7, padding=2, rotation=90)
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * _RATIO_SPACE)
    axes.set_xticks(range(len(groups)), [_two_lines(group) for group in groups], fontsize=8)
    axes.set_ylabel("ms a layer, client and server (log)")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    axes.legend(fontsize=8, ncols=len(names), loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    save(figure, path)


def roofline(path: Path, rows: Sequence[Mapping[str, Any]], machine: Mapping[str, float], title: str) -> None:
    """Draw each layer's products per second over its products per byte, under the machine's two limits.

    Args:
        path: PNG or SVG to write.
        rows: records with keys layer, words, products, seconds (of "all" threads).
    """
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    bandwidth, peak = 8 * machine["words"], machine["products"]
    points = [(row["products"] / (8 * row["words"]), row["products"] / row["seconds"]["all"]) for row in rows]
    span = np.geomspace(min(peak / bandwidth, *(x for x, _ in points)) / 3, 3 * max(x for x, _ in points), 200)
    axes.plot(span, np.minimum(span * bandwidth, peak) / 1e9, color=_SHADES[3], label="limit: memory, then products")
    for index, (row, (x, y)) in enumerate(zip(rows, points, strict=True)):
        marker, color = _MARKERS[index % len(_MARKERS)], _SHADES[index % len(_SHADES)]
        axes.plot(x, y / 1e9, marker, color=color, markeredgecolor="black", markersize=8, label=row["layer"])
    axes.loglog()
    axes.set_ylim(min(y for _, y in points) / 6e9, 1.5 * peak / 1e9)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("")
    axes.set_xlabel("32-bit products for each byte read or written")
    axes.set_ylabel("10^9 products a second")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=8, loc="lower right")
    save(figure, path)


def curves(path: Path, history: Sequence[Mapping[str, float]], title: str) -> None:
    """Draw loss, held-out top-1 and learning rate over the epochs of a training run.

    Args:
        path: PNG or SVG to write.
        history: records per epoch, with keys epoch, loss, top1, learning_rate; not empty.
    """
    panels = {"loss": "training loss, nats", "top1": "held-out top-1, %", "learning_rate": "learning rate"}
    heights = {"height_ratios": (3, 3, 1.4)}
    figure, all_axes = plt.subplots(3, 1, figsize=(7.2, 6.4), sharex=True, layout="constrained", gridspec_kw=heights)
    epochs = [entry["epoch"] for entry in history]
    for axes, (key, label), color in zip(all_axes, panels.items(), _SHADES[2:], strict=True):
        values = [entry.get(key, np.nan) for entry in history]
        axes.plot(epochs, values, color=color, marker="o", markersize=3 if len(epochs) < _MANY_EPOCHS else 0)
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
    best = max(history, key=lambda entry: entry["top1"])
    text = f"best {best['top1']:.2f} % in epoch {best['epoch']:.0f}, last {history[-1]['top1']:.2f} %"
    all_axes[1].plot(best["epoch"], best["top1"], "o", color=_SHADES[3], markersize=8, fillstyle="none", label=text)
    all_axes[1].legend(fontsize=8, loc="lower right", handletextpad=0.3)
    all_axes[-1].set_xlabel("epoch")
    all_axes[-1].set_xlim(epochs[0] - 0.5, epochs[-1] + 0.5)
    all_axes[-1].xaxis.set_major_locator(MaxNLocator("auto", steps=(1, 2, 5, 10), integer=True, min_n_ticks=1))
    all_axes[-1].yaxis.set_major_formatter("{x:g}")
    all_axes[-1].set_ylim(bottom=0)
    all_axes[0].set_title(title, fontsize=10)
    figure.align_ylabels()
    save(figure, path)


def sensitivity_over_latency(
    path: Path,
    front: Sequence[tuple[float, float]],
    uniform: Mapping[int, tuple[float, float]],
    plan: tuple[float, float],
    title: str,
    unit: Unit,
) -> None:
    """Draw sensitivity over predicted latency: searched assignments, one block size everywhere, and the chosen one.

    Args:
        path: PNG or SVG to write.
        front: (latency, sensitivity) of the sweep; may be empty.
        uniform: (latency, sensitivity) by block size.
        plan: (latency, sensitivity) of the plan.
        unit: unit of the axis of latencies.
    """
    figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
    if front:
        x, y = zip(*sorted(front), strict=True)
        axes.plot([unit.scale * s for s in x], y, color=_SHADES[2], marker="o", markersize=4, label="searched")
    points = [(unit.scale * latency, omega) for latency, omega in uniform.values()]
    axes.plot(*zip(*points, strict=True), "s", color=_SHADES[0], markeredgecolor="black", label="uniform")
    for b, point in zip(uniform, points, strict=True):
        axes.annotate(f"b = {b}", point, xytext=(6, 4), textcoords="offset points", fontsize=8)
    axes.plot(unit.scale * plan[0], plan[1], "*", color=_SHADES[4], markersize=13, label="the plan")
    largest = max([plan[1], *(omega for _, omega in points), *(omega for _, omega in front)])
    axes.set_yscale("symlog", linthresh=1e-4 * largest or 1.0)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08)
    axes.set_xlabel(f"predicted latency of what was searched, {unit.name} an image")
    axes.set_ylabel("sensitivity, total")
    axes.set_title(title, fontsize=10)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    save(figure, path)


def plans(path: Path, scores: Mapping[str, Mapping[str, float]], uniform: str, title: str) -> None:
    """Draw the score of every plan that competed, as bars, with a line at that of one block size everywhere.

    Args:
        path: PNG or SVG to write.
        scores: scores by moment, as "before training", then by name of the plan, the best first; a panel for each.
        uniform: name of the plan that the line is for.
    """
    longest = max(len(panel) for panel in scores.values())
    figure, panels = plt.subplots(
        1, len(scores), figsize=(4.8 * len(scores), 1.6 + 0.4 * longest), layout="constrained", squeeze=False
    )
    for axes, (moment, panel) in zip(panels[0], scores.items(), strict=True):
        bars = axes.barh(list(panel), list(panel.values()), color=[_SHADES[4], *[_SHADES[1]] * (len(panel) - 1)])
        axes.bar_label(bars, [f"{score:.3g}" for score in panel.values()], fontsize=8, padding=2)
        if uniform in panel:
            axes.axvline(panel[uniform], color="black", linestyle="--", linewidth=1, label="uniform")
            axes.legend(fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.15)
        axes.set_xlabel("divergence from the dense network, nats; less is better")
        axes.set_title(moment, fontsize=9)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    figure.suptitle(title, fontsize=10)
    save(figure, path)


def sensitivities(path: Path, omega: Mapping[str, Mapping[str, float]], plan: Mapping[str, str], title: str) -> None:
    """Draw a heat map of the sensitivity of every layer and activation in every other form, the chosen ones framed.

    Args:
        path: PNG or SVG to write.
        omega: sensitivities by name and form, the same forms in every row, NaN for those that one cannot have.
    """
    sizes = list(next(iter(omega.values()))) or ["b = 1"]
    values = np.array([[row.get(b, np.nan) for b in sizes] for row in omega.values()], dtype=float)
    values[values <= 0] = np.nan
    figure, axes = plt.subplots(figsize=(3.2 + 0.7 * len(sizes), 1.4 + 0.22 * len(omega)), layout="constrained")
    image = axes.imshow(np.log10(values), aspect="auto", cmap="viridis")
    axes.set_xticks(range(len(sizes)), sizes, fontsize=8)
    axes.set_yticks(range(len(omega)), list(omega), fontsize=7)
    for row, name in enumerate(omega):
        if plan.get(name) in sizes:
            corner = sizes.index(plan[name]) - 0.5, row - 0.5
            axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="white", linewidth=1.8))
    figure.colorbar(image, label="log10 of the sensitivity; framed: chosen (none: as it is)")
    axes.set_title(title, fontsize=10)
    save(figure, path)


def blocks(path: Path, plan: Mapping[str, int], title: str) -> None:
    """Draw the chosen block sizes along the depth of a network (as PrivCirNet, Figure 5).

    Args:
        path: PNG or SVG to write.
        plan: block size by layer name, in order.
    """
    figure, axes = plt.subplots(figsize=(max(5.0, 1.6 + 0.24 * len(plan)), 3.8), layout="constrained")
    axes.bar(range(len(plan)), list(plan.values()), color=_SHADES[2])
    axes.set_yscale("log", base=2)
    sizes = [2**i for i in range(max(plan.values(), default=1).bit_length())]
    axes.set_yticks(sizes, [str(b) for b in sizes])
    axes.set_ylim(0.8, 1.3 * sizes[-1])
    axes.set_xticks(range(len(plan)), list(plan), rotation=90, fontsize=7)
    axes.set_ylabel("block size")
    axes.set_title(title, fontsize=10)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
    save(figure, path)


def predicted_against_real(path: Path, rows: Sequence[Mapping[str, Any]], kinds: Sequence[str], real: str) -> None:
    """Draw predicted sensitivity against the measured rise of the loss, one point for each layer and block size.

    Args:
        path: PNG or SVG to write.
    """
    figure, panels = plt.subplots(1, len(kinds), figsize=(4.6 * len(kinds), 4.0), sharey=True, layout="constrained")
    for axes, kind in zip(np.atleast_1d(panels), kinds, strict=True):
        for index, b in enumerate(sorted({row["b"] for row in rows})):
            some = [row for row in rows if row["b"] == b]
            shade = _SHADES[index % len(_SHADES)]
            x, y = [row[kind] for row in some], [row[real] for row in some]
            axes.plot(x, y, _MARKERS[index % len(_MARKERS)], color=shade, markersize=5, label=f"b = {b}")
        axes.set_xscale("log")
        axes.set_yscale("symlog", linthresh=1e-3)
        axes.set_xlabel(f"predicted: {kind}")
        axes.grid(alpha=0.3)
    np.atleast_1d(panels)[0].set_ylabel("the loss really rises by, nats")
    np.atleast_1d(panels)[0].legend(fontsize=8)
    save(figure, path)


def block_size_seconds(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw seconds over block sizes, a panel for each network: preparation and the rest for the image, stacked.

    Args:
        path: PNG or SVG to write.
        rows: records with keys title (of the network), block_size, phases (preparation, online: seconds each).
    """
    titles = list(dict.fromkeys(row["title"] for row in rows))
    figure, panels = plt.subplots(1, len(titles), figsize=(4.6 * len(titles), 3.6), squeeze=False, layout="constrained")
    for axes, title in zip(panels[0], titles, strict=True):
        some = [row for row in rows if row["title"] == title]
        ahead, online = (
            np.array([row["phases"][phase]["seconds"] for row in some]) for phase in ("preparation", "online")
        )
        x = np.arange(len(some))
        axes.bar(x, ahead, 0.6, color=_SHADES[1], label="preparation")
        bars = axes.bar(x, online, 0.6, bottom=ahead, color=_SHADES[3], label="with the image")
        axes.bar_label(bars, [f"{(ahead + online)[0] / both:.1f}x" for both in ahead + online], fontsize=7, padding=2)
        axes.set_xticks(x, [f"b = {row['block_size']}" for row in some])
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    panels[0][0].set_ylabel("seconds an image")
    panels[0][-1].legend(fontsize=8)
    save(figure, path)


def _two_lines(text: str) -> str:
    words = text.split(" ", 1)
    return "\n".join(words)


def save(figure: Any, path: Path) -> None:
    """Write a picture whole or not at all, and forget it; ``path``: PNG or SVG to write."""
    try:
        with replacing(path) as draft:
            figure.savefig(draft, dpi=150, format=path.suffix[1:])
    finally:
        plt.close(figure)
