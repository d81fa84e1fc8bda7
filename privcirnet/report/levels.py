"""Levels and precision of a network on bootstrapped CKKS, layer by layer: two charts over the same layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby

from markupsafe import Markup

from privcirnet.artifact.summaries import LayerRow
from privcirnet.report import pictures
from privcirnet.report.pictures import Column

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
