"""Bytes of ciphertexts and keys on the wire, from the parameters alone; the format of replies.

The format is that of :mod:`rlwe.wire_bytes`. A fresh ciphertext and a digit of a Galois key hold one polynomial and
a seed, which stands for the other. A reply holds two polynomials, rounded to little more than the bits of t.
SEAL's seeds are longer than the kernels'.

Rounding: after the modulus switch a coefficient x is a number mod q', the product of a few primes, most of whose bits
hold noise. Messages hold round(x 2^k / q') mod 2^k, and the client takes round(q' y / 2^k) for x. That is a modulus
switch to a power of two and back. :func:`reply_bits` says which k keeps every reply right; where 2^k >= q' nothing is
lost. A reply tells no more than before, since the rounding is a function of it. :mod:`bfv.kernels.reply` does it.

Format: for either polynomial the lower floor(k / 2) bits of all coefficients in ascending order, then the others, as
one stream of bits that ends with a whole byte, little-endian.

Source: modulus switching is Brakerski and Vaikuntanathan's (FOCS 2011). Cheetah (USENIX Security 2022, section 5) drops
low bits of both polynomials, too.
"""

from dataclasses import dataclass
from typing import NamedTuple

from privcirnet.he.bfv.parameters import Parameters, ParameterSet
from privcirnet.he.rlwe.wire_bytes import SEED_BYTES, Message, WireFormat, check_length, residue_bytes

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
    return ring_degree * sum(map(residue_bytes, coefficient_bits[:-1])) + seed, down


def key_bytes(parameters: Parameters | ParameterSet, seed: int = SEED_BYTES) -> int:
    """Return the bytes of one compact Galois key: for every data prime a polynomial mod every prime, and a seed.

    Args:
        seed: bytes of a seed.
    """
    bits = parameters.coefficient_bits
    return (len(bits) - 1) * (parameters.ring_degree * sum(map(residue_bytes, bits)) + seed)


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
