"""The sparse secret that a ciphertext is under while its modulus is raised.

Maths (Bossuat, Troncoso-Pastoriza and Hubaux, 2022): at level 0 a ciphertext is switched from s to s', which has h
coefficients that are not zero, with one special prime p. Read modulo the whole chain it is c0 + c1 s' = S_0 m + q_0 I.
A coefficient of I is (c0 + c1 s') / q_0 rounded, and that is a sum of h + 1 independent numbers that are uniform in
[-1/2, 1/2): |I| > K as often as such a sum is over K + 1/2 (Irwin and Hall). Then the ciphertext is switched back to s,
under all primes.

Security: s' is in one key alone, with modulus q_0 p, 120 bits at most; all that is longer is under s. At n = 65536 and
h = 32 the paper's authors state 128 bits, for attacks that guess where s' is zero too. The table of 2024 has no sparse
secrets. Smaller rings have no such figure: h is for 65536 alone, and for toys.
"""

import math
from fractions import Fraction

from privcirnet.errors import RuleError

_SECURE = {65536: 32}
"""Ring degree -> the least weight with 128-bit security at a modulus of 120 bits."""


def check_weight(ring_degree: int, weight: int) -> None:
    """Raise unless a sparse secret is 128-bit secure at a modulus of 120 bits.

    Args:
        weight: h; 0: there is no sparse secret.

    Raises:
        RuleError: it is not, or nobody has stated that it is.
    """
    if weight and weight < _SECURE.get(ring_degree, math.inf):
        rule = f"a sparse secret's weight must be {', '.join(f'{h} or more at n = {n}' for n, h in _SECURE.items())}"
        raise RuleError(rule, got=f"{weight} at n = {ring_degree}", remedy="use ephemeral_weight=0 in smaller rings")


def tail_bits(weight: int, multiples: int) -> float:
    """Return -log2 of the probability that one coefficient of I is over K in absolute value; exact.

    Args:
        weight: h.
        multiples: K.
    """
    count, above = weight + 1, Fraction(weight, 2) - multiples
    terms = [(-1) ** k * math.comb(count, k) * (above - k) ** count for k in range(max(math.ceil(above), 0))]
    probability = 2 * sum(terms, Fraction(0)) / math.factorial(count)
    return math.log2(probability.denominator) - math.log2(probability.numerator) if probability else math.inf


def overflow_bound(ring_degree: int, weight: int, failure_bits: float) -> int:
    """Return the least K that all n coefficients of I keep, but for a probability of 2^-failure_bits.

    Args:
        weight: h.
    """
    aim = failure_bits + math.log2(ring_degree)
    return next(k for k in range(weight // 2 + 1) if tail_bits(weight, k) >= aim)
