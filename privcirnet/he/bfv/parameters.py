"""BFV parameters (n, q, t), checked, the choice of t, and what follows: bytes on the wire, the format of replies.

n is the ring degree, q the product of the coefficient primes, t the plain modulus. t is a prime that is 1 modulo 2n, so
that a plaintext has n slots, and modulo every transform length, so that the transforms exist modulo t.

Bytes: the format is that of :mod:`rlwe.wire_bytes`. A fresh ciphertext and a digit of a Galois key hold one polynomial
and a seed, which stands for the other. A reply holds two polynomials, rounded to little more than the bits of t. SEAL's
seeds are longer than the kernels'.

Rounding: after the modulus switch a coefficient x is a number mod q', the product of a few primes, most of whose bits
hold noise. Messages hold round(x 2^k / q') mod 2^k, and the client takes round(q' y / 2^k) for x. That is a modulus
switch to a power of two and back. :func:`reply_bits` says which k keeps every reply right; where 2^k >= q' nothing is
lost. A reply tells no more than before, since the rounding is a function of it. :mod:`bfv.kernels.reply` does it.

Format: for either polynomial the lower floor(k / 2) bits of all coefficients in ascending order, then the others, as
one stream of bits that ends with a whole byte, little-endian.

Source: modulus switching is Brakerski and Vaikuntanathan's (FOCS 2011). Cheetah (USENIX Security 2022, section 5) drops
low bits of both polynomials, too.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

from privcirnet.errors import RuleError
from privcirnet.he.ring import modular
from privcirnet.he.rlwe.parameters import TABLE, RlweParameters, check_security
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Message, WireFormat, check_length, packed_bytes

MAX_PLAIN_BITS = 60
"""Most bits of t."""

DEFAULT_RING_DEGREE, DEFAULT_COEFFICIENT_BITS = 8192, (54, 54, 53, 53)
"""Three primes for data and the special prime, 214 bits in all at n = 8192: one prime fewer than SEAL's default, so
that a rotation takes two thirds of the time and a ciphertext three quarters of the numbers. With flooding it carries
plain moduli of up to 48 bits."""

WIDE_RING_DEGREE = 16384
WIDE_COEFFICIENT_BITS = (48, 48, 48, 48, 49)
"""The least modulus that carries a 60-bit plain modulus with flooding."""

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
    ring_degree: int = DEFAULT_RING_DEGREE,
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


SEAL_SEED_BYTES = 64
FIRST_MARGIN, SECOND_MARGIN = 5, 10
"""Bits over those of t that the coefficients of a reply's two polynomials have.

Rounding errors of the second polynomial meet the secret key: their standard deviation is sqrt(n / 18), 21 at n = 8192
and 30 at 16384, and decrypt under 2^9, of which flooding and the first polynomial's rounding leave 13 deviations.
Where the primes that are left have hardly more bits, their own switch takes as much again: 9 deviations are left, and
13 at n = 8192."""


def reply_primes(coefficient_bits: tuple[int, ...], plain_bits: int) -> int:
    """Return the number of data primes that a reply keeps: the fewest with room for the switch's rounding noise.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of t.
    """
    data = coefficient_bits[:-1]
    for count in range(1, len(data)):
        if sum(data[:count]) >= plain_bits + SECOND_MARGIN:
            return count
    return len(data)


class ReplyBits(NamedTuple):
    """Bits of a coefficient of a reply's polynomials c0 and c1.

    Attributes:
        first: bits of c0.
        second: bits of c1.
    """

    first: int
    second: int

    def octets(self, ring_degree: int, count: int) -> int:
        """Return the bytes of a reply; each polynomial ends with a whole one.

        Args:
            count: coefficients of c0 that are sent.
        """
        return -(-count * self.first // 8) - (-ring_degree * self.second // 8)


def reply_bits(coefficient_bits: tuple[int, ...], plain_bits: int) -> ReplyBits:
    """Return the bits of a reply's coefficients: those of t and a margin, or of the primes if these have fewer.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of t.

    >>> reply_bits((48, 48, 48, 48, 49), 55), reply_bits((54, 54, 53, 53), 44)
    (ReplyBits(first=60, second=65), ReplyBits(first=49, second=54))
    """
    total = sum(coefficient_bits[: reply_primes(coefficient_bits, plain_bits)])
    return ReplyBits(min(plain_bits + FIRST_MARGIN, total), min(plain_bits + SECOND_MARGIN, total))


def message_bytes(parameters: Parameters, seed: int = SEED_BYTES) -> tuple[int, int]:
    """Return the bytes of one ciphertext on the wire: (client to server, server to client).

    Args:
        parameters: n, q, t. The client's ciphertext is seeded, the server's is rounded.
        seed: bytes of a seed.
    """
    return ciphertext_bytes(parameters.ring_degree, parameters.coefficient_bits, parameters.plain_bits, seed)


def ciphertext_bytes(
    ring_degree: int, coefficient_bits: tuple[int, ...], plain_bits: int, seed: int = SEED_BYTES
) -> tuple[int, int]:
    """Return :func:`message_bytes` before a plain modulus is chosen.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of t.
        seed: bytes of a seed.
    """
    down = reply_bits(coefficient_bits, plain_bits).octets(ring_degree, ring_degree)
    return packed_bytes(ring_degree, coefficient_bits[:-1]) + seed, down


def key_bytes(parameters: Parameters | ParameterSet, seed: int = SEED_BYTES) -> int:
    """Return the bytes of one compact Galois key: for every data prime a polynomial mod every prime, and a seed.

    Args:
        seed: bytes of a seed.
    """
    bits = parameters.coefficient_bits
    return (len(bits) - 1) * (packed_bytes(parameters.ring_degree, bits) + seed)


@dataclass(frozen=True)
class ReplyFormat:
    """Format of a reply's bytes.

    Attributes:
        modulus: q', after the switch.
    """

    modulus: WireFormat
    bits: ReplyBits

    @classmethod
    def of(cls, parameters: Parameters, primes: tuple[int, ...]) -> "ReplyFormat":
        """Return the format that follows from parameters.

        Args:
            parameters: n, q, t.
            primes: primes of q, at least the first ones, in SEAL's order.
        """
        count = reply_primes(parameters.coefficient_bits, parameters.plain_bits)
        bits = reply_bits(parameters.coefficient_bits, parameters.plain_bits)
        return cls(WireFormat(primes[:count], parameters.ring_degree), bits)

    def cut(self, message: Message, count: int) -> tuple[Message, Message]:
        """Return the bytes of the two polynomials.

        Args:
            count: coefficients of the first polynomial that it holds.

        Raises:
            RuleError: the length is wrong.
        """
        check_length(message, self.bits.octets(self.modulus.ring_degree, count))
        end = self.bits.octets(0, count)
        return message[:end], message[end:]


def digits(bits: int) -> tuple[int, int]:
    """Return the bits of the two parts that a coefficient is sent in, the lower one first.

    Args:
        bits: k.
    """
    return bits // 2, bits - bits // 2
