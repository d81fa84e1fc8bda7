"""Residues as the compact bytes of :mod:`engines.sealfile` and back, a word at a time.

Format: prime by prime, each residue in ``width`` bytes, little-endian. Read as one little-endian number these are the
residues as digits of 8 ``width`` bits, so both directions shift whole 64-bit words instead of moving bytes.
"""

import numpy as np

from privcirnet.errors import RuleError
from privcirnet.he.engines.kernels.jit import jit
from privcirnet.he.ring.modular import Integers, Residues

_ZERO, _ONE, _TOP, _WORD = np.uint64(0), np.uint64(1), np.uint64(63), np.uint64(64)


def pack(words: Residues, widths: tuple[int, ...]) -> bytes:
    """Compact bytes of residues.

    Args:
        words: residues, (primes, m); of each only its lowest ``width`` bytes count.
        widths: bytes of a residue of each prime, 1 to 8.
    """
    assert len(widths) == len(words)
    bits = 8 * np.array(widths, dtype=np.uint64)
    made = packed(words.shape[1], bits)
    pack_into(made, np.ascontiguousarray(words), bits)
    return octets(made, words.shape[1], bits)


def packed(count: int, bits: Residues) -> Residues:
    """Room for that many residues of each prime, packed into ``bits`` (8 to 64) each."""
    return np.empty(-(-count * int(bits.sum()) // 64), dtype=np.uint64)


def octets(made: Residues, count: int, bits: Residues) -> bytes:
    """The bytes of that many packed residues of each prime."""
    return made.view(np.uint8)[: count * int(bits.sum()) // 8].tobytes()


def unpack(message: bytes | bytearray | memoryview, primes: tuple[int, ...], widths: tuple[int, ...]) -> Residues:
    """Residues of compact bytes, all checked.

    Args:
        message: :func:`pack`'s bytes.
        primes: of the modulus.
        widths: bytes of a residue of each prime, 1 to 8.

    Returns:
        residues, (primes, m).

    Raises:
        RuleError: a length that is no whole number of coefficients, or a residue that is not under its prime.
    """
    assert len(widths) == len(primes)
    octets = np.frombuffer(message, dtype=np.uint8)
    count, rest = divmod(octets.size, sum(widths))
    if rest:
        raise RuleError(
            f"a message must hold {sum(widths)} bytes for each coefficient",
            got=f"{octets.size} bytes",
            remedy="use the same parameters on both sides",
        )
    padded = np.zeros(octets.size // 8 + 2, dtype=np.uint64)
    padded.view(np.uint8)[: octets.size] = octets
    words = np.empty((len(primes), count), dtype=np.uint64)
    if not unpack_into(words, padded, np.array(primes, dtype=np.uint64), 8 * np.array(widths)):
        raise not_under()
    return words


def not_under() -> RuleError:
    """What a message with a residue that is too large is refused with."""
    return RuleError("every residue must be under its prime", got="one that is not", remedy="send it again")


@jit
def pack_into(made: Residues, words: Residues, bits: Residues) -> None:
    """The lowest ``bits`` (8 to 64, for each prime) of every word, one after the other, into 64-bit words.

    ``held`` has the ``filled`` < 64 bits that were not written yet; of a word that fills it up the rest is kept.
    """
    held, filled, place = _ZERO, _ZERO, 0
    for j in range(words.shape[0]):
        row, width = words[j], bits[j]
        mask = ~_ZERO >> (_WORD - width)
        for i in range(row.size):
            word = row[i] & mask
            held = held | (word << filled)
            filled = filled + width
            if filled >= _WORD:
                made[place] = held
                place += 1
                filled = filled - _WORD
                held = (word >> _ONE) >> (width - filled - _ONE)
    if filled > _ZERO:
        made[place] = held


@jit
def unpack_into(words: Residues, padded: Residues, primes: Residues, bits: Integers) -> bool:
    """Inverse of :func:`pack_into`: ``words``, (primes, m); False if one is not under its prime.

    Reads two neighbouring words for each residue, so ``padded`` has one more than hold the message.
    """
    under, start = True, 0
    for j in range(primes.size):
        row, p, width = words[j], primes[j], int(bits[j])
        mask = ~_ZERO >> np.uint64(64 - width)
        for i in range(row.size):
            position = start + i * width
            place, shift = position >> 6, np.uint64(position & 63)
            word = ((padded[place] >> shift) | ((padded[place + 1] << _ONE) << (_TOP - shift))) & mask
            row[i] = word
            under = under & (word < p)
        start += row.size * width
    return under
