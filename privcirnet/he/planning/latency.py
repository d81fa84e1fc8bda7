"""A predicted latency with its unit: a machine's seconds, or the counts of a counted profile.

Under a counted profile a latency is HE-Rot + 0.135 HE-Pmult, the papers' units, which are no time.
"""

from typing import NamedTuple

UNITS = "units"
"""Name of the papers' units."""


class Unit(NamedTuple):
    """The unit of a column of latencies; ``scale``: how many of it are in a second, or in one of the papers' units."""

    name: str
    scale: float


def column_unit(counted: bool) -> Unit:
    """Return the unit of a column of latencies; ``counted``: whether they are in the papers' units."""
    return Unit(UNITS, 1.0) if counted else Unit("ms", 1e3)


def in_words(latency: float, counted: bool) -> str:
    """Return a latency with its unit.

    Args:
        latency: in seconds, or in the papers' units if it is counted.

    >>> in_words(0.0246, False), in_words(2.02, False), in_words(24165.57, True), in_words(0.00042, True)
    ('24.6 ms', '2.02 s', '24,166 units', '0.00042 units')
    """
    if counted:
        return f"{_three(latency)} {UNITS}"
    return f"{_three(1e3 * latency)} ms" if 0 < latency < 0.9995 else f"{_three(latency)} s"


def _three(value: float) -> str:
    """Return three digits where there are fewer than four before the point, two of small numbers."""
    if value < 0.095:
        return f"{value:.2g}"
    return f"{value:,.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
