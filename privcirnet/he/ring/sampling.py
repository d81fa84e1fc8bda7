"""Random residues from the operating system's generator: masks of shares, and noise that hides a reply.

:mod:`engines.kernels.sampling` draws what hides a reply for the compiled engine. :func:`flood` is the oracle of its
flooding noise: from the same random words, lowest digit first, both make the same residues of shape (primes, count).
They differ in the generator (there OpenSSL's, here the operating system's) and in that the compiled one carries at most
191 bits.

Circuit privacy: what a reply is added to so that its noise and its mask polynomial say nothing about the weights.

A reply (c0, c1) under the client's key s decrypts to c0 + c1 s = D m + e. The client made the inputs, so it knows their
c1 and noise; in the reply both are linear in the weights' plaintexts, c1 exactly so. Masking the slots hides m alone.

Two additions mend that. A fresh encryption of zero under the client's public key makes c1 look uniform to whoever does
not know the server's randomness (RLWE). Noise that is uniform in 2^:data:`FLOODING_BITS` times the range of e hides e
to that statistical distance. Both come before the modulus switch. See docs/mathematics.md, "Circuit privacy"; the
encryption of zero is not in the papers that this package follows.
"""

import os

import numpy as np

from privcirnet.he.ring import modular
from privcirnet.he.ring.modular import Residues
from privcirnet.he.ring.threads import each, ranges

FLOODING_BITS = 40
"""Statistical distance of a reply's noise from one that does not depend on the weights: 2^-40 a coefficient."""

ERROR_BITS = 21
"""Random bits on each side of a fresh encryption's error, which is the difference of their sums: SEAL's distribution,
of standard deviation sqrt(21 / 2) = 3.24."""

_LIMB = 64
_AT_ONCE = 1 << 14
"""Values that a thread draws at a time."""


def uniform(shape: tuple[int, ...], t: int) -> Residues:
    """Return uniform residues mod t from the operating system's generator, by rejection: no modulo bias.

    Args:
        shape: of the result.
        t: modulus under 2^64.
    """
    count = int(np.prod(shape, dtype=np.int64))
    found = np.empty(count, dtype=np.uint64)

    def fill(part: range) -> None:
        found[part.start : part.stop] = _uniform(len(part), t)

    each(fill, ranges(count, _AT_ONCE))
    return found.reshape(shape)


def _uniform(count: int, t: int) -> Residues:
    limit, width = np.uint64((1 << t.bit_length()) - 1), -(-t.bit_length() // 8)
    kept = np.empty(0, dtype=np.uint64)
    while kept.size < count:
        wanted = count - kept.size + 64
        octets = np.zeros((wanted, 8), dtype=np.uint8)
        octets[:, :width] = np.frombuffer(os.urandom(wanted * width), dtype=np.uint8).reshape(wanted, width)
        drawn = octets.view("<u8")[:, 0].astype(np.uint64) & limit
        kept = np.concatenate([kept, drawn[drawn < t]])
    return kept[:count]


def bounded(shape: tuple[int, ...], bound: int, t: int) -> Residues:
    """Return uniform residues in [B + 1, t - B], with B the bound or 1: as a mask of |y| <= B such a value cannot wrap.

    Args:
        shape: of the result.
        bound: B, of the values that are masked; 2 max(B, 1) < t.
        t: modulus under 2^63.
    """
    bound = max(bound, 1)
    return uniform(shape, t - 2 * bound) + np.uint64(bound + 1)


def flood(bits: int, primes: tuple[int, ...], count: int) -> Residues:
    """Return uniform integers in [-2^bits, 2^bits) from the operating system's generator, as residues.

    Args:
        bits: of the range.
        primes: of the modulus, each under 2^61.
        count: integers.

    Returns:
        residues, shape (primes, count).
    """
    limbs = _limbs(bits + 1, count)
    return np.stack([_residues(limbs, 1 << bits, prime) for prime in primes])


def _limbs(bits: int, count: int) -> Residues:
    """Return random integers of that many bits as base-2^64 digits, lowest first: (digits, count)."""
    digits = -(-bits // _LIMB)
    limbs = np.frombuffer(os.urandom(8 * digits * count), dtype=np.uint64).reshape(digits, count).copy()
    limbs[-1] &= np.uint64((1 << (bits - _LIMB * (digits - 1))) - 1)
    return limbs


def _residues(limbs: Residues, offset: int, prime: int) -> Residues:
    total = np.full(limbs.shape[1], -offset % prime, dtype=np.uint64)
    for index, limb in enumerate(limbs):
        weight = np.array([pow(2, _LIMB * index, prime)], dtype=np.uint64)
        quotient = modular.constant_quotients(weight, prime)
        total = modular.add(total, modular.multiply_constant(limb, weight, quotient, prime), prime)
    return total
