"""Parameters that BFV and CKKS share: ring, primes, digits, sizes; their security; and the names of switch keys.

Order of rows, in memory and on the wire: data primes first, of which the last are dropped first, then special primes.

Security: the largest log2 q for 128 bits of classical security with ternary secrets, of the Security Guidelines for
Implementing Homomorphic Encryption (Bossuat et al., 2024, eprint 2024/463). The special prime counts, because the keys
are ciphertexts modulo all of q. SEAL itself checks the older table only, that of the homomorphic encryption standard
(Albrecht et al., 2018), which the papers rest on. Their sets, of 218 bits at n = 8192, are for :mod:`measure` alone,
which asks for it by name. No program has them.

Names of keys: the key of an automorphism X -> X^g is named by its Galois element g, which is odd and under 2n; other
keys have even names. A key for the first data primes alone, with fewer special primes, is named :data:`LOW` more.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

from privcirnet.errors import RuleError
from privcirnet.he.rlwe.wire_bytes import WireFormat


@dataclass(frozen=True)
class RlweParameters:
    """Parameters of ring learning with errors; each scheme checks that its own are secure (:mod:`rlwe.parameters`).

    Attributes:
        ring_degree: n, a power of two.
        data_primes: primes of ciphertexts; those that are dropped first stand last.
        special_primes: primes whose product P is about as large as that of any digit, or larger.
        digit_primes: data primes in a digit of key switching.
    """

    ring_degree: int
    data_primes: tuple[int, ...]
    special_primes: tuple[int, ...]
    digit_primes: int = 1

    @cached_property
    def primes(self) -> tuple[int, ...]:
        """All primes in the order of rows."""
        return self.data_primes + self.special_primes

    def modulus(self, count: int) -> WireFormat:
        """Return the modulus of ciphertexts.

        Args:
            count: data primes.
        """
        return WireFormat(self.data_primes[:count], self.ring_degree)

    def key_modulus(self, count: int) -> WireFormat:
        """Return the modulus of the keys that switch ciphertexts.

        Args:
            count: data primes of a ciphertext.
        """
        return WireFormat(self.data_primes[:count] + self.special_primes, self.ring_degree)

    def digits(self, count: int) -> list[range]:
        """Return the data primes of each digit, by their numbers; the last digit may have fewer.

        Args:
            count: data primes of what is switched.
        """
        a = self.digit_primes
        return [range(first, min(first + a, count)) for first in range(0, count, a)]

    def key_bytes(self, count: int) -> int:
        """Return the bytes of a switch key on the wire: for every digit a polynomial under all primes, and a seed.

        Args:
            count: data primes of what is switched with it.
        """
        return len(self.digits(count)) * self.key_modulus(count).seeded_size()

    def loaded_key_bytes(self, count: int) -> int:
        """Return the bytes of a switch key in memory, where both polynomials are there in whole words.

        Args:
            count: data primes of what is switched with it.
        """
        return len(self.digits(count)) * 2 * (count + len(self.special_primes)) * self.ring_degree * 8


RELINEARIZATION = 0
"""Name of the key for products of ciphertexts."""

EPHEMERAL = FROM_EPHEMERAL, TO_EPHEMERAL = 2, 4
"""Names of the keys from the sparse secret of bootstrapping, and to it."""

LOW = 1 << 20


def is_low(name: int) -> bool:
    """Return whether a key is one for the first data primes alone."""
    return name >= LOW


def galois_element(step: int, ring_degree: int, base: int = 3) -> int:
    """Return the Galois element of a rotation to the left.

    Args:
        step: columns of BFV's rows, or slots of CKKS.
        base: number whose powers are the exponents of neighbouring slots: 3 in BFV, 5 in CKKS.
    """
    return pow(base, step, 2 * ring_degree)


def conjugation_element(ring_degree: int) -> int:
    """Return the Galois element of X -> 1 / X: it exchanges BFV's rows, and conjugates the slots of CKKS."""
    return 2 * ring_degree - 1


def check_held(names: Collection[int], available: Collection[int], where: str = "") -> None:
    """Raise unless there is a key of every name.

    Args:
        available: names of the keys that there are.
        where: place where they are needed, for the message.

    Raises:
        RuleError: a key is missing.
    """
    if missing := sorted(set(names) - set(available)):
        raise missing_key(missing, where)


def missing_key(names: Sequence[int], where: str = "") -> RuleError:
    """Return the error for keys that are not there."""
    got, remedy = f"none for the Galois elements {[*names]}{where}", "make keys for the circuit's rotations"
    return RuleError("every rotation must have a key", got=got, remedy=remedy)


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
