"""Randomness: a stream for each message, masks of shares, noise that hides a reply; and the zeroing of used secrets.

Streams: AES-256 in counter mode, its key the operating system's. Every stream has a key of its own, so that nothing
that a ciphertext is hidden by depends on state that others share: not on a fork, a copied virtual machine, or a
generator that an earlier one was drawn from. It is twelve times as fast as the operating system's generator. A reply
takes under 2^16 blocks of 16 bytes, a request fewer, which AES tells from random words with probability 2^-97 at most.
A sent seed stands for the stream whose key it is, and no other use is made of it (:mod:`rlwe.kernels.uniform`).

Zeroing: an array's own memory can be overwritten (:func:`wipe`). Copies that NumPy made on the way to it cannot be
found again, and bytes and integers of Python cannot be changed: such copies stay until the system hands their memory to
something else.

Circuit privacy: what a reply is added to so that its noise and its mask polynomial say nothing about the weights
(:mod:`ring.kernels.sampling` makes residues of it).

A reply (c0, c1) under the client's key s decrypts to c0 + c1 s = D m + e. The client made the inputs, so it knows their
c1 and noise; in the reply both are linear in the weights' plaintexts, c1 exactly so. Masking the slots hides m alone.

Two additions mend that. A fresh encryption of zero under the client's public key makes c1 look uniform to whoever does
not know the server's randomness (RLWE). Flooding noise, the sum of three uniform integers of at least
2^:data:`FLOODING_BITS` times the range of e, hides e. One uniform integer would hide a coefficient as well, but its
range has hard edges: a value beyond them tells e at once, so distances add up over the coefficients of an image. The
sum's density falls to zero with a square root that has a derivative, so that they add up as their squares
(:func:`image_distance_bits`). Both come before the modulus switch. See docs/mathematics.md, "Circuit privacy"; the
encryption of zero is not in the papers that this package follows.
"""

import math
import os
from collections.abc import Callable, Iterable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from privcirnet.he.ring.modular import Residues
from privcirnet.he.system.threads import each, ranges

KEY_BYTES = 32
_BLOCK = 16
_ZEROS = bytes(1 << 16)
"""Zeros to encrypt, a piece at a time: as many fresh zeros would take longer than the cipher."""

Words = Callable[[int], Residues]
"""A function of a count that returns a stream's next words."""


def stream(key: bytes | None = None) -> Words:
    """Return a function of a count that gives the next 64-bit words, shape (count,), of a stream.

    The words can be overwritten (:func:`ring.sampling.wipe`).

    Args:
        key: 32 bytes; None: a fresh one.
    """
    cipher = algorithms.AES(os.urandom(KEY_BYTES) if key is None else key)
    encryptor = Cipher(cipher, modes.CTR(bytes(_BLOCK))).encryptor()

    def words(count: int) -> Residues:
        buffer = np.empty(count + _BLOCK // 8, dtype=np.uint64)  # the library wants room for one more block
        room = buffer.data.cast("B")
        for start in range(0, 8 * count, len(_ZEROS)):
            encryptor.update_into(_ZEROS[: 8 * count - start], room[start:])
        return buffer[:count]

    return words


FLOODING_BITS = 40
"""Least ratio, in bits, of the width of each of the three parts of flooding noise to the bound on what it hides."""

IMAGE_DISTANCE_BITS = 30
"""The noise of an image's replies is within a statistical distance of 2^-30 of noise independent of the weights."""

_FISHER = 4.6
"""Fisher information of the sum of three uniform numbers of width 1, rounded up from 4.562."""

ERROR_BITS = 21
"""Random bits on each side of a fresh encryption's error, which is the difference of their sums: SEAL's distribution,
of standard deviation sqrt(21 / 2) = 3.24."""

_LIMB, _TOP = 64, 62
_AT_ONCE = 1 << 14
"""Values that a thread draws at a time."""


def uniform(shape: tuple[int, ...], t: int) -> Residues:
    """Return uniform residues mod t from the operating system's generator, by rejection: no modulo bias.

    Args:
        t: modulus under 2^64.
    """
    count = int(np.prod(shape, dtype=np.int64))
    residues = np.empty(count, dtype=np.uint64)

    def fill(part: range) -> None:
        residues[part.start : part.stop] = _uniform(len(part), t)

    each(fill, ranges(count, _AT_ONCE))
    return residues.reshape(shape)


def _uniform(count: int, t: int) -> Residues:
    limit, width = np.uint64((1 << t.bit_length()) - 1), -(-t.bit_length() // 8)
    accepted = np.empty(0, dtype=np.uint64)
    while accepted.size < count:
        draws = count - accepted.size + 64
        octets = np.zeros((draws, 8), dtype=np.uint8)
        octets[:, :width] = np.frombuffer(os.urandom(draws * width), dtype=np.uint8).reshape(draws, width)
        drawn = octets.view("<u8")[:, 0].astype(np.uint64) & limit
        accepted = np.concatenate([accepted, drawn[drawn < t]])
    return accepted[:count]


def flood_digits(bits: int, count: int, words: Words) -> Residues:
    """Draw flooding noise, in digits that :func:`flood_powers` gives the weights of.

    One part has all of its bits. The others have only their highest 62: a shift by e is then one by e rounded up
    to a multiple of 2^(bits - 62), which is no more than the noise as long as flooding is not over 62 bits, and hides
    it to 2^-62 where it is.

    Args:
        bits: log2 of the width of each part, at least 1.

    Returns:
        the lower digits, lowest first, then the sum of the highest 62 bits of three parts: shape (digits, count).
    """
    low, top = max(bits - _TOP, 0), min(bits, _TOP)
    lower = -(-low // _LIMB)
    digits = words((lower + 3) * count).reshape(-1, count)
    tops = (digits[lower:] >> np.uint64(_LIMB - top)).sum(axis=0)
    digits = np.concatenate([digits[:lower], tops[None]])
    if low % _LIMB:
        digits[lower - 1] &= np.uint64((1 << low % _LIMB) - 1)
    return digits


def flood_powers(bits: int) -> tuple[tuple[int, ...], int]:
    """Return the constants that turn :func:`flood_digits` into integers: (weight of each digit, offset of the sum).

    Args:
        bits: log2 of the width of each part.
    """
    low = max(bits - _TOP, 0)
    return tuple(1 << at for at in (*range(0, low, _LIMB), low)), (3 << bits >> 1) - (1 << low)


def image_distance_bits(replies: Iterable[tuple[int, float]], flood_bits: int) -> float:
    """Return -log2 of a bound on the statistical distance of an image's noise from noise independent of the weights.

    Maths: for a density f with Fisher information I, the squared Hellinger distance of f from f shifted by d is at most
    I d^2 / 8 (Cauchy-Schwarz). Over independent coefficients, and over replies that depend on earlier ones, squared
    distances add up at most. The statistical distance is at most sqrt(2) times the Hellinger distance, so at most

        1/2 sqrt(I sum d^2),    d = 2^noise / 2^flood + 2^-62 for parts of width 1.

    Args:
        replies: pairs of each layer, (coefficients that the client sees, log2 of a bound on their noise).
        flood_bits: log2 of the width of each part of the flooding noise.
    """
    shifts = sum(count * (2.0 ** (noise - flood_bits) + 2.0**-_TOP) ** 2 for count, noise in replies)
    return 1 - math.log2(_FISHER * shifts) / 2 if shifts else math.inf


def wipe(arrays: Iterable[Residues | None]) -> None:
    """Overwrite arrays with zeros.

    Args:
        arrays: secrets that nobody uses any more; None is passed over, and so is memory that cannot be written.
    """
    for array in arrays:
        if array is not None and array.flags.writeable:
            array.fill(0)
