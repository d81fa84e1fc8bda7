"""Toy parameters, for the clear-text engine only: no library would accept them, and neither does the package."""

import math

from privcirnet.he.bfv.parameters import DEFAULT_COEFFICIENT_BITS, Parameters
from privcirnet.he.ring import modular

INSECURE_RING_DEGREES = (64, 128, 256)


def insecure_parameters(ring_degree: int, lengths: set[int] | None = None, plain_bits: int = 41) -> Parameters:
    """INSECURE parameters of a toy ring degree, put together behind the back of the check."""
    t = modular.largest_prime(plain_bits, math.lcm(2 * ring_degree, *(lengths or {1})))
    toy = object.__new__(Parameters)
    object.__setattr__(toy, "ring_degree", ring_degree)
    object.__setattr__(toy, "coefficient_bits", DEFAULT_COEFFICIENT_BITS)
    object.__setattr__(toy, "plain_modulus", t)
    return toy
