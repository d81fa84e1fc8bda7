"""Pictures inside the page: PNG data URIs, a colour scale, bar charts as inline SVG.

Lengths along a bar are percentages of the SVG's width and text has a fixed size, so a chart stays readable on a phone
without a script. Colours come from the page's style sheet through class names.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

HEAT_LIGHT = ("#eef3f6", "#b5d3e3", "#5f9fc6", "#23659a", "#0e325c")
HEAT_DARK = ("#20282f", "#1f4660", "#2a739f", "#6ab4da", "#d9effa")
"""Colours from low to high, on light and on dark paper."""
_AXIS_SHARE = 5.0
"""Share of the width, in percent, for the numbers left of columns."""


@dataclass(frozen=True)
class Bar:
    """One bar: ``text`` is its value in words, ``style`` its class in the style sheet, ``interval`` draws a whisker."""

    label: str
    value: float
    text: str
    style: str
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Column:
    """One column: ``text`` describes it where the pointer rests, ``style`` is its class in the style sheet."""

    value: float
    style: str
    text: str


@dataclass(frozen=True)
class Heat:
    """Background and ink of a heat map cell on light and on dark paper."""

    light: str
    light_ink: str
    dark: str
    dark_ink: str


def png_data_uri(image: NDArray[np.uint8]) -> str:
    """Return an image as the address of an inline PNG; ``image``: (H, W) or (H, W, 3)."""
    stream = io.BytesIO()
    Image.fromarray(image).save(stream, format="PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def log_fraction(value: float, low: float, high: float) -> float:
    """Return a value's place between two others on a log scale, in [0, 1]; 0 for one that is not positive.

    Args:
        low: positive value at which the scale is 0.
        high: positive value at which the scale is 1.

    >>> log_fraction(1e-3, 1e-4, 1e-2)
    0.5
    """
    if value <= 0:
        return 0.0
    if high <= low:
        return 1.0
    return min(1.0, max(0.0, math.log(value / low) / math.log(high / low)))


def heat(fraction: float) -> Heat:
    """Return the colours at a point of the scale, with the ink that contrasts more; ``fraction``: in [0, 1]."""
    light, dark = mix(HEAT_LIGHT, fraction), mix(HEAT_DARK, fraction)
    return Heat(light, ink_on(light), dark, ink_on(dark))


def mix(ramp: Sequence[str], fraction: float) -> str:
    """Return the colour at a point of a ramp, as ``#rrggbb``.

    Args:
        ramp: ``#rrggbb`` stops, at least two.
        fraction: place on the ramp, in [0, 1].

    >>> mix(("#000000", "#ffffff"), 0.5)
    '#808080'
    """
    place = fraction * (len(ramp) - 1)
    stop = min(int(place), len(ramp) - 2)
    pairs = zip(_channels(ramp[stop]), _channels(ramp[stop + 1]), strict=True)
    return "#" + "".join(f"{round(a + (b - a) * (place - stop)):02x}" for a, b in pairs)


def ink_on(background: str) -> str:
    """Return black or white, whichever has the larger WCAG contrast on a background; that is never below 4.58.

    Args:
        background: ``#rrggbb``.
    """
    return max(("#000000", "#ffffff"), key=lambda ink: contrast(ink, background))


def contrast(first: str, second: str) -> float:
    """Return the WCAG 2 contrast ratio of two colours, from 1 to 21.

    Args:
        first: ``#rrggbb``.
        second: ``#rrggbb``.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    dim, bright = sorted((_luminance(first), _luminance(second)))
    return (bright + 0.05) / (dim + 0.05)


def ticks(highest: float) -> list[float]:
    """Return four to seven round numbers from 0 to at least the highest value.

    Args:
        highest: value that the axis must reach.

    >>> ticks(0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if highest <= 0:
        return [0.0, 1.0]
    power = 10.0 ** math.floor(math.log10(highest))
    step = next(power * f for f in (0.2, 0.5, 1.0, 2.0, 5.0) if highest <= 6 * power * f * (1 + 1e-9))
    return [round(i * step, 12) for i in range(math.ceil(highest / step - 1e-9) + 1)]


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    axis: Sequence[tuple[float, str]],
    marker: tuple[float, str] | None = None,
) -> Markup:
    """Return a horizontal bar chart.

    Args:
        bars: From top to bottom, every value inside the axis.
        axis: The ticks with their text, from 0 (so that lengths compare as the values do) to the end of the axis.
        marker: A value with its text, drawn as a vertical line through all bars.
    """
    top, row, head = axis[-1][0], 42, 22 if marker else 0
    foot = head + row * len(bars) + 4
    places = [(bar, head + y * row) for y, bar in enumerate(bars)]
    parts = [_bar(bar, y, top) for bar, y in places]
    if marker:
        parts.append(_marker(marker[0] / top, marker[1], foot))
    parts += [_words(bar, y) for bar, y in places]
    parts += [_tick(value / top, text, foot) for value, text in axis]
    start = Markup('<svg class="chart" width="100%" height="{}" role="img" aria-label="{}">').format(foot + 22, title)
    return start + Markup("").join(parts) + Markup("</svg>")


def column_chart(
    columns: Sequence[Column], *, title: str, axis: Sequence[tuple[float, str]], groups: Sequence[tuple[int, str]] = ()
) -> Markup:
    """Return a chart of columns, as many as fit the width.

    Args:
        columns: from left to right, every value inside the axis.
        axis: the ticks with their text, from 0 to the end of the axis.
    """
    height, head, top = 120, 10, axis[-1][0]
    step = (100 - _AXIS_SHARE) / max(len(columns), 1)
    line = Markup('<line class="grid" x1="{:.2f}%" x2="100%" y1="{:.1f}" y2="{:.1f}"/>')
    mark = Markup('<text class="axis" x="0" y="{:.1f}">{}</text>')
    rect = Markup(
        '<rect class="bar {}" x="{:.3f}%" y="{:.1f}" width="{:.3f}%" height="{:.1f}"><title>{}</title></rect>'
    )
    name = Markup('<text class="axis" x="{:.2f}%" y="{}">{}</text>')
    heights = [(value, head + height * (1 - value / top)) for value, _ in axis]
    parts = [line.format(_AXIS_SHARE, y, y) for _, y in heights]
    parts += [mark.format(y + 4, text) for (_, y), (_, text) in zip(heights, axis, strict=True)]
    for number, column in enumerate(columns):
        tall = height * column.value / top
        place = _AXIS_SHARE + step * number, head + height - tall, 0.8 * step, tall
        parts.append(rect.format(column.style, *place, column.text))
    parts += [name.format(_AXIS_SHARE + step * number, head + height + 18, text) for number, text in groups]
    total = head + height + (24 if groups else 6)
    start = Markup('<svg class="chart" width="100%" height="{}" role="img" aria-label="{}">').format(total, title)
    return start + Markup("").join(parts) + Markup("</svg>")


def bar_strip(bars: Sequence[tuple[str, float | None]], top: float) -> Markup:
    """Return unlabelled bars for a table cell, one under the other.

    Args:
        bars: (style, value) each; no bar for a value of None.
    """
    rect = Markup('<rect class="bar {}" x="0" y="{}" width="{:.2f}%" height="6" rx="1"/>')
    drawn = [
        rect.format(style, 8 * i, 100 * value / top)
        for i, (style, value) in enumerate(bars)
        if value is not None and top > 0
    ]
    head = Markup('<svg class="strip" width="100%" height="{}" aria-hidden="true">').format(8 * len(bars) - 2)
    return head + Markup("").join(drawn) + Markup("</svg>")


def _bar(bar: Bar, y: int, top: float) -> Markup:
    parts = [
        Markup('<rect class="track" x="0" y="{}" width="100%" height="12" rx="2"/>').format(y + 21),
        Markup('<rect class="bar {}" x="0" y="{}" width="{:.2f}%" height="12" rx="2"/>').format(
            bar.style, y + 21, 100 * bar.value / top
        ),
    ]
    if bar.interval:
        low, high = (100 * end / top for end in bar.interval)
        line = Markup('<line class="{}" x1="{:.2f}%" x2="{:.2f}%" y1="{}" y2="{}"/>')
        ends = [(low, high, y + 27, y + 27), (low, low, y + 22, y + 32), (high, high, y + 22, y + 32)]
        parts += [line.format(style, *end) for style in ("halo", "whisker") for end in ends]
    return Markup("").join(parts)


def _words(bar: Bar, y: int) -> Markup:
    """Return label and value above a bar, drawn after the marker so that they stay readable where it crosses them."""
    return Markup(
        '<text x="0" y="{0}">{1}</text><text class="value" x="100%" y="{0}" text-anchor="end">{2}</text>'
    ).format(y + 14, bar.label, bar.text)


def _tick(fraction: float, text: str, foot: int) -> Markup:
    return Markup(
        '<line class="tick" x1="{0:.2f}%" x2="{0:.2f}%" y1="{1}" y2="{2}"/>'
        '<text class="axis" x="{0:.2f}%" y="{3}" text-anchor="{4}">{5}</text>'
    ).format(100 * fraction, foot - 4, foot + 2, foot + 16, _anchor(fraction), text)


def _marker(fraction: float, text: str, foot: int) -> Markup:
    return Markup(
        '<line class="marker" x1="{0:.2f}%" x2="{0:.2f}%" y1="18" y2="{1}"/>'
        '<text class="marker-label" x="{0:.2f}%" y="12" text-anchor="{2}">{3}</text>'
    ).format(100 * fraction, foot, _anchor(fraction), text)


def _anchor(fraction: float) -> str:
    """Return the anchor of a tick's text, which leans inwards near an edge."""
    return "start" if fraction < 0.15 else "end" if fraction > 0.85 else "middle"


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (x / 255 for x in _channels(colour))]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
