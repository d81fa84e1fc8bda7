"""The passes of quantizers over their values: rounding to a multiple of a step, and its gradients.

All arrays are float32, (N,). Each kernel works on the values from ``first`` to ``last``, so that threads share them.
Random numbers are a hash of the value's place and of a seed: a backward pass finds those of the forward pass again, so
nothing is kept between the two but the values themselves. The hash is Wellons' "lowbias32"; it hides nothing and needs
not to.
"""

import math

import numpy as np
from numpy.typing import NDArray

from privcirnet.he.system.jit import inline, jit_of_floats

Values = NDArray[np.float32]
NEAREST = 0
"""The seed that stands for rounding to nearest, ties up."""
_RUN = 1024
"""Number of values whose gradients are added up in float32."""


@inline
def _rounded(scaled: np.float32, place: int, seed: np.uint32) -> np.float32:
    """Return the integer to which a number of steps is rounded: up if its fraction exceeds a threshold.

    The threshold is a random number in [0, 1), or 1/2, which itself goes up, for the seed :data:`NEAREST`.
    """
    floor = np.floor(scaled)
    rest = scaled - floor
    bits = np.uint32(np.uint32(place) * np.uint32(0x9E3779B9)) ^ seed  # Numba makes 64 bits of a product
    bits = np.uint32((bits ^ (bits >> np.uint32(16))) * np.uint32(0x7FEB352D))
    bits = np.uint32((bits ^ (bits >> np.uint32(15))) * np.uint32(0x846CA68B))
    bits = bits ^ (bits >> np.uint32(16))
    threshold = np.float32(np.int32(bits >> np.uint32(8))) * np.float32(2**-24)
    up = rest >= np.float32(0.5) if seed == np.uint32(NEAREST) else rest > threshold
    return floor + (np.float32(1) if up else np.float32(0))


@jit_of_floats
def round_all(  # noqa: PLR0913, PLR0917
    x: Values, step: float, lowest: float, highest: float, seed: int, out: Values, first: int, last: int
) -> None:
    """Write each value rounded to a multiple of the step within limits.

    Args:
        step: a power of two.
        seed: under 2^32; :data:`NEAREST` for none.
        out: changed in place.
        last: place behind the last one.
    """
    scale, size, key = np.float32(1 / step), np.float32(step), np.uint32(seed)
    low, high = np.float32(lowest), np.float32(highest)
    x, out = x[first:last], out[first:last]  # places from 0 on are vectorized: none can be negative
    for i in range(x.size):
        value = _rounded(x[i] * scale, first + i, key)
        value = low if value < low else value
        value = high if value > high else value
        out[i] = value * size


@jit_of_floats
def learned_gradients(  # noqa: PLR0913, PLR0917
    x: Values,
    step: float,
    lowest: float,
    highest: float,
    seed: int,
    gradient: Values,
    out: Values,
    total: NDArray[np.float64],
    first: int,
    last: int,
) -> None:
    """Write the gradient of :func:`round_all` for x, and add that for the logarithm of the step.

    Args:
        step, lowest, highest, seed: see :func:`round_all`.
        out: gradient of x, changed in place.
        total: (1,), changed in place.
        last: place behind the last one.
    """
    scale, key = np.float32(1 / step), np.uint32(seed)
    low, high, slope = np.float32(lowest), np.float32(highest), step * math.log(2)
    for start in range(first, last, _RUN):
        end, partial = min(start + _RUN, last), np.float32(0)
        values, gradients, results = x[start:end], gradient[start:end], out[start:end]
        for i in range(values.size):
            scaled = values[i] * scale
            value = _rounded(scaled, start + i, key)
            clipped = low if value < low else value
            clipped = high if clipped > high else clipped
            inside = clipped == value
            results[i] = gradients[i] if inside else np.float32(0)
            partial += gradients[i] * (clipped - (scaled if inside else np.float32(0)))
        total[0] += partial * slope
