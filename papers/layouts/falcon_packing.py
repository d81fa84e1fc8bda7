"""Falcon 2023's own packing and tiling of depthwise layers, as formulas; ours: :mod:`coefficients.depthwise_packing`.

Source: Xu et al., "Falcon" (ICCAD 2023), sections IV-B and IV-C.
"""

from privcirnet.errors import RuleError


def closed_form(channels: int, filters: int) -> list[int]:
    """Return the paper's offset(c') for each channel c'.

    Raises:
        RuleError: C_w is odd or is not C_x.

    >>> closed_form(4, 4)
    [4, 9, 6, 0]
    """
    if filters % 2 or filters != channels:
        raise RuleError(
            "the closed form needs an even number of filters, as many as channels",
            got=f"C_w = {filters}, C_x = {channels}",
            remedy="use superstring",
        )
    half = filters // 2
    return [(channels + 2) * (filters - 1 - c) if c >= half else channels + c * (channels + 1) for c in range(filters)]


def closed_form_length(channels: int, filters: int) -> int:
    """Return the units of the closed form, trailing zeros included: C_x + 1 + (C_w / 2 - 1)(C_x + 2).

    Args:
        filters: C_w, which divides C_x.
    """
    return channels + 1 + (filters // 2 - 1) * (channels + 2)


def divided(channels: int, filters: int) -> list[list[tuple[int, int]]]:
    """Return the closed form for C_x = k C_w: one sequence of all channels, split into k, leading zeros removed.

    Returns:
        for each weight polynomial its (channel, unit) pairs.

    Raises:
        RuleError: C_w is odd or does not divide C_x.
    """
    if filters % 2 or channels % filters:
        raise RuleError(
            "the divided closed form needs an even number of filters that divides the channels",
            got=f"C_w = {filters}, C_x = {channels}",
            remedy="use superstring",
        )
    offsets = closed_form(channels, channels)
    order = sorted(range(channels), key=lambda c: offsets[c])
    parts = [order[start : start + filters] for start in range(0, channels, filters)]
    return [[(c, offsets[c] - offsets[part[0]]) for c in part] for part in parts]


def paper_tiling(height: int, width: int, channels: int, ring_degree: int) -> tuple[int, int]:
    """Return the paper's (C_x, C_w): least 1/C_x + 1/C_w with (C_x + 2) C_w <= 2 N / (H W) + 2 and C_w dividing C_x.

    The larger C_w is taken where sums are equal; C_w = 1 counts as one filter in C_x units.

    Args:
        height: H.
        width: W.
        channels: most groups of an input polynomial.

    Raises:
        RuleError: a map does not fit a polynomial.

    Source: Xu et al., "Falcon" (ICCAD 2023), section IV-C.
    """
    maps = ring_degree // (height * width)
    tilings = [
        (x, w)
        for x in range(1, min(maps, channels) + 1)
        for w in range(1, x + 1)
        if x % w == 0
        and (w == 1 or (w % 2 == 0 and (x + 2) * w * height * width <= 2 * ring_degree + 2 * height * width))
    ]
    if not tilings:
        raise RuleError(
            "a map must fit one polynomial", got=f"{height} x {width} at ring degree {ring_degree}",
            remedy="use a larger ring degree",
        )  # fmt: skip
    return min(tilings, key=lambda t: (1 / t[0] + 1 / t[1], -t[1]))
