"""Quantities as people read them. Every function shows None as an en dash; a no-break space ties number and unit."""

from __future__ import annotations

from privcirnet.he.planning.profile import in_words

NOTHING = "–"
_SPACE = "\N{NO-BREAK SPACE}"


def seconds(value: float | None) -> str:
    r"""Return a duration with three digits and a fitting unit.

    >>> [seconds(x).replace("\xa0", " ") for x in (0, 0.00042, 0.0321, 1.5, 75, 7260)]
    ['0 s', '0.42 ms', '32.1 ms', '1.50 s', '1 min 15 s', '2 h 01 min']
    """
    if value is None:
        return NOTHING
    if value == 0:
        return f"0{_SPACE}s"
    if value < 0.9995:
        return f"{digits(value * 1000)}{_SPACE}ms"
    if value < 59.95:
        return f"{digits(value)}{_SPACE}s"
    whole = round(value)
    if whole < 3600:
        return f"{whole // 60}{_SPACE}min{_SPACE}{whole % 60:02d}{_SPACE}s"
    return f"{whole // 3600}{_SPACE}h{_SPACE}{whole % 3600 // 60:02d}{_SPACE}min"


def latency(value: float | None, counted: bool) -> str:
    r"""Return a predicted latency with its unit; ``counted``: see :func:`he.planning.profile.in_words`.

    >>> latency(0.0321, False).replace("\xa0", " "), latency(24165.57, True).replace("\xa0", " ")
    ('32.1 ms', '24,166 units')
    """
    return NOTHING if value is None else in_words(value, counted).replace(" ", _SPACE)


def size(value: float | None) -> str:
    r"""Return a number of bytes in decimal units.

    >>> [size(x).replace("\xa0", " ") for x in (12, 432_100, 3_456_789)]
    ['12 B', '432 KB', '3.46 MB']
    """
    if value is None:
        return NOTHING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if value >= 0.9995 * scale:
            return f"{digits(value / scale)}{_SPACE}{unit}"
    return f"{value:.0f}{_SPACE}B"


def digits(value: float) -> str:
    """Return three significant digits below 1000, whole numbers above, with at most two decimals.

    >>> [digits(x) for x in (0.421, 9.999, 32.14, 321.4, 4321.0)]
    ['0.42', '10.00', '32.1', '321', '4,321']
    """
    return f"{value:,.{2 if abs(value) < 10 else 1 if abs(value) < 99.95 else 0}f}"


def percent(value: float | None, decimals: int = 2) -> str:
    r"""Return a percentage.

    >>> percent(93.75, 1).replace("\xa0", " ")
    '93.8 %'
    """
    return NOTHING if value is None else f"{value:.{decimals}f}{_SPACE}%"


def count(value: int | None) -> str:
    """Return a whole number with its thousands marked.

    >>> count(147456)
    '147,456'
    """
    return NOTHING if value is None else f"{value:,}"


def scaled(value: float | None, scale: float, decimals: int = 1) -> str:
    """Return ``value * scale`` without its unit, for table columns whose heading states the unit.

    >>> scaled(0.01234, 1000)
    '12.3'
    """
    return NOTHING if value is None else f"{value * scale:,.{decimals}f}"


def tiny(value: float | None) -> str:
    """Return a number of any magnitude with two significant digits.

    >>> [tiny(x) for x in (0, 0.0123, 3.2e-7, 250.0)]
    ['0', '0.012', '3.2e-7', '2.5e2']
    """
    if value is None:
        return NOTHING
    if value == 0 or 0.001 <= abs(value) < 100:
        return f"{value:.2g}"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"
