"""What a layer's description may ask of whoever reads it, for each encoding.

A description may come from somebody else: a server tells its clients how its layers are computed. So sizes are looked
at before anything that lists tiles, pieces or polynomials. Everything here is arithmetic on the description. Nothing is
allocated, and no list is made that grows with a size in it. The limits are many times what the papers' networks need.
"""

from collections.abc import Sequence

from privcirnet.he.layers.shape import LinearShape
from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece

MAX_TILES = 1 << 10
"""Most tiles along a transformed axis."""
MAX_PIECES = 1 << 12
"""Most pieces of a layer."""
MAX_CHANNEL_PAIRS = 1 << 22
"""Most pairs of an input and an output channel that meet, in a coefficient encoding."""
MAX_SEARCH = 1 << 14
"""Most ciphertexts that a coefficient encoding's channel pairs would fill, each pair with its map's phase images: its
placement is searched."""
MAX_CHANNELS = 1 << 11
"""Most channels in a coefficient encoding."""
MAX_SEARCHED_KERNEL = 7
"""Largest kernel and stride in a coefficient encoding."""
MAX_POSITIONS = 1 << 17
"""Most positions of a map in a coefficient encoding."""
MAX_WEIGHT_BITS = 32
"""Most bits of a weight that a coefficient encoding's noise bound is made for."""


def spectral_excess(layout: SpectralLayout, pieces: Sequence[Piece]) -> str:
    """Return what is too much about a spectral layer's tiles and pieces, "" if nothing.

    Args:
        pieces: what its grid of channel groups and tiles is said to be covered by.
    """
    if len(pieces) > MAX_PIECES:
        return f"{len(pieces)} pieces"
    axes = layout.rows, layout.columns
    if any(tiled.axis.transformed and tiled.count > MAX_TILES for tiled in axes):
        return f"{axes[0].count} x {axes[1].count} tiles"
    return ""


def coefficient_excess(encoding: str, shape: LinearShape, ring_degree: int, weight_bits: int) -> str:
    """Return what is too much about a layer in coefficient encoding, "" if nothing.

    Its placement is searched anew by whoever reads its shape. Falcon's dense packing is the longer search, and at the
    ring degrees of programs the spectral encoding of a depthwise convolution needs fewer ciphertexts: programs do
    without it.

    Args:
        encoding: "cheetah" or "falcon".
    """
    s = shape
    if encoding != "cheetah":
        return f"the encoding {encoding}, which programs do not use"
    pairs = s.in_channels * s.out_channels // s.groups
    if pairs * len(s.rows.taps) * len(s.columns.taps) > MAX_CHANNEL_PAIRS:
        return f"{pairs} channel pairs"
    if max(s.in_channels, s.out_channels) > MAX_CHANNELS or max(s.kernel, s.stride) > MAX_SEARCHED_KERNEL:
        return f"{s.in_channels} to {s.out_channels} channels, kernel {s.kernel}, stride {s.stride}"
    searched = pairs * s.height * s.width * min(s.kernel, s.stride) ** 2
    if s.height * s.width > MAX_POSITIONS or searched > MAX_SEARCH * ring_degree:
        return f"maps of {s.height} x {s.width} for {pairs} channel pairs"
    return "" if 2 <= weight_bits <= MAX_WEIGHT_BITS else f"weights of {weight_bits} bits"
