"""Top-1 over predicted latency, a curve for each method."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from privcirnet.report.plots import save

_DENSE, _MARKERS = "#9aa5b1", "osD^vP"
_CURVES = ("#0b2447", "#7f8c8d", "#d35400", "#1a7f37", "#8e44ad")

Point = tuple[float, float, float]
"""Seconds, percent, and half of what seeds lie apart."""


def trade_off(path: Path, panels: Mapping[str, Mapping[str, Sequence[Point]]], dense: float, title: str) -> None:
    """Draw top-1 over predicted latency, a curve for each method (as PrivCirNet, Figures 8 and 9).

    Args:
        panels: label of the horizontal axis -> name of the method -> its points.
        dense: top-1 of the dense network, percent.
    """
    figure = Figure(figsize=(5.6 * len(panels), 4.4), layout="constrained")
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)
    for axes, (label, methods) in zip(all_axes[0], panels.items(), strict=True):
        axes.axhline(dense, color=_DENSE, linestyle="--", linewidth=1, label=f"the dense start, {dense:.2f} %")
        for index, (name, points) in enumerate(methods.items()):
            style = {"marker": _MARKERS[index % len(_MARKERS)], "color": _CURVES[index % len(_CURVES)]}
            if points:
                seconds, percent, apart = zip(*sorted(points), strict=True)
                bars = apart if any(apart) else None
                axes.errorbar(seconds, percent, bars, label=name, markersize=6, capsize=3, **style)
        axes.set_xlabel(f"predicted {label}; linear layers")
        axes.grid(alpha=0.3)
    all_axes[0][0].set_ylabel("top-1, %")
    all_axes[0][0].legend(fontsize=8)
    figure.suptitle(title, fontsize=10)
    save(figure, path)
