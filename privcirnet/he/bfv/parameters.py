"""BFV parameters (n, q, t), checked, and the choice of t for given transform lengths.

n is the ring degree, q the product of the coefficient primes, t the plain modulus. t is a prime that is 1 modulo 2n, so
that a plaintext has n slots, and modulo every transform length, so that the transforms exist modulo t.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular
from privcirnet.he.rlwe.parameters import TABLE, RlweParameters, check_security

MAX_PLAIN_BITS = 60
"""Most bits of t."""

DEFAULT_COEFFICIENT_BITS = (54, 54, 53, 53)
"""Three primes for data and the special prime, 214 bits in all at n = 8192: one prime fewer than SEAL's default, so
that a rotation takes two thirds of the time and a ciphertext three quarters of the numbers. With flooding it carries
plain moduli of up to 48 bits."""

WIDE_RING_DEGREE = 16384
WIDE_COEFFICIENT_BITS = (48, 48, 48, 48, 49)
"""The least modulus that carries a 60-bit plain modulus with flooding; its residues fill whole bytes."""

NARROW_RING_DEGREE = 4096
NARROW_COEFFICIENT_BITS = (48, 42, 16)
"""Primes for coefficient encodings (papers/coefficients), whose noise is small: 90 bits of data. The special prime,
which only public-key encryption uses where nothing is rotated, is the shortest that is 1 mod 2n and that the library
accepts (40961). With flooding it carries plain moduli of up to 30 bits under a noise bound of 2^16; a reply keeps one
prime, 6 bytes."""


@dataclass(frozen=True)
class ParameterSet:
    """A ring degree and a modulus, before there is a plain modulus; not checked.

    Attributes:
        coefficient_bits: bits of each prime of q, the special prime last.
    """

    ring_degree: int
    coefficient_bits: tuple[int, ...]

    def __str__(self) -> str:
        return f"n = {self.ring_degree}, q of {'+'.join(map(str, self.coefficient_bits))} bits"

    @property
    def log_q(self) -> int:
        """Bits of q, special prime included."""
        return sum(self.coefficient_bits)


@dataclass(frozen=True)
class Parameters:
    """BFV parameters, checked.

    Attributes:
        ring_degree: n, slots of a ciphertext; a power of two.
        coefficient_bits: bits of each prime of q, the special prime (key switching) last.
        plain_modulus: t, prime, 1 mod 2n.
        table: table that security is judged by. Only benchmarks have another, and no program's description holds it.

    Raises:
        RuleError: not 128-bit secure, or t does not suit n and q.
    """

    ring_degree: int
    coefficient_bits: tuple[int, ...]
    plain_modulus: int
    table: str = TABLE

    def __post_init__(self) -> None:
        check_security(self.ring_degree, self.coefficient_bits, self.table)
        _check_plain_modulus(self.plain_modulus, self.ring_degree)
        if self.plain_modulus in coefficient_primes(self.ring_degree, self.coefficient_bits):
            raise RuleError(
                "the plain modulus must not be a prime of q",
                got=self.plain_modulus,
                remedy="let parameters.choose find another",
            )

    @cached_property
    def rlwe(self) -> RlweParameters:
        """The primes of q in SEAL's order, of which the last is the special one; a digit has one prime."""
        primes = ordered_primes(self.ring_degree, self.coefficient_bits)
        return RlweParameters(self.ring_degree, primes[:-1], primes[-1:])

    @property
    def log_q(self) -> int:
        """Bits of the whole modulus, special prime included, which security depends on."""
        return sum(self.coefficient_bits)

    @property
    def plain_bits(self) -> int:
        """Bits of t."""
        return self.plain_modulus.bit_length()


@lru_cache(maxsize=64)
def coefficient_primes(ring_degree: int, coefficient_bits: tuple[int, ...]) -> frozenset[int]:
    """Return the primes of q as SEAL picks them: of each size the largest that are 1 mod 2n.

    Args:
        coefficient_bits: bits of each prime.

    Raises:
        RuleError: there are not that many primes of some size.
    """
    primes: frozenset[int] = frozenset()
    for bits in coefficient_bits:
        primes |= {modular.largest_prime(bits, 2 * ring_degree, primes)}
    return primes


@lru_cache(maxsize=64)
def ordered_primes(ring_degree: int, coefficient_bits: tuple[int, ...]) -> tuple[int, ...]:
    """Return :func:`coefficient_primes` in SEAL's order: those of one size ascend.

    Args:
        coefficient_bits: bits of each prime.

    Raises:
        RuleError: there are not that many primes of some size.

    >>> [p.bit_length() for p in ordered_primes(8192, (55, 54, 55))]
    [55, 54, 55]
    """
    ascending = sorted(coefficient_primes(ring_degree, coefficient_bits), reverse=True)
    by_size = {bits: [p for p in ascending if p.bit_length() == bits] for bits in set(coefficient_bits)}
    return tuple(by_size[bits].pop() for bits in coefficient_bits)


def choose(
    lengths: set[int],
    plain_bits: int,
    ring_degree: int = 8192,
    coefficient_bits: tuple[int, ...] = DEFAULT_COEFFICIENT_BITS,
    table: str = TABLE,
) -> Parameters:
    """Return parameters with the largest prime t of a size that has roots of unity for every transform length.

    Args:
        plain_bits: bits of t.
        coefficient_bits: bits of each prime of q, the special prime last.
        table: name of the table that security is judged by.

    Raises:
        RuleError: there is no such prime, ``plain_bits`` is over 60, or (n, q) is not secure.
    """
    if plain_bits > MAX_PLAIN_BITS:
        raise RuleError(
            f"the plain modulus must have at most {MAX_PLAIN_BITS} bits",
            got=f"{plain_bits} bits",
            remedy="lower the bits of weights and activations, or the truncation's failure_bits",
        )
    check_security(ring_degree, coefficient_bits, table)
    bits, multiple = tuple(coefficient_bits), math.lcm(2 * ring_degree, *lengths)
    t = modular.largest_prime(plain_bits, multiple, coefficient_primes(ring_degree, bits))
    return Parameters(ring_degree, bits, t, table)


def _check_plain_modulus(t: int, ring_degree: int) -> None:
    if t.bit_length() > MAX_PLAIN_BITS or (t - 1) % (2 * ring_degree) or not modular.is_prime(t):
        raise RuleError(
            f"the plain modulus must be a prime of at most {MAX_PLAIN_BITS} bits that is 1 mod 2n",
            got=f"t = {t}, n = {ring_degree}",
            remedy="let parameters.choose find one",
        )
