"""The security of ring learning with errors at a ring degree n and a modulus q.

Source: the homomorphic encryption standard (Albrecht et al., 2018), table 1: the largest log2 q for 128 bits of
classical security with ternary secrets. The special prime counts, because the keys are ciphertexts modulo all of q.
"""

from privcirnet.errors import RuleError

SECURITY_BITS = 128
"""Bits of classical security that every set of parameters has."""

MAX_LOG_Q = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
"""Ring degree n -> largest log2 q with 128-bit security."""

_MIN_DATA_BITS, _MIN_SPECIAL_BITS = 20, 16


def check_security(ring_degree: int, coefficient_bits: tuple[int, ...]) -> None:
    """Raise unless (n, q) is in the 128-bit table.

    Args:
        ring_degree: n.
        coefficient_bits: bits of each prime of q, the special prime last.

    Raises:
        RuleError: the ring degree is not in the table, q is too long for it, or a prime has too few or too many bits.
    """
    limit = MAX_LOG_Q.get(ring_degree)
    if limit is None:
        known = ", ".join(map(str, MAX_LOG_Q))
        raise RuleError("the ring degree must be in the 128-bit table", got=ring_degree, remedy=f"use {known}")
    if sum(coefficient_bits) > limit:
        raise RuleError(
            f"log2 q must be at most {limit} at ring degree {ring_degree} for {SECURITY_BITS}-bit security",
            got=f"{sum(coefficient_bits)} bits",
            remedy="use smaller coefficient primes or a larger ring degree",
        )
    data, special = coefficient_bits[:-1], coefficient_bits[-1:]
    if not data or max(coefficient_bits) > 60 or min(data) < _MIN_DATA_BITS or min(special) < _MIN_SPECIAL_BITS:
        raise RuleError(
            f"q must be two or more primes of {_MIN_DATA_BITS} to 60 bits, the special prime {_MIN_SPECIAL_BITS} to 60",
            got=coefficient_bits,
            remedy="e.g. 55,55,54,54",
        )
