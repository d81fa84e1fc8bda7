"""CinS encoding (NeuJeans, section 3): coefficients in slots, real numbers in all n places.

Maths: n = w^2 C values are C slices of 2 l = w^2. A slice is encoded as if it were the coefficients of a polynomial of
degree under 2 l: its slots are the first 2 l-th part of a canonical embedding of their own (equation 6),

    CinS(m_1 | ... | m_C) = slots (DFT'(m_1) | ... | DFT'(m_C)),    DFT'(x)_j = sum_k x_k omega^(5^j k),

omega = exp(i pi / (2 l)). A product of slots is then a negacyclic convolution of every slice with its partner
(equation 7), and a rotation by l slots moves slices. C = 1 is coefficient encoding, l = 1/2... is none: slices of two
values are the least.
"""

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.leveled.ckks import embedding
from privcirnet.he.leveled.ckks.embedding import Reals, Slots


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


def pad(images: Reals, width: int) -> Reals:
    """Return channels as slices: each in the upper left of a square, row by row (section 3.3.2).

    Args:
        images: shape (C, H, W).
        width: w of the square, a power of two.

    Returns:
        shape (C, w^2).
    """
    channels, height, own = images.shape
    found = np.zeros((channels, width, width))
    found[:, :height, :own] = images
    return found.reshape(channels, width * width)


def square(size: int, kernel: int) -> int:
    """Return the width w of slices for maps of a size under a kernel: the least power of two with room for the padding.

    The products of a pixel with the kernel's rim must not reach pixels of the next row. With a padding of
    (kernel - 1) / 2 on each side, as many columns of zeros on the right serve both this row and the next.

    Args:
        size: of the map, H = W.
        kernel: f, odd.
    """
    return 1 << (size + (kernel - 1) // 2 - 1).bit_length()


def kernel_slice(kernel: Reals, width: int) -> Reals:
    """Return the slice whose negacyclic convolution with a padded map is its convolution, shape (w^2,): Figure 1.

    Output pixel (y, x) is the sum over (u, v) of kernel[u, v] map[y + u - r, x + v - r], r = (f - 1) / 2: the kernel's
    value is at place -(u - r) w - (v - r), with the sign of a place that wraps.

    Args:
        kernel: shape (f, f), f odd.
        width: w.
    """
    radius, found = kernel.shape[0] // 2, np.zeros(width * width)
    for (u, v), value in np.ndenumerate(kernel):
        place = -(u - radius) * width - (v - radius)
        found[place % found.size] += value if place >= 0 else -value
    return found


def check_size(size: int, kernel: int, width: int) -> None:
    """Raise unless maps and their padding fit a slice.

    Args:
        size: of the map, H = W.
        kernel: f.
        width: w.

    Raises:
        RuleError: they do not.
    """
    if kernel % 2 == 0 or size + kernel // 2 > width:
        got, remedy = f"{size} + {kernel // 2} for {width}", f"use slices of {square(size, kernel | 1)}"
        raise RuleError("a map and the kernel's radius (of an odd kernel) must fit its slice", got=got, remedy=remedy)
