"""CinS encoding (NeuJeans, section 3): coefficients in slots, real numbers in all n places.

Maths: n = w^2 C values are C slices of 2 l = w^2. A slice is encoded as if it were the coefficients of a polynomial of
degree under 2 l: its slots are the first 2 l-th part of a canonical embedding of their own (equation 6),

    CinS(m_1 | ... | m_C) = slots (DFT'(m_1) | ... | DFT'(m_C)),    DFT'(x)_j = sum_k x_k omega^(5^j k),

omega = exp(i pi / (2 l)). A product of slots is then a negacyclic convolution of every slice with its partner
(equation 7), and a rotation by l slots moves slices. C = 1 is the coefficient encoding; 2 l = 2 has one slot a slice.
"""

from collections.abc import Iterable

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.ckks import embedding
from privcirnet.he.ckks.embedding import Reals, Slots


def encode(slices: Reals) -> Slots:
    """Return the slots of real slices, shape (n / 2,): equation 6.

    Args:
        slices: shape (C, 2 l), 2 l a power of two, at least 2.
    """
    return embedding.to_slots(slices).reshape(-1)


def decode(slots: Slots, length: int) -> Reals:
    """Return the real slices of slots, shape (C, 2 l).

    Args:
        slots: shape (n / 2,).
        length: 2 l.
    """
    return embedding.to_coefficients(slots.reshape(-1, length // 2))


def pad(images: Reals, width: int, kernel: int = 1) -> Reals:
    """Return channels as slices: each in the upper left of a square, row by row (section 3.3.2).

    Args:
        images: shape (C, H, H).
        width: w of the square, a power of two.
        kernel: f of the convolution that follows, odd.

    Returns:
        shape (C, w^2).

    Raises:
        RuleError: the maps and their padding do not fit the square, or f is even.
    """
    channels, size = images.shape[:2]
    if kernel % 2 == 0 or size + kernel // 2 > width:
        rule = "a map and the radius of an odd kernel must fit the width of a slice"
        raise RuleError(rule, got=f"{size} + {kernel // 2} for {width}", remedy=f"use {width_for(size, kernel | 1)}")
    found = np.zeros((channels, width, width))
    found[:, :size, :size] = images
    return found.reshape(channels, width * width)


def width_for(size: int, kernel: int) -> int:
    """Return the width w of slices for maps under a kernel: the least power of two with room for the kernel's radius.

    As many columns of zeros on the right serve the padding of a row's end and of the next row's beginning, and rows of
    zeros at the bottom those of the last row and, wrapped, of the first.

    Args:
        size: of the map, H = W.
        kernel: f, odd.
    """
    return 1 << (size + kernel // 2 - 1).bit_length()


Taps = Iterable[tuple[int, int, float]]
"""(dy, dx, weight): an output pixel (y, x) adds weight times the input's pixel (y + dy, x + dx)."""


def taps(kernel: Reals) -> Taps:
    """Return the taps of a kernel with padding (f - 1) / 2.

    Args:
        kernel: shape (f, f), f odd.
    """
    radius = kernel.shape[0] // 2
    return [(u - radius, v - radius, float(weight)) for (u, v), weight in np.ndenumerate(kernel)]


def kernel_slice(taps: Taps, width: int) -> Reals:
    """Return the slice whose negacyclic convolution with a padded map is the map's convolution, shape (w^2,): Figure 1.

    A weight stands at place -dy w - dx; where that wraps it has the other sign.

    Args:
        width: w.
    """
    found = np.zeros(width * width)
    for dy, dx, weight in taps:
        place = -dy * width - dx
        found[place % found.size] += weight if place >= 0 else -weight
    return found
