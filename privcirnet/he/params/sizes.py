"""Bytes of ciphertexts and keys on the wire, from the parameters alone.

The format is that of :mod:`engines.wire_bytes`. A fresh ciphertext and a digit of a Galois key hold one polynomial and
a seed, which stands for the other. A reply holds two polynomials modulo the primes that are left after the modulus
switch.
"""

from privcirnet.he.params.parameters import MAX_PLAIN_BITS, Parameters

SEED_BYTES = 64
"""Bytes of the seed that stands for the uniform half of a fresh ciphertext or of a key's digit."""

_SWITCH_MARGIN = 10
"""Bits over those of t that a reply's modulus has at least. The rounding of the switch has a standard deviation of
sqrt(n / 18), 21 at n = 8192 and 30 at 16384, and decrypts under 2^9, of which flooding noise leaves 13 deviations or
more: it never fails."""


SHARE_BYTES = 8
"""Bytes of one value's share in a message: a little-endian word."""


def reply_primes(coefficient_bits: tuple[int, ...], plain_bits: int) -> int:
    """Return how many data primes a reply keeps: the fewest that leave room for the switch's own rounding noise.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of t.
    """
    data = coefficient_bits[:-1]
    for count in range(1, len(data)):
        if sum(data[:count]) >= plain_bits + _SWITCH_MARGIN:
            return count
    return len(data)


def as_short(coefficient_bits: tuple[int, ...], plain_bits: int) -> int:
    """Return the most bits of a t with which a reply is as short as with another.

    Args:
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of the other t.
    """
    data, kept = coefficient_bits[:-1], reply_primes(coefficient_bits, plain_bits)
    return MAX_PLAIN_BITS if kept == len(data) else min(MAX_PLAIN_BITS, sum(data[:kept]) - _SWITCH_MARGIN)


def message_bytes(parameters: Parameters) -> tuple[int, int]:
    """Return the bytes of one ciphertext on the wire: (client to server, server to client).

    Args:
        parameters: n, q, t. The client's ciphertext is seeded, the server's is switched to fewer primes.
    """
    return ciphertext_bytes(parameters.ring_degree, parameters.coefficient_bits, parameters.plain_bits)


def ciphertext_bytes(ring_degree: int, coefficient_bits: tuple[int, ...], plain_bits: int) -> tuple[int, int]:
    """Return :func:`message_bytes` before a plain modulus is chosen.

    Args:
        ring_degree: n.
        coefficient_bits: bits of each prime of q, the special prime last.
        plain_bits: bits of t.
    """
    widths = _widths(coefficient_bits[:-1])
    kept = reply_primes(coefficient_bits, plain_bits)
    return ring_degree * sum(widths) + SEED_BYTES, 2 * ring_degree * sum(widths[:kept])


def key_bytes(parameters: Parameters) -> int:
    """Return the bytes of one compact Galois key: for every data prime a polynomial mod every prime, and a seed.

    Args:
        parameters: n and q.
    """
    widths = _widths(parameters.coefficient_bits)
    return (len(widths) - 1) * (parameters.ring_degree * sum(widths) + SEED_BYTES)


def residue_bytes(bits: int) -> int:
    """Return the whole bytes that a residue takes.

    Args:
        bits: of its prime.
    """
    return -(-bits // 8)


def _widths(coefficient_bits: tuple[int, ...]) -> list[int]:
    return [residue_bytes(bits) for bits in coefficient_bits]
