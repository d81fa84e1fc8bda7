"""Named tolerances and where they come from.

u is the unit roundoff of a dtype, half the gap between 1 and the next number. The bounds are the standard ones of
floating point summation: a sum of n products, in any order, is off by at most n u / (1 - n u) times the sum of their
magnitudes.
Nothing here is tuned: where a test needs more than its bound, the code is wrong.
"""

import torch

FLOAT_DTYPES = (torch.float64, torch.float32, torch.bfloat16)
"""What weights are stored in."""


def unit_roundoff(dtype: torch.dtype) -> float:
    """Relative error of one rounding."""
    return torch.finfo(dtype).eps / 2


def dot_product(dtype: torch.dtype, terms: int, magnitude: float) -> float:
    """Largest difference of two evaluations of one sum of products, in different orders.

    `terms` counts the products and the roundings made on each before or after; `magnitude` bounds the sum of the
    products' magnitudes. Each evaluation is off by n u / (1 - n u) of it, hence twice that.
    """
    relative = terms * unit_roundoff(dtype)
    return 2 * relative / (1 - relative) * magnitude


def network(dtype: torch.dtype, layers: int, terms: int, magnitude: float, growth: float = 10.0) -> float:
    """Largest difference of two evaluations of one network.

    Each layer adds the difference of one sum of `terms` products; what follows amplifies it by no more than `growth`,
    relative to the output's magnitude. Meant for float64, where the room to a real fault is wide.
    """
    return growth * layers * dot_product(dtype, terms, magnitude)
