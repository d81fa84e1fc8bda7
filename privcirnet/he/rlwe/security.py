"""The security of ring learning with errors at a ring degree n and a modulus q.

Source: Security Guidelines for Implementing Homomorphic Encryption (Bossuat et al., 2024, eprint 2024/463): the
largest log2 q for 128 bits of classical security with ternary secrets. The special prime counts, because the keys are
ciphertexts modulo all of q. SEAL itself checks the older table only.

The older table is that of the homomorphic encryption standard (Albrecht et al., 2018), which the papers rest on. Their
sets, of 218 bits at n = 8192, are for :mod:`measure` alone, which asks for it by name. No program has them.
"""

from privcirnet.errors import RuleError

SECURITY_BITS = 128
"""Bits of classical security that every set of parameters has."""

TABLES = {
    "2024": {1024: 26, 2048: 53, 4096: 106, 8192: 214, 16384: 430, 32768: 868, 65536: 1747},
    "2018": {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881},
}
"""Year of the table -> ring degree n -> largest log2 q with 128-bit security."""

TABLE = "2024"
"""The table that everything but a benchmark is checked by."""

MAX_LOG_Q = TABLES[TABLE]
"""Ring degree n -> largest log2 q with 128-bit security."""

_MIN_DATA_BITS, _MIN_SPECIAL_BITS = 20, 16


def check_security(ring_degree: int, coefficient_bits: tuple[int, ...], table: str = TABLE) -> None:
    """Raise unless (n, q) is in the 128-bit table.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        table: name in :data:`TABLES`.

    Raises:
        RuleError: the ring degree is not in the table, q is too long for it, or a prime has too few or too many bits.
    """
    check_modulus(ring_degree, sum(coefficient_bits), table)
    data, special = coefficient_bits[:-1], coefficient_bits[-1:]
    if not data or max(coefficient_bits) > 60 or min(data) < _MIN_DATA_BITS or min(special) < _MIN_SPECIAL_BITS:
        raise RuleError(
            f"q must be two or more primes of {_MIN_DATA_BITS} to 60 bits, the special prime {_MIN_SPECIAL_BITS} to 60",
            got=coefficient_bits,
            remedy="e.g. 54,54,53,53",
        )


def check_modulus(ring_degree: int, log_q: int, table: str = TABLE) -> None:
    """Raise unless a modulus is short enough for 128 bits.

    Args:
        log_q: bits of q, all special primes included.
        table: name in :data:`TABLES`.

    Raises:
        RuleError: the ring degree is not in the table, or q is too long for it.
    """
    limit = TABLES[table].get(ring_degree)
    if limit is None:
        degrees = ", ".join(map(str, MAX_LOG_Q))
        raise RuleError("the ring degree must be in the 128-bit table", got=ring_degree, remedy=f"use {degrees}")
    if log_q > limit:
        raise RuleError(
            f"log2 q must be at most {limit} at ring degree {ring_degree} for {SECURITY_BITS}-bit security",
            got=f"{log_q} bits",
            remedy="use smaller coefficient primes or a larger ring degree; export a program of an older version again",
        )
