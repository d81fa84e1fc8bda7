"""Limits on the work that a layer's description may ask of its reader, for each encoding.

A description may come from somebody else: a server tells its clients how its layers are computed. So sizes are looked
at before anything that lists tiles, pieces or polynomials. Everything here is arithmetic on the description. Nothing is
allocated, and no list is made that grows with a size in it. The limits are many times what the papers' networks need.
"""

from collections.abc import Sequence

from privcirnet.he.layers.spectral_layout import SpectralLayout
from privcirnet.he.layers.spectral_pieces import Piece

MAX_TILES = 1 << 10
"""Most tiles along a transformed axis."""
MAX_PIECES = 1 << 12
"""Most pieces of a layer."""


def spectral_excess(layout: SpectralLayout, pieces: Sequence[Piece]) -> str:
    """Return the excess of a spectral layer's tiles and pieces, "" if there is none.

    Args:
        pieces: pieces that its grid of channel groups and tiles is said to be covered by.
    """
    if len(pieces) > MAX_PIECES:
        return f"{len(pieces)} pieces"
    axes = layout.rows, layout.columns
    if any(tiled.axis.transformed and tiled.count > MAX_TILES for tiled in axes):
        return f"{axes[0].count} x {axes[1].count} tiles"
    return ""
